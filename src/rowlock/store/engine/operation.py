"""Operations: the store's units of work, each a generator that yields named statements and receives their rows.

Written once, an operation runs on asyncpg (async), in SQLite's writer thread (sync) and on callers' own connections
(either): whoever drives the generator owns the transaction, executes each `Call` and sends the rows in. Where the
engines differ, the operation asks for a capability of the dialect.
"""

from __future__ import annotations

import functools
from collections import namedtuple
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast

from rowlock.store.engine.dialects import Dialect

T = TypeVar("T")
P = ParamSpec("P")
UserRow = Sequence[Any]  # a row of a user's own statement, as the driver returns it


class Row(Protocol):
    """One row of a statement: `row.id` is its column `id`. Also a sequence, in the statement's column order."""

    def __getattr__(self, column: str, /) -> Any: ...
    def __getitem__(self, place: Any, /) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __len__(self) -> int: ...


@functools.cache
def row_maker(columns: tuple[str, ...]) -> Callable[[Iterable[Any]], Row]:
    """A function that makes rows with these columns from tuples, so that all drivers yield the same kind of row."""
    return cast(Any, namedtuple("Row", columns, rename=True))._make  # type: ignore[no-any-return]


class Call:
    """One named statement with its parameters."""

    __slots__ = ("name", "params")

    def __init__(self, name: str, /, **params: Any) -> None:
        self.name, self.params = name, params


@dataclass(frozen=True, slots=True)
class Wake:
    """Send a message to these addresses once the transaction has committed."""

    addresses: tuple[str, ...]
    message: str = "work"


class AskDialect:
    """Yielded to get the dialect of the engine; see `dialect`."""


Steps = Generator[Call | Wake | AskDialect, list[Row], T]
_ASK_DIALECT = AskDialect()


def dialect() -> Steps[Dialect]:
    """The dialect of the engine that runs this operation, to check its capabilities."""
    answer: Any = yield _ASK_DIALECT
    return answer  # type: ignore[no-any-return]


@dataclass(slots=True)  # not frozen: that would cost each enqueue 1.5 µs
class Operation(Generic[T]):
    """A unit of work: its statements commit together or not at all."""

    name: str
    start: Callable[[], Steps[T]]
    single: bool  # at most one statement on a server, so it doesn't need its own BEGIN and COMMIT
    repeatable: bool  # running it twice is harmless, so it may be repeated if the reply is lost
    read: bool  # changes nothing
    enqueues: bool  # makes jobs claimable, so a worker may have to be woken
    hot: bool  # runs for every batch or enqueue; its text must be safe with a plan made for an empty table
    size: int  # the most jobs that it touches; 0 if unknown


def operation(
    *,
    single: bool | Callable[..., bool] = False,
    repeatable: bool = False,
    read: bool = False,
    enqueues: bool = False,
    hot: bool = False,
    size: Callable[..., int] | None = None,
) -> Callable[[Callable[P, Steps[T]]], Callable[P, Operation[T]]]:
    """Make a generator function build operations."""

    def wrap(function: Callable[P, Steps[T]]) -> Callable[P, Operation[T]]:
        @functools.wraps(function)
        def build(*args: P.args, **kwargs: P.kwargs) -> Operation[T]:
            start = functools.partial(function, *args, **kwargs)
            touched = size(*args, **kwargs) if size else 0
            alone = read or (single(*args, **kwargs) if callable(single) else single)
            return Operation(function.__name__, start, alone, repeatable or read, read, enqueues, hot, touched)

        return build

    return wrap


class Executes(Protocol):
    """Executes statements one by one, blocking."""

    def execute(self, call: Call) -> list[Row]: ...


def drive(op: Operation[T], dialect: Dialect, runner: Executes, wakes: list[Wake]) -> T:
    """Run an operation's statements. Appends to `wakes` the messages to send after the commit."""
    steps = op.start()
    answer: Any
    try:
        step = next(steps)
        while True:
            if isinstance(step, Call):
                answer = runner.execute(step)
            elif isinstance(step, AskDialect):
                answer = dialect
            else:
                wakes.append(step)
                answer = None
            step = steps.send(answer)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


async def drive_awaiting(op: Operation[T], dialect: Dialect, execute: Callable[[Call], Awaitable[list[Row]]]) -> T:
    """Run an operation on PostgreSQL, awaiting each statement. Drops its wake-ups: there the statements notify."""
    steps = op.start()
    try:
        step = next(steps)
        while True:
            answer: Any = None
            if isinstance(step, Call):
                answer = await execute(step)
            elif isinstance(step, AskDialect):
                answer = dialect
            step = steps.send(answer)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
