"""Poison is contained (P7) although quarantine ends with the first attempt that comes back: lives of jobs, played with
`decide` and `suspect` alone."""

from collections.abc import Callable, Iterator
from itertools import count

from rowlock.core.job import Claimed
from rowlock.core.outcome import AttemptEnd, Failed, Lost, Released
from rowlock.core.policy import PROBATION, decide, suspect
from rowlock.core.states import FINAL
from support.each import each

SNOOZE = Released(1, "snoozed")
FAIL = Failed("E", "no")
KILL = Lost()  # of the process that it runs in


def live(ends: Iterator[AttemptEnd], most: int = 10_000, **options: int) -> tuple[Claimed, str | None, int, int]:
    """Play a job until it is final, or for `most` attempts. Returns its last attempt, its error code if it has ended,
    the workers that it has killed and the attempts that it made in quarantine."""
    job, killed, quarantined = Claimed("x", "t", **options), 0, 0
    for end in ends:
        quarantined += suspect(job)
        if end is KILL:
            killed += not suspect(job)
            end = Lost(convicted=suspect(job))
        t = decide(job, end, 0.5)
        if t.state in FINAL:
            return job, t.error_code, killed, quarantined
        job = job._replace(
            attempt=job.attempt + 1,
            releases=job.releases + t.released,
            losses=job.losses + t.lost,
            convictions=job.convictions + t.convicted,
            **t.streaks._asdict(),
        )
        if job.attempt > most:
            break
    return job, None, killed, quarantined


def every(n: int, otherwise: AttemptEnd) -> Iterator[AttemptEnd]:
    return (KILL if k % n == 0 else otherwise for k in count(1))


@each("period", [1, 2, 3, 7, 20, 50, PROBATION])
def test_a_job_that_kills_its_worker_again_and_again_ends_dead_although_it_snoozes_in_between(period: int) -> None:
    job, code, killed, _ = live(every(period, SNOOZE), max_attempts=5)
    assert code == "POISON", f"alive after {job.attempt} attempts and {killed} dead workers"
    assert killed <= 2


@each("rest", [SNOOZE, FAIL])
def test_a_job_that_spares_its_quarantine_ends_by_its_tries_or_kills_one_worker_in_a_hundred_attempts(
    rest: AttemptEnd,
) -> None:
    """It comes back as often as quarantine asks for, then kills: the worst that a job can do. If it fails in between,
    its tries end it. If it snoozes, nothing ends it, and it kills one worker in a hundred attempts at most."""
    job, code, killed, quarantined = live((rest if suspected else KILL for suspected in _turns()), max_attempts=5)
    if rest is FAIL:
        assert code == "E"
    else:
        assert code is None
        assert killed <= 2 + job.attempt / PROBATION
        assert quarantined > 0.95 * job.attempt


def _turns() -> Iterator[bool]:
    """Whether the next attempt of that job runs in quarantine."""
    yield False
    yield True
    while True:
        yield False
        for _ in range(PROBATION):
            yield True


def test_a_job_that_fails_and_kills_by_turns_ends_dead_by_its_tries_at_the_latest() -> None:
    _, code, killed, _ = live(every(2, FAIL), max_attempts=3)
    assert code in ("E", "POISON")
    assert killed <= 2


@each("attempts", [10, 1000])
def test_one_lost_worker_costs_a_job_that_snoozes_one_attempt_in_quarantine(attempts: int) -> None:
    """A `kill -9` in the fifth attempt."""
    _, code, _, quarantined = live((KILL if k == 5 else SNOOZE for k in range(1, attempts + 1)), max_attempts=1)
    assert (code, quarantined) == (None, 1)


def test_a_job_that_snoozes_for_a_year_outlives_any_number_of_lost_workers() -> None:
    lost: Callable[[int], bool] = lambda k: k % 300 == 0  # noqa: E731
    job, code, _, quarantined = live((KILL if lost(k) else SNOOZE for k in count(1)), most=30_100, max_attempts=1)
    assert (code, job.losses) == (None, 100)
    assert quarantined == 100
