"""What an idle worker asks before it claims: is anything there, and when is the next job due?"""

from rowlock.core.claiming.ranges import QueueTask
from rowlock.store import queues
from rowlock.store.jobs import claim
from support.rigs.rig import Rig
from support.rigs.sources import enqueue_each

SERVED = [QueueTask("default", "t"), QueueTask("other", "t")]


async def peek(rig: Rig) -> tuple[bool, float | None]:
    return await rig.store.run(claim.peek(SERVED))


async def test_nothing_is_there_and_no_job_is_due(rig: Rig) -> None:
    assert await peek(rig) == (False, None)
    await rig.enqueue(task="unknown")
    assert await peek(rig) == (False, None), "a job that this worker cannot run"


async def test_a_ready_job_is_seen_until_it_is_claimed(rig: Rig) -> None:
    await rig.enqueue(queue="other")
    assert await peek(rig) == (True, None)
    await rig.claim(1, queue="other")
    assert await peek(rig) == (False, None)


async def test_a_ready_job_with_a_source_is_seen(rig: Rig) -> None:
    await enqueue_each(rig, ["api:x"])
    assert await peek(rig) == (True, None)


async def test_jobs_of_a_paused_queue_are_not_seen(rig: Rig) -> None:
    await rig.enqueue()
    await rig.store.run(queues.pause("default"))
    assert await peek(rig) == (False, None)


async def test_a_delayed_job_is_announced_with_the_seconds_until_it_is_due(rig: Rig) -> None:
    await rig.enqueue(delay=60)
    ready, due = await peek(rig)
    assert not ready
    assert due is not None
    assert 59 < due <= 60
    rig.clock.move(61)
    ready, due = await peek(rig)
    assert not ready, "it must be promoted first"
    assert due is not None
    assert due <= 0
    await rig.store.run(claim.promote(10))
    assert await peek(rig) == (True, None)
