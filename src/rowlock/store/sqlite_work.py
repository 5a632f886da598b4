"""One request to SQLite's writer thread: who waits for it, and what a cancellation means to it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rowlock.store.operation import Ring
from rowlock.store.sqlite_runner import Runner

if TYPE_CHECKING:
    from rowlock.store.sqlite_session import SqliteSession

log = logging.getLogger("rowlock.store")

Do = Callable[[Runner, list[Ring]], Any]
Answer = tuple[Any, BaseException | None]  # what it gave, or how it failed


class Work:
    """One request to the writer thread, and the future that its caller waits on."""

    __slots__ = ("_once", "answer", "answered", "do", "loop", "session", "withdrawn")

    def __init__(self, do: Do, session: SqliteSession | None = None) -> None:
        self.do, self.session = do, session
        self.loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[Any] = self.loop.create_future()
        self.answered = self.withdrawn = False
        self._once = threading.Lock()

    def take(self) -> bool:
        """True for the first who asks: the thread that begins it, or the caller who takes it back."""
        return self._once.acquire(blocking=False)

    async def wait(self, *, withdraw: bool = True) -> Any:
        """The answer. Who is cancelled before it has begun takes it back; afterwards the cancellation waits."""
        try:
            return await self.answer
        except asyncio.CancelledError as cancelled:
            if withdraw and self.take():
                self.withdrawn = True
                cancelled.may_have_happened = False  # type: ignore[attr-defined]
            else:
                await self._wait_to_the_end()
            raise

    async def _wait_to_the_end(self) -> None:
        if self.answered:
            return
        self.answer = self.loop.create_future()
        while not self.answer.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({self.answer})
        self.answer.exception()

    def resolve(self, value: Any = None, error: BaseException | None = None) -> None:
        def done() -> None:
            self.answered = True
            if not self.answer.done():
                if error is None:
                    self.answer.set_result(value)
                else:
                    self.answer.set_exception(error)

        try:
            self.loop.call_soon_threadsafe(done)
        except RuntimeError:  # the caller's loop has closed; nobody waits any more
            log.debug("an answer found no loop to go to")
