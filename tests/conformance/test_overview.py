"""What `rowlock top` reads: numbers of queues, sources and workers, from counters and never by counting ends."""

from datetime import UTC, datetime

import pytest

from rowlock.core.outcome import Failed
from rowlock.core.times import FakeClock
from rowlock.store import workers
from rowlock.store.read import overview as top
from rowlock.store.read.overview import LATELY_MINUTES, MINUTES, Overview
from rowlock.store.read.snapshot import snapshot
from rowlock.store.sources import sources
from support.rigs.rig import Rig


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(datetime(2026, 1, 1, 12, 0, 30, tzinfo=UTC))


async def overview(rig: Rig) -> Overview:
    return await rig.store.run(top.overview(await rig.store.run(snapshot())))


async def test_a_queue_shows_what_is_in_it_and_what_has_ended(rig: Rig) -> None:
    for seconds in (1, 2):
        job = await rig.running()
        rig.clock.move(seconds)
        await rig.succeed(job)
    rig.clock.move(60)
    await rig.settle(await rig.running(max_attempts=1), Failed("E", "broke"))
    rig.clock.move(60 * LATELY_MINUTES - 60)  # the successes lie before the last minutes now, the death in them
    await rig.running(task="slow")
    await rig.enqueue_many(3)
    await rig.enqueue(delay=3600)
    found = await overview(rig)
    (queue,) = found.queues
    live = queue.live
    assert (live.queued, live.waiting, live.running) == (4, 1, 1)
    assert (queue.done, queue.failed) == (1, 1)
    assert len(queue.minutes) == MINUTES
    assert queue.minutes[-1 - LATELY_MINUTES :] == (2, 1, 0, 0, 0, 0)
    assert (found.ended, found.failed) == (3, 1)


async def test_a_queue_that_is_empty_now_is_shown_while_its_ends_are(rig: Rig) -> None:
    await rig.succeed(await rig.running(queue="links"))
    (queue,) = (await overview(rig)).queues
    assert (queue.live.name, queue.live.running, queue.done) == ("links", 0, 1)
    assert queue.p95_run_seconds is not None
    rig.clock.move(60 * MINUTES)
    assert (await overview(rig)).queues == ()


async def test_sources_in_use_and_closed_ones_are_shown_with_their_buckets(rig: Rig) -> None:
    await rig.store.run(sources.set_policy("api:busy", {"concurrency": 4, "rate": 60.0, "burst": 5}))
    await rig.store.run(sources.set_policy("api:idle", {"concurrency": 4}))
    await rig.store.run(sources.pause("api:off", 90))
    await rig.enqueue_many(2, source="api:busy")
    assert [len(await rig.claim(1)) for _ in range(2)] == [1, 1]
    found = {source.name: source for source in (await overview(rig)).sources}
    assert list(found) == ["api:off", "api:busy"]  # closed ones first; what is open and idle is left out
    busy, off = found["api:busy"], found["api:off"]
    assert (busy.state, busy.running, busy.concurrency, busy.burst) == ("open", 2, 4, 5)
    assert busy.tokens == pytest.approx(3.0)
    assert (off.state, off.paused_for) == ("paused", pytest.approx(90.0))


async def test_workers_that_are_not_alive_are_left_out(rig: Rig) -> None:
    await rig.store.run(workers.register("old", "h", 1, "1", ["default"], ["t"], 5, None, 60))
    rig.clock.move(61)
    await rig.store.run(workers.register("new", "h", 2, "1", ["default"], ["t"], 7, None, 60))
    found = await overview(rig)
    assert [worker.id for worker in found.workers] == ["new"]
    assert found.slots == 7
