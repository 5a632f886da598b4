"""Rows by the names of their columns: one kind of row, whatever driver has read it."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Protocol, cast

UserRow = Sequence[Any]  # of a user's own statement, as the driver gives it


class Row(Protocol):
    """One row of a statement: `row.id` is its column `id`. In the order of the statement it is a sequence, too."""

    def __getattr__(self, column: str, /) -> Any: ...
    def __getitem__(self, place: Any, /) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __len__(self) -> int: ...


@cache
def row_maker(columns: tuple[str, ...]) -> Callable[[Iterable[Any]], Row]:
    """Makes rows of these columns out of tuples."""
    return cast(Any, namedtuple("Row", columns, rename=True))._make  # type: ignore[no-any-return]
