"""What cancel promises: waiting jobs at once, running ones are told, finished ones stay as they are."""

from rowlock.core.outcome import AttemptEnd, Cancelled, Failed, Released, Succeeded, TimedOut
from rowlock.core.states import State, allowed
from rowlock.store.jobs import leases
from support.each import each
from support.rigs.rig import Rig


async def test_a_waiting_job_is_cancelled_at_once(rig: Rig) -> None:
    queued, delayed = await rig.enqueue(task="other"), await rig.enqueue(delay=100)
    failed = await rig.running()
    await rig.settle(failed, Failed("E", "no"))
    now = rig.clock.move(5)
    ids = (queued, delayed, failed.id)
    assert await rig.cancel(*ids) == dict.fromkeys(ids, "cancelled")
    for job_id in ids:
        row = await rig.row(job_id)
        assert (row["state"], row["error_code"], row["finished_at"]) == ("cancelled", "CANCELLED", now)
    rig.clock.move(10_000)
    await rig.promote()
    assert await rig.claim(10) == []


async def test_a_running_job_is_asked_to_stop_and_keeps_its_lease(rig: Rig) -> None:
    job = await rig.running()
    before = await rig.row(job.id)
    now = rig.clock.move(5)
    assert await rig.cancel(job.id) == {job.id: "cancelling"}
    assert await rig.row(job.id) == before | {"cancel_requested_at": now, "updated_at": now}
    assert await rig.store.run(leases.held([(job.id, job.token)])) == {job.id: True}


async def test_the_first_cancel_request_keeps_its_time(rig: Rig) -> None:
    job = await rig.running()
    asked = rig.clock.move(5)
    await rig.cancel(job.id)
    rig.clock.move(5)
    assert await rig.cancel(job.id) == {job.id: "cancelling"}
    assert (await rig.row(job.id))["cancel_requested_at"] == asked


async def test_once_cancelled_is_answered_no_result_appears(rig: Rig) -> None:
    job = await rig.running()
    await rig.settle(job, Failed("E", "no"))
    assert await rig.cancel(job.id) == {job.id: "cancelled"}
    before = await rig.everything()
    assert await rig.settle(job, Succeeded('"late"')) in ("duplicate", "lost")
    assert await rig.everything() == before


async def test_a_job_that_finishes_before_it_hears_of_the_cancel_has_succeeded(rig: Rig) -> None:
    job = await rig.running()
    await rig.cancel(job.id)
    assert await rig.settle(job, Succeeded('"done"')) == "applied"
    assert await rig.state(job.id) == "succeeded"
    assert await rig.cancel(job.id) == {job.id: "final"}


@each("end", [Failed("E", "no"), TimedOut(3), Released(0)], ids=lambda end: type(end).__name__)
async def test_a_job_to_be_cancelled_does_not_go_back_to_waiting(rig: Rig, end: AttemptEnd) -> None:
    """Its worker had not yet heard of the cancel and wanted to give it another try."""
    job = await rig.running()
    await rig.cancel(job.id)
    assert await rig.settle(job, end) == "applied"
    row = await rig.row(job.id)
    assert (row["state"], row["error_code"], row["finished_at"]) == ("cancelled", "CANCELLED", rig.clock.now())
    ((_, outcome, *_),) = await rig.attempts(job.id)
    assert State.CANCELLED in allowed(State.RUNNING, outcome)  # what happened is an arrow of the state machine


async def test_finished_jobs_stay_as_they_are(rig: Rig) -> None:
    done, dead, cancelled = [await rig.running() for _ in range(3)]
    await rig.succeed(done)
    await rig.settle(dead, Failed("E", "no", permanent=True))
    await rig.settle(cancelled, Cancelled())
    before = await rig.everything()
    answers = await rig.cancel(done.id, dead.id, cancelled.id)
    assert answers == {done.id: "final", dead.id: "final", cancelled.id: "cancelled"}
    assert await rig.everything() == before


async def test_a_job_that_is_not_there_is_missing(rig: Rig) -> None:
    job_id, missing = await rig.enqueue(), rig.new_id()
    assert await rig.cancel(missing, job_id, missing) == {missing: "missing", job_id: "cancelled"}
    assert await rig.cancel() == {}


async def test_a_cancelled_waiting_job_writes_no_attempt(rig: Rig) -> None:
    job_id = await rig.enqueue()
    await rig.cancel(job_id)
    assert await rig.attempts(job_id) == []
    assert (await rig.row(job_id))["attempt"] == 0
