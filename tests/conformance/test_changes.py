"""What operators watch is read at a bounded cost: counts of queues, and jobs that something happened to lately."""

import pytest

from rowlock.core.states import State
from rowlock.store import workers
from rowlock.store.read import live
from rowlock.store.read.live import QueueCounts
from support.rig import Rig


async def test_queues_are_counted_by_what_their_jobs_wait_for(rig: Rig) -> None:
    await rig.running(queue="default")
    await rig.enqueue(queue="default")
    await rig.enqueue(queue="default", source="api:shop")
    await rig.enqueue(queue="default", task="other", priority=5)
    await rig.enqueue(queue="later", run_after=rig.clock.now().replace(year=2030))
    await rig.store.run(workers.pause_queue("halted"))
    found, lanes = await rig.store.run(live.queues(1))
    assert found == {
        "default": QueueCounts("default", ready=3, running=1),
        "later": QueueCounts("later", waiting=1),
        "halted": QueueCounts("halted", paused=True),
    }
    assert lanes == 2


async def test_a_long_line_is_counted_up_to_a_bound_and_said_to_be_longer(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "ENTRIES", 20)
    monkeypatch.setattr(live, "FEWEST", 5)
    await rig.enqueue_many(30, queue="long")
    await rig.enqueue_many(3, queue="short")
    await rig.enqueue_many(20, queue="late", run_after=rig.clock.now().replace(year=2030))
    found, _ = await rig.store.run(live.queues(2))
    assert found == {
        "long": QueueCounts("long", ready=5, exact=False),
        "short": QueueCounts("short", ready=3),
        "late": QueueCounts("late", waiting=10, exact=False),
    }


async def test_new_running_and_finished_jobs_of_every_owner_are_recent(rig: Rig) -> None:
    done = await rig.running(owner="ana")
    await rig.succeed(done)
    running = await rig.running()
    queued = await rig.enqueue()
    cancelled = await rig.enqueue()
    await rig.cancel(cancelled)
    found = await rig.store.run(live.recent([]))
    assert {job.id: (job.state, job.owner) for job in found.values()} == {
        done.id: (State.SUCCEEDED, "ana"),
        running.id: (State.RUNNING, None),
        queued: (State.QUEUED, None),
        cancelled: (State.CANCELLED, None),
    }
    assert set(live.unfinished(found)) == {running.id, queued}


async def test_the_job_that_succeeded_last_is_recent_where_rows_are_in_the_order_of_ends(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "RECENT", 1)
    old, new = await rig.running(), await rig.running()
    await rig.succeed(new)
    await rig.succeed(old)
    # Partitions have no order of ends: there it is the job with the newest id.
    expected = new if rig.store.dialect.partitions else old
    assert set(await rig.store.run(live.recent([]))) == {expected.id}


async def test_a_job_of_an_earlier_reading_is_followed_to_its_end_although_newer_ones_hide_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "RECENT", 2)
    old = await rig.running()
    known = live.unfinished(await rig.store.run(live.recent([])))
    newer = [await rig.running() for _ in range(3)]
    await rig.succeed(old)  # on PostgreSQL it is not among the newest ids
    for job in newer:
        await rig.succeed(job)
    found = await rig.store.run(live.recent(known))
    assert found[old.id].state is State.SUCCEEDED
    assert len(found) <= 4
