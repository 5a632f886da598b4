"""Opens the app's database once for each event loop, and closes it when the loop ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

from rowlock.store.engine import forking
from rowlock.store.engine.store import Store


class Stores(forking.Forkable):
    """The open stores of an app, by event loop."""

    def __init__(self, open_: Callable[[], Awaitable[Store]]) -> None:
        self._open = open_
        self._opening: dict[asyncio.AbstractEventLoop, asyncio.Task[Store]] = {}
        # Each open store, and what closes it when its loop ends.
        self._opened: dict[asyncio.AbstractEventLoop, tuple[Store, AsyncGenerator[None, None]]] = {}
        forking.watch(self)

    def opened(self) -> Store | None:
        """This loop's store if it is already open, else None. Never awaits."""
        found = self._opened.get(asyncio.get_running_loop())
        return None if found is None else found[0]

    async def get(self) -> Store:
        """The running loop's store, opened on first use."""
        loop = asyncio.get_running_loop()
        opening = self._opening.get(loop)
        if opening is None or (opening.done() and (opening.cancelled() or opening.exception())):
            self._abandon_ended()
            opening = self._opening[loop] = loop.create_task(self._open_until_the_loop_ends(loop))
        return await asyncio.shield(opening)

    async def close(self) -> None:
        """Close the running loop's store; it opens again on the next use."""
        loop = asyncio.get_running_loop()
        opening = self._opening.get(loop)
        if opening is None:
            return
        try:
            await asyncio.shield(opening)
        finally:
            if self._opening.get(loop) is opening:
                del self._opening[loop]
            if (opened := self._opened.pop(loop, None)) is not None:
                await opened[1].aclose()

    async def close_everywhere(self) -> None:
        """Close every loop's store, from whichever loop this is."""
        here = asyncio.get_running_loop()
        for loop in list(self._opening):
            if loop is not here and loop.is_running():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.close(), loop))
        self._abandon_ended()
        await self.close()

    async def _open_until_the_loop_ends(self, loop: asyncio.AbstractEventLoop) -> Store:
        store = await self._open()
        end = self._close_at_the_end(loop, store)
        await anext(end)
        self._opened[loop] = store, end
        return store

    async def _close_at_the_end(self, loop: asyncio.AbstractEventLoop, store: Store) -> AsyncGenerator[None, None]:
        """Closes the store when its loop ends: the last thing that `asyncio.run` does is to close open generators."""
        try:
            yield
        finally:
            self._opening.pop(loop, None)
            self._opened.pop(loop, None)
            await store.close()

    def _abandon_ended(self) -> None:
        """Close the stores of loops that were closed without closing their async generators."""
        for loop in [loop for loop in list(self._opening) if loop.is_closed()]:
            self._opening.pop(loop, None)
            if (opened := self._opened.pop(loop, None)) is not None:
                opened[0].abandon()

    def after_fork(self, child: bool) -> None:
        """A child opens its own stores. The inherited ones stay referenced: closing them would harm the parent."""
        if child:
            _inherited.extend((self._opening, self._opened))
            self._opening, self._opened = {}, {}


_inherited: list[object] = []
