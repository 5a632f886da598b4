"""What the store can be asked to do, as data: an operation is a generator that yields statements and gets rows back.

One text of the logic serves asyncpg (async), SQLite's writer thread (sync) and callers' own connections (either):
whoever runs it owns the transaction, executes each `Call` and sends the rows in.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")

Row = Sequence[Any]


class Call:
    """One named statement with its parameters."""

    __slots__ = ("name", "params")

    def __init__(self, name: str, /, **params: Any) -> None:
        self.name, self.params = name, params


@dataclass(frozen=True, slots=True)
class Ring:
    """Ring these workers' bells once the transaction has committed."""

    bells: tuple[str, ...]
    what: str = "work"


Steps = Generator[Call | Ring, list[Row], T]


@dataclass(slots=True)  # not frozen: that would cost each enqueue 1.5 µs
class Operation(Generic[T]):
    """A unit of work on the store: all of its statements commit together or not at all."""

    name: str
    start: Callable[[], Steps[T]]
    single: bool  # at most one statement on a server: needs no BEGIN and COMMIT of its own
    repeatable: bool  # running it twice is harmless, so a lost reply may be answered by a repeat
    read: bool  # changes nothing
    hot: bool  # once for each batch or enqueue: its text must be safe with a plan made for an empty table
    size: int  # how many jobs it touches at most; 0 where that is not known


def operation(
    *,
    single: bool = False,
    repeatable: bool = False,
    read: bool = False,
    hot: bool = False,
    size: Callable[..., int] | None = None,
) -> Callable[[Callable[P, Steps[T]]], Callable[P, Operation[T]]]:
    """Make a generator function build operations."""

    def wrap(function: Callable[P, Steps[T]]) -> Callable[P, Operation[T]]:
        @functools.wraps(function)
        def build(*args: P.args, **kwargs: P.kwargs) -> Operation[T]:
            start = functools.partial(function, *args, **kwargs)
            touched = size(*args, **kwargs) if size else 0
            return Operation(function.__name__, start, single or read, repeatable or read, read, hot, touched)

        return build

    return wrap


def drive(steps: Steps[T], execute: Callable[[Call], list[Row]], ring: Callable[[Ring], None]) -> T:
    """Run an operation's steps with a blocking `execute`."""
    rows: list[Row] = []
    try:
        step = next(steps)
        while True:
            if isinstance(step, Ring):
                ring(step)
                rows = []
            else:
                rows = execute(step)
            step = steps.send(rows)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
