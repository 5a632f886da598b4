"""The claimer: carries out the plan of core/claiming/plan.py on a real database, and hands jobs to the slots."""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from rowlock.core.config import WorkerSettings
from rowlock.core.errors import StoreUnavailable
from rowlock.core.job import Claimed
from rowlock.core.times import FakeClock
from rowlock.signals.events import Watcher
from rowlock.signals.logs import JobLog
from rowlock.store import Store, open_store
from rowlock.store.engine.operation import Operation
from rowlock.store.engine.store import StoreOptions
from rowlock.store.jobs import claim
from rowlock.store.sources import claim as sourced
from rowlock.worker import claimer
from rowlock.worker.attempt.slots import Slots
from rowlock.worker.claimer import Claimer
from rowlock.worker.registration import Registration
from support.each import each
from support.races.disk import disk
from support.rigs.rig import Rig
from support.rigs.worker import new_plan, on_one_engine

WAIT = 30.0  # seconds; a correct claimer needs milliseconds
WORKER = "worker-1"


class Filling(Watcher):
    """A claimer with slots in which nothing is started: what it claims stays there. It counts the claimer's sleeps."""

    def __init__(self, rig: Rig, size: int = 10, poll: float = 60.0) -> None:
        settings = WorkerSettings(pool_size=size, poll_interval_seconds=poll)
        self.registration = Registration(settings, WORKER, ["t"], size, "somewhere")
        plan = new_plan(settings, parallel=rig.store.writers > 1)
        plain = partial(claim.claim, WORKER, lease=settings.lease_seconds)
        of_sources = partial(sourced.claim_sourced, WORKER, lease=settings.lease_seconds)
        self.claimer = Claimer(rig.store, plan, plain, of_sources, self.registration, watcher=self)
        self.rig, self.slots, self.sleeps = rig, Slots(WORKER, size, self.claimer, JobLog(WORKER)), 0
        self.claimer.fill, self.claimer.start = self.slots.fill, self.start

    def start(self, claimed: list[Claimed], sent: float) -> None:
        self.slots.add(claimed, sent)

    def rested(self) -> None:
        self.sleeps += 1

    async def until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT):
            while not reached():
                await self.claimer.round()

    async def claimed_rows(self) -> set[str]:
        """The jobs that this worker holds by what the database says."""
        return {str(row[0]) for row in await self.rig.fetch("SELECT id FROM {t}jobs WHERE locked_by = $1", WORKER)}

    async def announced_idle(self) -> list[bool]:
        return [bool(row[0]) for row in await self.rig.fetch("SELECT idle FROM {t}workers WHERE id = $1", WORKER)]


@pytest.fixture
async def filling(rig: Rig) -> Filling:
    made = Filling(rig)
    await made.registration.write(rig.store)
    return made


async def test_ready_jobs_are_claimed_for_the_free_slots_and_no_more(rig: Rig, filling: Filling) -> None:
    ids = await rig.enqueue_many(25)
    await filling.until(lambda: filling.slots.fill().free == 0)
    for _ in range(3):
        filling.claimer.woken()
        await filling.claimer.round()
    assert list(filling.slots.held) == ids[:10], "the oldest first"
    assert await filling.claimed_rows() == set(ids[:10])


@on_one_engine
@each("jobs, begun", [(3, [3]), (25, [])], ids=["the last jobs", "more are ready"], afresh=True)
async def test_handlers_begin_before_the_next_round_unless_more_jobs_are_ready(
    rig: Rig, jobs: int, begun: list[int]
) -> None:
    filling = Filling(rig)
    await filling.registration.write(rig.store)
    started, ran = filling.start, list[int]()

    def start(claimed: list[Claimed], sent: float) -> None:
        started(claimed, sent)
        asyncio.get_running_loop().call_soon(ran.append, len(claimed))  # as an attempt begins: in a task of its own

    filling.claimer.start = start
    await rig.enqueue_many(jobs)
    await filling.until(lambda: bool(filling.slots.held))
    assert ran == begun


async def test_a_delayed_job_that_is_due_is_promoted_and_claimed(rig: Rig, filling: Filling) -> None:
    job_id = await rig.enqueue(delay=5.0)
    await filling.until(lambda: filling.claimer.plan.idle)
    assert not filling.slots.held
    rig.clock.move(6)
    filling.claimer.woken()
    await filling.until(lambda: job_id in filling.slots.held)
    assert await filling.claimed_rows() == {job_id}


@on_one_engine
async def test_nothing_is_claimed_while_an_attempt_runs_alone(rig: Rig, filling: Filling) -> None:
    await rig.enqueue_many(3)
    with filling.claimer.paused(), filling.claimer.paused():
        for _ in range(3):
            await filling.claimer.round()
        assert await filling.claimed_rows() == set()
    await filling.until(lambda: len(filling.slots.held) == 3)


