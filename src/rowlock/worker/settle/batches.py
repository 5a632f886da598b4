"""Marks batches in the database: started, once each, and complete when their last job has ended."""

from __future__ import annotations

from rowlock.store import batches
from rowlock.store.engine.store import Store
from rowlock.worker.loops import Loops

KNOWN = 10_000  # batches that are remembered as started; to mark one twice is harmless


class BatchMarks:
    """The batches of which this worker has started a job."""

    def __init__(self, store: Store, loops: Loops) -> None:
        self._store, self._loops = store, loops
        self._known: set[str] = set()
        self._fresh: set[str] = set()
        self._ending: set[str] = set()  # batches whose last job may have settled itself in its own transaction

    def started(self, batch_id: str) -> None:
        """A job of this batch is started. What is new in one turn of the event loop is written together."""
        if batch_id in self._known:
            return
        if len(self._known) >= KNOWN:
            self._known.clear()
        self._known.add(batch_id)
        if not self._fresh:
            self._loops.spawn(self._write())
        self._fresh.add(batch_id)

    async def _write(self) -> None:
        fresh, self._fresh = sorted(self._fresh), set()
        await self._store.run(batches.start(fresh))

    def settled_itself(self, batch_id: str) -> None:
        """A job of this batch was settled by its own transaction: if it was the last one, the batch ends."""
        self._ending.add(batch_id)
        self._loops.spawn(self._end(batch_id))

    async def _end(self, batch_id: str) -> None:
        await batches.end_after_commit(self._store, {batch_id})
        self._ending.discard(batch_id)

    async def finish(self) -> None:
        """The worker stops. End the complete batches first: if it is the last worker, no sweeper will."""
        await batches.end_after_commit(self._store, set(self._ending))
