"""`Batch`: the handle of a batch, to watch its counters, wait for its end and cancel it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from rowlock.client.transactions import parent_in
from rowlock.core.errors import BatchNotFound, NotAllowed, StoreError
from rowlock.core.option_checks import name as checked_name
from rowlock.core.option_checks import name_or_none
from rowlock.store import audit, batches
from rowlock.store.audit import Actor
from rowlock.store.batches import BatchRow
from rowlock.store.engine.ids import new_id
from rowlock.store.jobs import bulk
from rowlock.store.jobs import cancel as cancels

if TYPE_CHECKING:
    from rowlock.client.client import Client

CHUNK = 1000
WATCH_SECONDS = 0.2


class Batch:
    """A batch of jobs. Its columns and counters are attributes, as last read; `refresh()` reads them again."""

    def __init__(self, app: Client, batch_id: str, name: str, owner: str | None, row: BatchRow | None = None) -> None:
        self._app, self.id, self.name, self.owner, self._row = app, batch_id, name, owner, row

    def __repr__(self) -> str:
        return f"<Batch {self.id} {self.name!r}>"

    @property
    def record(self) -> BatchRow:
        """The batch as last read."""
        if self._row is None:
            raise NotAllowed(f"batch {self.name!r} has not been read yet: await batch.refresh()")
        return self._row

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.record, name)

    async def refresh(self) -> Batch:
        """Read the batch again."""
        self._row = await self._app.perform(batches.get(self.id))
        if self._row is None:
            raise BatchNotFound(self.id)
        return self

    async def watch(self) -> AsyncIterator[BatchRow]:
        """Yields the batch whenever it has changed, until it is over."""
        last: BatchRow | None = None
        while True:
            row = (await self.refresh()).record
            if row != last:
                yield row
            if row.over:
                return
            last = row
            await asyncio.sleep(WATCH_SECONDS)

    async def wait(self, timeout: float | None = None) -> BatchRow:
        """Wait until the batch is over; raises TimeoutError after `timeout` seconds."""
        async with asyncio.timeout(timeout):
            async for _ in self.watch():
                pass
        return self.record

    async def seal(self) -> None:
        """Seal the batch: from now on only its own jobs may add jobs. The end of `async with app.batch(…)` does
        this."""
        await self._app.perform(batches.seal(self.id))
        # After the commit: before it, the seal and a last outcome written at the same moment do not see each other.
        await self._app.perform(batches.end([self.id]))

    async def cancel(self) -> None:
        """Cancel the unfinished jobs and accept no more; running jobs are asked to stop. If the row of a job makes that
        fail, the job stays as it is, and a StoreError names it after all others are cancelled."""
        write, failed = self._app.perform, dict[str, str]()
        if not await write(batches.mark_cancelled(self.id)):
            row = (await self.refresh()).record
            raise NotAllowed(f"batch {self.name!r} ({self.id}) is already {row.state}")
        in_transaction = await self._app.place() is not await self._app.store()
        while left := [job for job in await write(batches.left(self.id, CHUNK + len(failed))) if job not in failed]:
            if in_transaction:  # it is undone as a whole if this fails
                await write(cancels.cancel(left, self._app.keep))
            else:
                failed |= await bulk.cancel_each(await self._app.store(), left, self._app.keep)
        await write(batches.end([self.id]))
        for job_id, error in failed.items():
            raise StoreError(
                f"batch {self.name!r} ({self.id}): {len(failed)} of its jobs cannot be cancelled and stay as they are;"
                f" one is {job_id}: {error}"
            )


async def cancel_audited(batch: Batch, actor: Actor) -> BatchRow:
    """Cancel a batch and write into the audit who did. Both are one transaction with the mark that the batch is
    cancelled; its jobs follow, in parts."""
    async with batch._app.transaction() as transaction:
        if await transaction.run(batches.mark_cancelled(batch.id)):
            await transaction.run(audit.write_alone(actor, "batches.cancel", batch.id, {"name": batch.name}))
    await batch.cancel()
    return (await batch.refresh()).record


@asynccontextmanager
async def collecting(app: Client, name: str, owner: str | None, on_end: str | None) -> AsyncIterator[Batch]:
    """A new batch, sealed when the block ends, cancelled when it raises. `on_end` is a follow-up as JSON."""
    batch = Batch(app, new_id(), checked_name(name, "a batch's name"), name_or_none(owner, "owner"))
    await app.perform(batches.make(batch.id, batch.name, batch.owner, on_end, parent_in(app)))
    try:
        yield batch
    except BaseException as raised:
        try:
            await asyncio.shield(batch.cancel())
        except NotAllowed:  # it is over already
            pass
        except Exception as error:  # what the block raised is what counts: it may be why nothing can be written now
            raised.add_note(f"batch {batch.name!r} ({batch.id}) was not cancelled: {error}")
        raise
    await batch.seal()
