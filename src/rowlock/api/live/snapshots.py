"""Live changes of all queues and recent jobs, read once for all operators who watch this server.

One reader runs three queries a second while an operator watches, and none otherwise. It sends states, not events: a
state that a slow client missed is replaced by the next one. So a client never has to resume after a break; on each
connection it first gets the whole known state.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any
from zoneinfo import ZoneInfo

from rowlock.api.schemas import standing
from rowlock.core.errors import StoreError
from rowlock.store.engine.store import Store
from rowlock.store.read import live
from rowlock.store.read.live import Change, QueueCounts

ROUND_SECONDS = 1.0
MOST_JOBS = 100  # in one message
PANEL_OF = {"logs": "jobs"}  # log lines are shown with their jobs


@dataclass
class Reading:
    """The latest state that was read."""

    queues: Mapping[str, QueueCounts] = field(default_factory=dict)
    jobs: Mapping[str, Change] = field(default_factory=dict)
    lanes: int = 1
    marks: Mapping[str, str | None] = field(default_factory=dict)


class View:
    """The changes that one client has not been sent yet. Its size is bounded however slowly the client reads: it keeps
    only the latest state of each queue and job, and of many jobs only the ones that changed last."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._clear()

    def _clear(self) -> None:
        self._queues: dict[str, QueueCounts] = {}
        self._jobs: dict[str, Change] = {}
        self._full, self._more = False, False
        self._panels: set[str] = set()

    def begin(self, reading: Reading) -> None:
        """Queue the whole known state for the client."""
        self._clear()
        self._full = True
        self.put(reading.queues.values(), reading.jobs.values())

    def put(self, queues: Iterable[QueueCounts], jobs: Iterable[Change], panels: Iterable[str] = ()) -> None:
        """Queue changes for the client. `panels` are pages that should be read anew."""
        self._panels |= set(panels)
        self._queues |= {queue.name: queue for queue in queues}
        for job in sorted(jobs, key=lambda job: job.at):
            self._jobs.pop(job.id, None)
            self._jobs[job.id] = job
        while len(self._jobs) > MOST_JOBS:
            del self._jobs[next(iter(self._jobs))]
            self._more = True
        if self._full or self._queues or self._jobs or self._panels:
            self._wake()

    def take(self, zone: ZoneInfo) -> list[dict[str, Any]]:
        """The messages about what has changed since the last call."""
        found, full = list[dict[str, Any]](), self._full
        if self._queues or full:
            rows = [asdict(self._queues[name]) for name in sorted(self._queues)]
            found.append({"type": "queues.changed", "full": full, "queues": rows})
        if self._jobs or full:
            told = [job_data(job, zone) for job in self._jobs.values()]
            found.append({"type": "jobs.changed", "full": full, "jobs": told, "more": self._more})
        if self._panels:
            found.append({"type": "panels.changed", "panels": sorted(self._panels)})
        self._clear()
        return found


class Changes:
    """Reads the state of queues and recent jobs while somebody watches, and tells each client what has changed."""

    def __init__(self, store: Callable[[], Awaitable[Store]], changed: Callable[[], None] = lambda: None) -> None:
        self._store, self._changed = store, changed
        self._views: set[View] = set()
        self._reading: Reading | None = None
        self._task: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def watching(self, wake: Callable[[], None]) -> AsyncIterator[View]:
        """A view while the block runs; `wake` is called when there are changes to send."""
        view = View(wake)
        if self._reading is not None:
            view.begin(self._reading)
        self._views.add(view)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())
        try:
            yield view
        finally:
            self._views.discard(view)
            if not self._views:
                await self.close()

    async def close(self) -> None:
        """Stop reading."""
        task, self._task, self._reading = self._task, None, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        store = await self._store()
        while True:
            try:
                await self._round(store)
            except StoreError as error:
                store.outage.failed("changes", error)
            await asyncio.sleep(ROUND_SECONDS)

    async def _round(self, store: Store) -> None:
        """Read the state, and queue the differences for every client."""
        before = self._reading or Reading()
        queues, lanes = await store.run(live.queues(before.lanes))
        jobs = await store.run(live.recent(live.unfinished(before.jobs)))
        marks = await store.run(live.marks())
        first, self._reading = self._reading is None, Reading(queues, jobs, lanes, marks)
        emptied = [QueueCounts(name) for name in before.queues if name not in queues]
        changed_queues = [queue for queue in queues.values() if queue != before.queues.get(queue.name)] + emptied
        changed_jobs = [job for job in jobs.values() if job != before.jobs.get(job.id)]
        panels = {PANEL_OF.get(name, name) for name, mark in marks.items() if mark != before.marks.get(name)}
        panels |= {"now", "queues"} if changed_queues else set()
        panels |= {"now", "jobs"} if changed_jobs else set()
        if panels:
            self._changed()  # before clients read the pages again
        for view in self._views:
            if first:
                view.begin(self._reading)
            else:
                view.put(changed_queues, changed_jobs, panels)


def job_data(job: Change, zone: ZoneInfo) -> dict[str, Any]:
    """A job that has changed, as clients get it."""
    return {
        "jobId": job.id,
        "jobType": job.task,
        "queue": job.queue,
        "owner": job.owner,
        **standing(job),
        "errorCode": job.error_code,
        "at": job.at.astimezone(zone).isoformat(),
    }
