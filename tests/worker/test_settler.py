"""The settler: outcomes are written in batches, each once, and none is lost when the database or a listener fails."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from rowlock.core.errors import StoreUnavailable
from rowlock.core.job import Claimed, NewJob
from rowlock.core.outcome import Failed, Succeeded
from rowlock.core.policy import decide
from rowlock.core.states import Outcome, State
from rowlock.store import batches
from rowlock.store.jobs.enqueue import NewRow, enqueue_rows
from rowlock.worker.attempt.attempt import LiveAttempt
from rowlock.worker.loops import Loops
from rowlock.worker.settler import BATCH, UNSTORABLE, Batch, Settler, undecided, unstorable
from support.rigs.rig import KEEP, Rig
from support.rigs.worker import new_claimer, on_one_engine

WAIT = 30.0  # seconds; a correct settler needs milliseconds


class Told:
    """A settler, and what it has told the rest of the worker."""

    def __init__(self, rig: Rig) -> None:
        self.answers: dict[str, str] = {}
        self.flushes = 0
        self.before: list[list[str]] = []  # the jobs of each write
        self.fail_before: list[BaseException] = []  # raised in turn before a write
        self.hold: asyncio.Event | None = None
        self.fail_answered = False
        self.loops = Loops(rig.store.outage)
        part: Any = self
        self.claimer = new_claimer()
        self.settler = Settler(rig.store, KEEP, slots=part, claimer=self.claimer, progress=part, watcher=part)

    async def flush(self, ended: Batch) -> None:
        self.before.append([running.job.id for running, _ in ended])
        if self.hold is not None:
            await self.hold.wait()
        if self.fail_before:
            raise self.fail_before.pop(0)

    def settled(self, batch: Batch, answers: Mapping[str, Any]) -> None:
        self.answers |= {running.job.id: answers[running.job.id] for running, _ in batch}
        if self.fail_answered:
            self.fail_answered = False
            raise ZeroDivisionError("in the worker")

    def written(self, count: int, began: float) -> None:
        self.flushes += 1


@pytest.fixture
async def told(rig: Rig) -> AsyncIterator[Told]:
    made = Told(rig)
    made.loops.start("settle", made.settler.round)
    yield made
    await made.loops.stop_all()


async def running(rig: Rig, count: int, **options: Any) -> list[Claimed]:
    await rig.enqueue_many(count, **options)
    return await rig.claim(count)


async def test_outcomes_that_come_together_are_written_together(rig: Rig, told: Told) -> None:
    jobs = await running(rig, 50)
    for number, job in enumerate(jobs):
        told.settler.settle(LiveAttempt(job), Failed("BROKEN", "no") if number % 5 == 0 else Succeeded(str(number)))
    assert told.settler.backlog == 50
    assert await told.settler.drain(WAIT)
    assert (told.flushes, told.settler.backlog) == (1, 0)
    assert told.before == [[job.id for job in jobs]]
    assert told.answers == dict.fromkeys([job.id for job in jobs], "applied")
    states = [row["state"] for row in (await rig.rows()).values()]
    assert (states.count("succeeded"), states.count("retryable")) == (40, 10)


@on_one_engine
async def test_a_claimer_that_waits_until_outcomes_are_written_is_woken(rig: Rig, told: Told) -> None:
    (job,) = await running(rig, 1)
    waiting = asyncio.create_task(told.claimer._sleep(WAIT * 10))
    told.settler.settle(LiveAttempt(job), Succeeded(None))
    await asyncio.wait_for(waiting, WAIT)
    assert await rig.state(job.id) == "succeeded"


@on_one_engine
async def test_outcomes_that_come_during_a_write_go_into_the_next_one(rig: Rig, told: Told) -> None:
    first, *later = await running(rig, 4)
    told.hold = asyncio.Event()
    told.settler.settle(LiveAttempt(first), Succeeded(None))
    async with asyncio.timeout(WAIT):
        while not told.before:
            await asyncio.sleep(0)
    for job in later:
        told.settler.settle(LiveAttempt(job), Succeeded(None))
    assert told.settler.backlog == 4, "one is being written, three wait"
    told.hold.set()
    assert await told.settler.drain(WAIT)
    assert told.before == [[first.id], [job.id for job in later]]


@on_one_engine
async def test_one_write_has_at_most_a_thousand_outcomes(rig: Rig, told: Told) -> None:
    jobs = await running(rig, BATCH + 1)
    for job in jobs:
        told.settler.settle(LiveAttempt(job), Succeeded(None))
    assert await told.settler.drain(WAIT)
    assert [len(ids) for ids in told.before] == [BATCH, 1]


async def test_an_outcome_under_a_lost_lease_is_answered_lost_and_others_in_its_write_are_applied(
    rig: Rig, told: Told
) -> None:
    mine, other = await running(rig, 2)
    stale = LiveAttempt(other._replace(token="00000000-0000-4000-8000-000000000000"))
    told.settler.settle(stale, Succeeded(None))
    told.settler.settle(LiveAttempt(mine), Succeeded(None))
    assert await told.settler.drain(WAIT)
    assert told.answers[other.id] == "lost"
    assert told.answers[mine.id] in ("applied", "duplicate"), "it may have been applied by the first of two statements"
    assert (await rig.state(mine.id), await rig.state(other.id)) == ("succeeded", "running")


@on_one_engine
async def test_a_write_that_failed_is_repeated_with_all_of_its_outcomes(
    rig: Rig, told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = await running(rig, 3)
    told.fail_before = [StoreUnavailable("gone"), StoreUnavailable("still gone")]
    for job in jobs:
        told.settler.settle(LiveAttempt(job), Succeeded(None))
    assert await told.settler.drain(WAIT)
    assert told.before == [[job.id for job in jobs]] * 3
    assert (told.flushes, told.answers) == (1, dict.fromkeys([job.id for job in jobs], "applied"))


@on_one_engine
async def test_a_drain_gives_up_when_its_time_is_over(rig: Rig, told: Told) -> None:
    (job,) = await running(rig, 1)
    told.hold = asyncio.Event()
    told.settler.settle(LiveAttempt(job), Succeeded(None))
    assert not await told.settler.drain(0.02)
    assert await rig.state(job.id) == "running"
    told.hold.set()
    assert await told.settler.drain(WAIT)


@on_one_engine
async def test_what_is_written_is_not_written_again_if_what_follows_in_the_worker_fails(
    rig: Rig, told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = await running(rig, 3)
    told.fail_answered = True
    for job in jobs:
        told.settler.settle(LiveAttempt(job), Succeeded(None))
    assert await told.settler.drain(WAIT)
    assert told.answers == dict.fromkeys([job.id for job in jobs], "applied")
    assert len(told.before) == 1
    assert "but the worker failed to record that" in caplog.text


async def test_the_last_outcome_of_a_sealed_batch_ends_the_batch(rig: Rig, told: Told) -> None:
    batch_id = rig.new_id()
    await rig.store.run(batches.make(batch_id, "import", None, None))
    rows = [NewRow(rig.new_id(), "{}", None, None) for _ in range(2)]
    await rig.store.run(enqueue_rows(rows, NewJob(task="t", batch_id=batch_id)))
    await rig.store.run(batches.seal(batch_id))
    jobs = await rig.claim(2)
    told.settler.settle(LiveAttempt(jobs[0]), Succeeded(None))
    assert await told.settler.drain(WAIT)
    assert await _batch_state(rig, batch_id) in ("queued", "running")
    told.settler.settle(LiveAttempt(jobs[1]), Succeeded(None))
    assert await told.settler.drain(WAIT)
    assert await _batch_state(rig, batch_id) == "succeeded"


async def _batch_state(rig: Rig, batch_id: str) -> str:
    found = await rig.store.run(batches.get(batch_id))
    assert found is not None
    return found.state


@on_one_engine
async def test_a_stopped_settler_writes_nothing_more(rig: Rig, told: Told) -> None:
    (job,) = await running(rig, 1)
    await told.loops.stop_all()
    told.settler.settle(LiveAttempt(job), Succeeded(None))
    assert not await told.settler.drain(0.02)
    assert await rig.state(job.id) == "running"


# --- outcomes that cannot be stored or decided

JOB = Claimed(id="", task="t")
BROKEN = JOB._replace(max_attempts=None)  # type: ignore[arg-type]  # as another program may have stored it


def test_a_refused_success_is_replaced_by_a_failure_that_is_not_retried() -> None:
    refused = decide(JOB, Succeeded("{}"), 0.5)
    instead = unstorable(JOB, refused)
    assert instead is not None
    assert (instead.state, instead.error_code) == (State.DEAD, UNSTORABLE), "its work is done: it must not run again"


def test_a_refused_failure_is_replaced_by_one_that_is_retried() -> None:
    instead = unstorable(JOB, decide(JOB, Failed("X", "a text that the database refuses"), 0.5))
    assert instead is not None
    assert (instead.state, instead.error_code) == (State.RETRYABLE, UNSTORABLE)


def test_a_replacement_that_is_refused_has_no_replacement() -> None:
    instead = unstorable(JOB, decide(JOB, Succeeded("{}"), 0.5))
    assert instead is not None
    assert unstorable(JOB, instead) is None


def test_a_job_to_which_no_rule_can_be_applied_is_dead(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    with pytest.raises(TypeError):
        decide(BROKEN, Failed("X", "no"), 0.5)
    transition = undecided(BROKEN, TypeError("no number"))
    assert (transition.state, transition.outcome) == (State.DEAD, Outcome.FAILED)
