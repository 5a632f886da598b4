"""Which pages of the dashboard are out of date, for all operators who watch this server.

One reader asks the database once a second while an operator watches, and never otherwise: a mark for each page, which
differs when the data of the page may have changed. Each client is sent the names of such pages, and reads their routes
again. Many clients do that at the same moment, so the answers of routes are shared for a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping

from starlette.responses import Response

from rowlock.api.live.reader import EventWatcher
from rowlock.core.errors import StoreError
from rowlock.store.engine.operation import Call, Steps, operation
from rowlock.store.engine.store import Store

ROUND_SECONDS = 1.0
SHARED_SECONDS = 1.0
NEWEST = 50  # jobs of each kind whose changes a mark shows
MOST = 10_000  # live, waiting and running jobs that a mark counts
# The pages that a mark is about, beside the one of its name.
PAGES = {
    "jobs": ("batches", "now", "queues", "workers"),
    "logs": ("jobs",),
    "queues": ("now",),
    "audit": ("jobs", "now", "queues"),  # an operator may have changed jobs that no mark looks at
}


@operation(read=True)
def marks() -> Steps[dict[str, str | None]]:
    """A text for each page, which differs when the data of the page may have changed."""
    return {row.panel: row.mark for row in (yield Call("panel_marks", n=NEWEST, most=MOST))}


class Panels:
    """Reads the marks while somebody watches, and shares the answers that pages read."""

    def __init__(self, store: Callable[[], Awaitable[Store]], changed: Callable[[], None]) -> None:
        self._store, self._changed = store, changed
        self._watchers: set[EventWatcher] = set()
        self._marks: Mapping[str, str | None] | None = None
        self._known = asyncio.Event()  # the marks were read
        self._task: asyncio.Task[None] | None = None
        # When each was asked for, and the answer; None: it failed, or is not for others.
        self._answers: dict[Hashable, tuple[float, asyncio.Future[Response | None]]] = {}

    @contextlib.asynccontextmanager
    async def watching(self, watcher: EventWatcher) -> AsyncIterator[None]:
        """Let a watcher know the pages that change while the block runs."""
        self._watchers.add(watcher)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())
        try:
            await self._known.wait()
            yield
        finally:
            self._watchers.discard(watcher)
            if not self._watchers:
                await self.close()

    async def close(self) -> None:
        task, self._task, self._marks = self._task, None, None
        self._known.clear()
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        store: Store | None = None
        while True:
            try:
                store = store or await self._store()
                await self._round(store)
            except StoreError as error:  # while there is no store yet, the reader of events logs that
                if store is not None:
                    store.outage.failed("changes", error)
            await asyncio.sleep(ROUND_SECONDS)

    async def _round(self, store: Store) -> None:
        before, found = self._marks, await store.run(marks())
        self._marks = found
        self._known.set()
        changed = [] if before is None else [name for name, mark in found.items() if mark != before.get(name)]
        if changed:
            self.forget()
            pages = {page for mark in changed for page in (mark, *PAGES.get(mark, ()))} - {"logs"}
            for watcher in self._watchers:
                watcher.pages |= pages
                watcher.wake()

    # --- answers that are shared

    def forget(self) -> None:
        """Share no answer and no snapshot from before now: something has changed."""
        self._answers.clear()
        self._changed()

    async def answer(
        self, key: Hashable, read: Callable[[], Awaitable[Response]], share: bool
    ) -> tuple[Response, bool]:
        """What `read` returns, and whether another request has read it: with `share`, one that did so within the last
        second, or does so at this moment."""
        now = time.monotonic()
        self._answers = {each: (at, one) for each, (at, one) in self._answers.items() if now - at < SHARED_SECONDS}
        if share and key in self._answers:
            found = await asyncio.shield(self._answers[key][1])
            if found is not None:
                return found, True
        mine: asyncio.Future[Response | None] = asyncio.get_running_loop().create_future()
        self._answers[key] = now, mine
        response = None
        try:
            response = await read()
        finally:
            mine.set_result(response if response is not None and response.status_code == 200 else None)
        return response, False
