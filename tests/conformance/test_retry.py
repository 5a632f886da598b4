"""What an operator's retry promises: the same job goes on, with more tries and all of its history."""

from datetime import timedelta

from rowlock.core.outcome import Cancelled, Failed, Lost, Succeeded
from rowlock.store.jobs import cancel
from support.each import each
from support.rigs.rig import KEEP, Rig, token


async def test_a_dead_job_goes_on_with_its_id_attempt_and_history(rig: Rig) -> None:
    options = {"owner": "ana", "tags": ("x",), "priority": 4, "source": "s", "args": '{"n": 1}', "timeout_seconds": 9.0}
    job = await rig.running(max_attempts=1, **options)
    alive = await rig.row(job.id)
    await rig.settle(job, Failed("E", "no"))
    now = rig.clock.move(1000)
    assert await rig.retry(job.id) == {job.id}
    row = await rig.row(job.id)
    assert row | {"state": "queued", "attempt": 1, "max_attempts": 2, "run_after": now, "updated_at": now} == row
    kept = ("task", "queue", "args", "owner", "tags", "priority", "source", "timeout_seconds", "created_at")
    assert {name: row[name] for name in kept} == {name: alive[name] for name in kept}
    assert (row["finished_at"], row["lease_token"], row["locked_by"], row["result"]) == (None, None, None, None)
    assert await rig.attempts(job.id) == [(1, "failed", "E", "worker-1")]
    (again,) = await rig.claim()
    assert (again.id, again.attempt) == (job.id, 2)


@each("tries", [1, 3], afresh=True)
async def test_a_retried_job_has_as_many_tries_as_it_was_given(rig: Rig, tries: int) -> None:
    job = await rig.running(max_attempts=2)
    await rig.settle(job, Failed("E", "no", permanent=True))
    await rig.retry(job.id, tries=tries)
    used = 0
    while await rig.state(job.id) != "dead":
        rig.clock.move(timedelta(days=2))
        await rig.promote()
        (job,) = await rig.claim()
        await rig.settle(job, Failed("E", "no"))
        used += 1
    assert used == max(tries, 1)  # 2 tries were the limit; one was used, so one try needs no raise


async def test_releases_and_losses_still_cost_nothing_after_a_retry(rig: Rig) -> None:
    job = await rig.running(max_attempts=1)
    await rig.settle(job, Lost(convicted=True), draw=0)
    await rig.promote()
    (job,) = await rig.claim()
    await rig.settle(job, Failed("E", "no"))
    await rig.retry(job.id, tries=2)
    row = await rig.row(job.id)
    assert (row["attempt"], row["losses"], row["max_attempts"]) == (2, 1, 3)


async def test_a_cancelled_job_can_be_retried_and_is_not_asked_to_stop_again(rig: Rig) -> None:
    job = await rig.running()
    await rig.cancel(job.id)
    await rig.settle(job, Cancelled())
    assert await rig.retry(job.id) == {job.id}
    assert (await rig.row(job.id))["cancel_requested_at"] is None
    (again,) = await rig.claim()
    assert not again.cancel_requested
    await rig.succeed(again)


async def test_an_expired_job_can_be_retried_and_started(rig: Rig) -> None:
    job_id = await rig.enqueue(expires_at=rig.clock.now())
    assert await rig.store.run(cancel.expire(10, KEEP)) == 1
    assert await rig.retry(job_id) == {job_id}
    assert await rig.store.run(cancel.expire(10, KEEP)) == 0
    assert [job.id for job in await rig.claim()] == [job_id]


async def test_what_is_not_dead_or_cancelled_is_not_retried(rig: Rig) -> None:
    waiting = await rig.enqueue(delay=1000)
    running, failed, done = [await rig.running() for _ in range(3)]
    await rig.settle(failed, Failed("E", "no"))
    await rig.succeed(done)
    before = await rig.everything()
    assert await rig.retry(waiting, running.id, failed.id, done.id, rig.new_id()) == set()
    assert await rig.retry() == set()
    assert await rig.everything() == before


async def test_a_second_retry_of_the_same_job_changes_nothing(rig: Rig) -> None:
    job = await rig.running()
    await rig.settle(job, Failed("E", "no", permanent=True))
    assert await rig.retry(job.id, job.id) == {job.id}
    before = await rig.everything()
    assert await rig.retry(job.id) == set()
    assert await rig.everything() == before


async def test_attempt_never_goes_back_over_many_retries(rig: Rig) -> None:
    job = await rig.running(max_attempts=1)
    for attempt in range(1, 6):
        assert job.attempt == attempt
        await rig.settle(job, Failed("E", "no", permanent=True))
        await rig.retry(job.id)
        (job,) = await rig.claim()
    assert [row[0] for row in await rig.attempts(job.id)] == [1, 2, 3, 4, 5]


async def test_an_old_attempt_cannot_settle_a_retried_job(rig: Rig) -> None:
    job = await rig.running()
    await rig.settle(job, Failed("E", "no", permanent=True))
    await rig.retry(job.id)
    (holder,) = await rig.claim()
    before = await rig.everything()
    assert await rig.settle(job, Succeeded('"late"')) == "duplicate"
    assert await rig.settle(job, Succeeded('"late"'), under=token()) == "lost"
    assert await rig.everything() == before
    await rig.succeed(holder, '"new"')
    assert (await rig.row(job.id))["result"] == "new"


async def test_a_retried_job_that_was_poison_may_lose_its_worker_once_without_being_dead(rig: Rig) -> None:
    """An innocent loss (no conviction) makes a job retryable, whatever it was convicted of before the retry."""
    job = await rig.running()
    for _ in range(2):
        await rig.settle(job, Lost(convicted=True), draw=0)
        await rig.promote()
        if claimed := await rig.claim():
            (job,) = claimed
    assert await rig.state(job.id) == "dead"
    await rig.retry(job.id)
    (job,) = await rig.claim()
    await rig.lose(job)
    assert await rig.state(job.id) == "retryable"
