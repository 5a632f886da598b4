"""Commands that ask the database one thing."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from rowlock.cli.loop import run_async

if TYPE_CHECKING:
    from rowlock.store.operation import Operation
    from rowlock.work.app import Rowlock

T = TypeVar("T")


def ask(app: Rowlock, question: Operation[T]) -> T:
    """Open the database, ask, close it."""

    async def work() -> T:
        async with app:
            return await (await app.store()).run(question)

    return run_async(work())
