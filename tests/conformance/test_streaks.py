"""What is counted in a row: losses since the last attempt that came back, and releases of one cause."""

from rowlock.core.job import Claimed
from rowlock.core.outcome import AttemptEnd, Failed, Lost, ReleaseCause, Released, TimedOut
from rowlock.core.policy import PROBATION, Streaks, suspect
from support.each import each
from support.rigs.rig import Rig

CAME_BACK: list[AttemptEnd] = [Failed("E", "no"), TimedOut(3), Released(20, "snoozed")]


async def streaks(rig: Rig) -> Streaks:
    """The counts of the only live job."""
    ((*found,),) = await rig.fetch(f"SELECT {', '.join(Streaks._fields)} FROM {{t}}jobs_live")
    return Streaks(*found)


async def again(rig: Rig) -> Claimed:
    """The next attempt of the only job, once it is due."""
    rig.clock.move(100_000)
    await rig.promote()
    (job,) = await rig.claim()
    return job


@each("end", CAME_BACK, ids=lambda end: type(end).__name__, afresh=True)
async def test_losses_with_attempts_that_come_back_between_them_do_not_end_a_job(rig: Rig, end: AttemptEnd) -> None:
    job = await rig.running(max_attempts=100)
    for _ in range(12):
        await rig.lose(job)
        job = await again(rig)
        assert suspect(job)
        await rig.settle(job, end)
        assert (await streaks(rig)).losses_in_row == 0
        job = await again(rig)
    row = await rig.row(job.id)
    assert (row["state"], row["losses"]) == ("running", 12), "the sum stays: tries are computed from it"


async def test_ten_losses_in_a_row_end_a_job(rig: Rig) -> None:
    job = await rig.running(max_attempts=100)
    for _ in range(9):
        await rig.lose(job)
        job = await again(rig)
    await rig.lose(job)
    assert ((await rig.row(job.id))["state"], await rig.fetch("SELECT 1 FROM {t}jobs_live")) == ("dead", [])


async def test_an_operators_retry_starts_the_counts_again(rig: Rig) -> None:
    job = await rig.running(max_attempts=100)
    for _ in range(9):
        await rig.lose(job)
        job = await again(rig)
    await rig.lose(job)
    assert await rig.retry(job.id) == {job.id}
    assert await streaks(rig) == Streaks()
    (job,) = await rig.claim()
    assert (job.attempt, job.losses, suspect(job)) == (11, 10, False)
    for _ in range(9):
        await rig.lose(job)
        job = await again(rig)
    assert (await rig.row(job.id))["losses"] == 19


async def test_one_loss_makes_a_suspect_until_an_attempt_comes_back(rig: Rig) -> None:
    job = await rig.running()
    assert not suspect(job)
    await rig.lose(job)
    job = await again(rig)
    assert suspect(job)
    await rig.settle(job, Released(1, "snoozed"))
    assert not suspect(await again(rig))


@each("cause", ["stopped", "sigterm", "disconnect"], afresh=True)
async def test_an_attempt_that_was_stopped_has_not_come_back(rig: Rig, cause: ReleaseCause) -> None:
    """A suspect that waits in vain for its quarantine, or is stopped by a deploy, has shown nothing."""
    job = await rig.running()
    await rig.lose(job)
    job = await again(rig)
    await rig.settle(job, Released(1, "stopped", cause))
    job = await again(rig)
    assert (job.losses_in_row, job.probation) == (1, PROBATION)
    assert suspect(job)


async def test_a_job_that_is_lost_again_soon_after_it_came_back_stays_in_quarantine(rig: Rig) -> None:
    job = await rig.running()
    for _ in range(2):
        await rig.lose(job)
        job = await again(rig)
        await rig.settle(job, Released(1, "snoozed"))
        job = await again(rig)
    assert (job.losses_in_row, suspect(job)) == (0, True)
    for _ in range(PROBATION - 1):
        assert suspect(job)
        await rig.settle(job, Released(1, "snoozed"))
        job = await again(rig)
    assert not suspect(job), "quarantine for life"


async def test_losses_in_a_row_begin_one_probation(rig: Rig) -> None:
    job = await rig.running()
    for _ in range(3):
        await rig.lose(job)
        job = await again(rig)
    await rig.settle(job, Released(1, "snoozed"))
    assert not suspect(await again(rig))


async def test_a_death_in_quarantine_counts_as_a_loss_in_a_row(rig: Rig) -> None:
    job = await rig.running()
    await rig.lose(job)
    job = await again(rig)
    await rig.settle(job, Lost(convicted=True))
    assert await streaks(rig) == Streaks(2, PROBATION)


async def test_releases_are_counted_in_a_row_by_their_cause(rig: Rig) -> None:
    job = await rig.running()
    for cause in ("sigterm", "disconnect", "disconnect", "stopped"):
        await rig.settle(job, Released(1, "given back", cause))  # type: ignore[arg-type]
        job = await again(rig)
    assert (job.sigterms_in_row, job.disconnects_in_row, job.releases) == (1, 2, 4)
    await rig.settle(job, Released(1, "snoozed"))
    job = await again(rig)
    assert (job.sigterms_in_row, job.disconnects_in_row, job.releases) == (0, 0, 5)
