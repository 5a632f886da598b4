"""What operators watch is read at a bounded cost: counts of queues, and marks that tell that something has changed."""

import pytest

from rowlock.api.live import panels
from rowlock.core.outcome import Failed
from rowlock.store import workers
from rowlock.store.jobs import leases, retry
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


async def changed(rig: Rig, before: dict[str, str | None]) -> set[str]:
    """The marks that differ from those before."""
    now = await rig.store.run(panels.marks())
    return {name for name, mark in now.items() if mark != before[name]}


async def test_every_change_of_a_job_changes_the_mark_of_jobs(rig: Rig) -> None:
    before = await rig.store.run(panels.marks())
    assert await changed(rig, before) == set()

    async def shows(*others: str) -> None:
        nonlocal before
        found = await changed(rig, before)
        assert {"jobs", *others} <= found, found
        assert "schedules" not in found
        before = await rig.store.run(panels.marks())
        rig.clock.move(1)

    await rig.enqueue(owner="ana")
    await shows()
    later = await rig.enqueue(delay=5)
    await shows()
    job = (await rig.claim(1))[0]
    await shows()
    await rig.store.run(leases.progress([(job.id, job.token, 40, None, None)]))
    await shows()
    await rig.succeed(job)
    await shows()
    rig.clock.move(10)
    await rig.promote()
    await shows()
    failed = (await rig.claim(1))[0]
    assert failed.id == later
    await shows()
    await rig.settle(failed, Failed("E", "x", after=60))
    await shows("failures")
    await rig.cancel(later)
    await shows()
    await rig.store.run(retry.retry([later], 1))
    await shows()
    assert await changed(rig, before) == set()


async def test_an_old_job_that_ends_below_many_newer_ones_changes_the_mark(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(panels, "NEWEST", 2)
    old, oldest_queued = await rig.running(), await rig.enqueue(delay=60)
    for _ in range(4):
        await rig.succeed(await rig.running())
    await rig.enqueue_many(4, delay=60)
    before = await rig.store.run(panels.marks())
    await rig.succeed(old)  # on PostgreSQL it is not among the newest ids
    assert "jobs" in await changed(rig, before)
    before = await rig.store.run(panels.marks())
    await rig.cancel(oldest_queued)
    assert "jobs" in await changed(rig, before)


async def test_a_pause_changes_the_mark_of_queues(rig: Rig) -> None:
    before = await rig.store.run(panels.marks())
    await rig.store.run(workers.pause_queue("halted"))
    assert await changed(rig, before) == {"queues"}
    assert panels.pages_of({"queues", "logs"}) == {"queues", "now", "jobs"}
