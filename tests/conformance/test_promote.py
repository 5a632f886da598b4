"""What promote promises: due jobs become claimable on time, in bounded batches, oldest due first."""

from rowlock.core.outcome import Failed
from rowlock.core.policy import fixed
from support.rigs import contract
from support.rigs.rig import Rig


async def test_a_due_job_becomes_claimable_and_not_earlier(rig: Rig) -> None:
    job_id = await rig.enqueue(delay=30)
    rig.clock.move(29.5)
    assert await rig.promote() == (0, 0.5)
    assert await rig.claim() == []
    rig.clock.move(0.5)
    assert await rig.promote() == (1, None)
    assert [job.id for job in await rig.claim()] == [job_id]


async def test_nothing_starts_before_its_time(rig: Rig) -> None:
    await contract.nothing_starts_before_its_time(rig)


async def test_promote_says_when_the_next_job_is_due(rig: Rig) -> None:
    assert await rig.promote() == (0, None)
    for delay in (300, 100, 200):
        await rig.enqueue(delay=delay)
    assert await rig.promote() == (0, 100)
    rig.clock.move(150)
    assert await rig.promote() == (1, 50)


async def test_promote_is_bounded_and_takes_the_oldest_due_first(rig: Rig) -> None:
    ids = [await rig.enqueue(delay=delay) for delay in (40, 30, 20, 10)]
    rig.clock.move(50)
    promoted, due = await rig.promote(2)
    assert promoted == 2
    assert due is not None
    assert due <= 0  # more is due now
    assert [job.id for job in await rig.claim(10)] == ids[2:]
    assert (await rig.promote(10))[0] == 2
    assert [job.id for job in await rig.claim(10)] == ids[:2]


async def test_retryable_jobs_are_promoted_when_their_delay_is_over(rig: Rig) -> None:
    job = await rig.running(backoff=fixed(seconds=10).to_json())
    await rig.settle(job, Failed("E", "no"), draw=0)
    assert await rig.promote() == (0, 10)
    rig.clock.move(10)
    assert await rig.promote() == (1, None)
    assert await rig.state(job.id) == "retryable"
    assert [again.id for again in await rig.claim()] == [job.id]


async def test_running_and_finished_jobs_are_not_promoted(rig: Rig) -> None:
    await rig.running()
    done = await rig.running()
    await rig.succeed(done)
    rig.clock.move(1000)
    before = await rig.everything()
    assert await rig.promote() == (0, None)
    assert await rig.everything() == before


async def test_a_promoted_job_keeps_its_place_by_priority_and_id(rig: Rig) -> None:
    late = await rig.enqueue(delay=10, priority=-1)
    early = await rig.enqueue(priority=0)
    rig.clock.move(10)
    await rig.promote()
    assert [job.id for job in await rig.claim(2)] == [late, early]
