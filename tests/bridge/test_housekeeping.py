"""A bridge keeps house as a worker does: an app all of whose tasks run behind Redis has no other process that would."""

import asyncio

import pytest

from rowlock import Rowlock
from rowlock.store import workers
from rowlock.store.engine.ids import new_id
from rowlock.store.read import counters
from rowlock.store.upkeep import bad_rows
from rowlock.worker.upkeep import sweeper
from support.web.remote import Remote, until_state


async def test_a_bridge_alone_sums_up_the_counters_and_tidies(
    app: Rowlock, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper, "COUNT_SECONDS", 0.05)
    store = await app.store()
    assert await bad_rows.put(store, new_id(), "promote", ValueError("of a job that is gone"))
    job = await app.get_task("REPLAY_MP4").enqueue(replayId=7)
    async with app.bridge():
        remote.succeed(await remote.request(job.id))
        await until_state(app, job.id, "succeeded")
        async with asyncio.timeout(60):
            while await store.run(counters.waiting()) or await store.run(bad_rows.listed(1)):
                await asyncio.sleep(0.01)
    (total,) = [one for one in await store.run(counters.totals()) if one.what == "succeeded"]
    assert total.count == 1


async def test_a_sleeping_bridge_whose_row_was_removed_is_registered_again(quick_app: Rowlock) -> None:
    store = await quick_app.store()

    async def until_idle(bridge_id: str) -> None:
        async with asyncio.timeout(60):
            while [(one.id, one.idle) for one in await store.run(workers.workers())] != [(bridge_id, True)]:
                await asyncio.sleep(0.01)

    async with quick_app.bridge() as bridge:
        await until_idle(bridge.id)
        await store.run(workers.remove(bridge.id))
        await until_idle(bridge.id)
        assert [one.id for one in await store.run(workers.workers())] == [bridge.id]