@on_one_engine
async def test_a_closed_claimer_claims_nothing(rig: Rig, filling: Filling) -> None:
    await rig.enqueue_many(3)
    filling.claimer.close()
    for _ in range(3):
        await filling.claimer.round()
    assert await filling.claimed_rows() == set()


async def test_an_empty_queue_is_announced_in_the_database(rig: Rig, filling: Filling) -> None:
    assert await filling.announced_idle() == [False]
    await filling.until(lambda: filling.claimer.plan.idle)
    assert await filling.announced_idle() == [True]


async def test_a_worker_whose_row_was_removed_writes_it_again_when_it_becomes_idle(rig: Rig, filling: Filling) -> None:
    await filling.registration.sign_off(rig.store)
    assert await filling.announced_idle() == []
    await filling.until(lambda: filling.claimer.plan.idle)
    assert await filling.announced_idle() == [True]


async def test_a_worker_whose_row_is_new_announces_again_that_it_is_idle(rig: Rig, filling: Filling) -> None:
    await filling.until(lambda: filling.claimer.plan.idle)
    await filling.registration.sign_off(rig.store)
    await filling.registration.write(rig.store)
    filling.claimer.forgotten()
    await filling.until(lambda: filling.claimer.plan.idle)
    assert await filling.announced_idle() == [True]


@on_one_engine
async def test_a_wake_up_ends_the_sleep_of_an_idle_claimer(rig: Rig, filling: Filling) -> None:
    rounds = asyncio.create_task(filling.until(lambda: len(filling.slots.held) == 1))
    async with asyncio.timeout(WAIT):
        while not filling.claimer.plan.drained:  # now it sleeps until the poll in a minute
            await asyncio.sleep(0.001)
        job_id = await rig.enqueue()
        filling.claimer.woken()
        await rounds
    assert await filling.claimed_rows() == {job_id}


class LosesReplies:
    """The store, over a network that loses the reply to each claim that has brought jobs, as often as it is told."""

    def __init__(self, store: Store) -> None:
        self._store, self.left = store, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def run(self, op: Operation[Any]) -> Any:
        answer = await self._store.run(op)
        if self.left and isinstance(answer, list) and answer and isinstance(answer[0], Claimed):
            self.left -= 1
            lost = StoreUnavailable("the reply was lost")
            lost.may_have_happened = True
            raise lost
        return answer


async def test_jobs_of_a_claim_whose_reply_was_lost_are_adopted_by_the_worker_that_claimed_them(rig: Rig) -> None:
    ids = await rig.enqueue_many(3)
    network = LosesReplies(rig.store)
    filling = Filling(Rig(cast(Store, network), rig.clock))
    network.left = 1
    with pytest.raises(StoreUnavailable):
        await filling.until(lambda: len(filling.slots.held) > 0)
    assert filling.claimer.has_lost_claims
    assert await filling.claimed_rows() == set(ids), "the claim itself was committed"
    await filling.until(lambda: not filling.claimer.has_lost_claims)
    assert set(filling.slots.held) == set(ids)
    assert {row["attempt"] for row in (await rig.rows()).values()} == {1}, "no job was claimed twice"


@pytest.mark.parametrize("engine", ["sqlite"])  # PostgreSQL's disk cannot be filled without filling this machine's
async def test_while_the_disk_is_full_a_claimer_waits_between_its_tries_and_a_wake_up_ends_the_wait(
    database: str, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = tmp_path / "full"
    with disk(full):
        store = await open_store(database, StoreOptions(clock=clock))
        try:
            filling = Filling(Rig(store, clock))
            await filling.registration.write(store)
            ids = await filling.rig.enqueue_many(3)
            full.touch()
            monkeypatch.setattr(claimer, "FULL_DISK_SECONDS", 0.2)
            assert await round_that_waits(filling) >= 0.2
            monkeypatch.setattr(claimer, "FULL_DISK_SECONDS", 10 * WAIT)
            waiting = asyncio.create_task(round_that_waits(filling))
            async with asyncio.timeout(WAIT):
                while filling.sleeps < 2:
                    await asyncio.sleep(0.001)
                assert await filling.claimed_rows() == set(), "reads work, and nothing was claimed"
                full.unlink()
                filling.claimer.woken()
                await waiting
            await filling.until(lambda: len(filling.slots.held) == 3)
            assert await filling.claimed_rows() == set(ids)
        finally:
            full.unlink(missing_ok=True)
            await store.close()


async def round_that_waits(filling: Filling) -> float:
    """Rounds up to the first in which the claimer waits; how many seconds that one took."""
    before = filling.sleeps
    for _ in range(20):  # it looks and promotes before it claims, and more rounds than these mean that it does not wait
        began = time.monotonic()
        await filling.claimer.round()
        if filling.sleeps > before:
            return time.monotonic() - began
    raise AssertionError("it tries again and again without a wait")
