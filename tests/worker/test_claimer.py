"""The claimer: carries out the plan of core/claiming.py on a real database, and hands what it claims to the slots."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from rowlock.core.config import WorkerSettings
from rowlock.core.errors import StoreUnavailable
from rowlock.core.job import Claimed
from rowlock.signals.logs import JobLog
from rowlock.store import Store
from rowlock.store.engines.operation import Operation
from rowlock.worker.claimer import Claimer
from rowlock.worker.registration import Registration
from rowlock.worker.slots import Slots
from support.rig import Rig

WAIT = 30.0  # seconds; a correct claimer needs milliseconds
WORKER = "worker-1"


class Filling:
    """A claimer with slots in which nothing is started: what it claims stays there."""

    def __init__(self, rig: Rig, size: int = 10, poll: float = 60.0) -> None:
        self.rig, self.slots, self.sleeps = rig, Slots(WORKER, size, JobLog(WORKER)), 0
        settings = WorkerSettings(pool_size=size, poll_interval_seconds=poll)
        self.registration = Registration(settings, WORKER, "somewhere", ["t"], size)
        self.claimer = Claimer(
            rig.store,
            settings,
            self.slots,
            self.registration,
            prompt=["t"],
            slow=[],
            can_be_woken=True,
            idle_round=self._slept,
        )

    def _slept(self) -> None:
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
    await filling.until(lambda: filling.slots.free == 0)
    for _ in range(3):
        filling.claimer.woken()
        await filling.claimer.round()
    assert list(filling.slots.held) == ids[:10], "the oldest first"
    assert await filling.claimed_rows() == set(ids[:10])


async def test_a_delayed_job_that_is_due_is_promoted_and_claimed(rig: Rig, filling: Filling) -> None:
    job_id = await rig.enqueue(delay=5.0)
    await filling.until(lambda: filling.claimer.idle)
    assert not filling.slots.held
    rig.clock.move(6)
    filling.claimer.woken()
    await filling.until(lambda: job_id in filling.slots.held)


async def test_nothing_is_claimed_while_an_attempt_runs_alone(rig: Rig, filling: Filling) -> None:
    await rig.enqueue_many(3)
    with filling.claimer.paused(), filling.claimer.paused():
        for _ in range(3):
            await filling.claimer.round()
        assert await filling.claimed_rows() == set()
    await filling.until(lambda: len(filling.slots.held) == 3)


async def test_a_closed_claimer_claims_nothing(rig: Rig, filling: Filling) -> None:
    await rig.enqueue_many(3)
    filling.claimer.close()
    for _ in range(3):
        await filling.claimer.round()
    assert await filling.claimed_rows() == set()


async def test_an_empty_queue_is_announced_in_the_database(rig: Rig, filling: Filling) -> None:
    assert await filling.announced_idle() == [False]
    await filling.until(lambda: filling.claimer.idle)
    assert await filling.announced_idle() == [True]


async def test_a_worker_whose_row_was_removed_writes_it_again_when_it_becomes_idle(rig: Rig, filling: Filling) -> None:
    await filling.registration.remove(rig.store)
    assert await filling.announced_idle() == []
    await filling.until(lambda: filling.claimer.idle)
    assert await filling.announced_idle() == [True]


async def test_a_worker_whose_row_is_new_announces_again_that_it_is_idle(rig: Rig, filling: Filling) -> None:
    await filling.until(lambda: filling.claimer.idle)
    await filling.registration.remove(rig.store)
    await filling.registration.write(rig.store)
    filling.claimer.forgotten()
    await filling.until(lambda: filling.claimer.idle)
    assert await filling.announced_idle() == [True]


async def test_a_wake_up_ends_the_sleep_of_an_idle_claimer(rig: Rig, filling: Filling) -> None:
    rounds = asyncio.create_task(filling.until(lambda: len(filling.slots.held) == 1))
    async with asyncio.timeout(WAIT):
        while not filling.claimer.plan.drained:  # now it sleeps until the poll in a minute
            await asyncio.sleep(0.001)
        await rig.enqueue()
        filling.claimer.woken()
        await rounds


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
