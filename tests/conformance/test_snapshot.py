"""The snapshot that all readers of a process share."""

import asyncio

import pytest

from rowlock.store.engine.operation import Operation
from rowlock.store.read import snapshot as module
from rowlock.store.read.snapshot import Snapshot, Snapshots
from support.rigs.rig import Rig


class Counting:
    """Runs readings of a store, and counts them."""

    def __init__(self, rig: Rig) -> None:
        self._rig, self.number = rig, 0

    async def __call__(self, operation: Operation[Snapshot]) -> Snapshot:
        self.number += 1
        return await self._rig.store.run(operation)


async def test_readers_share_a_snapshot_until_it_is_old_or_something_changes(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FRESH_SECONDS", 3600.0)
    run = Counting(rig)
    snapshots = Snapshots(run)
    first, second = await asyncio.gather(snapshots.get(), snapshots.get())
    assert first is second
    assert (run.number, first.queues) == (1, ())
    await rig.enqueue(queue="links")
    assert (await snapshots.get()).queues == ()
    snapshots.changed()
    assert [(queue.name, queue.ready) for queue in (await snapshots.get()).queues] == [("links", 1)]
    monkeypatch.setattr(module, "FRESH_SECONDS", 0.0)
    await snapshots.get()
    assert run.number == 3


async def test_a_change_during_a_reading_makes_the_next_reader_read_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FRESH_SECONDS", 3600.0)
    run = Counting(rig)
    snapshots = Snapshots(run)
    reading = asyncio.ensure_future(snapshots.get())
    while not run.number:
        await asyncio.sleep(0)
    snapshots.changed()
    await reading
    await snapshots.get()
    assert run.number == 2


async def test_a_reading_that_fails_leaves_none_waiting(rig: Rig) -> None:
    class Broken(Counting):
        async def __call__(self, operation: Operation[Snapshot]) -> Snapshot:
            if not self.number:
                self.number += 1
                raise ConnectionError("no database")
            return await super().__call__(operation)

    snapshots = Snapshots(Broken(rig))
    failed, found = await asyncio.gather(snapshots.get(), snapshots.get(), return_exceptions=True)
    assert isinstance(failed, ConnectionError)
    assert isinstance(found, Snapshot)
