"""The sweeper's own outage guard: no lease is ended before this process has been in touch for a whole one."""

import math
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from rowlock.core.config import WorkerSettings
from rowlock.core.errors import StorageFull
from rowlock.core.job import Claimed
from rowlock.core.policy import Transition
from rowlock.signals.events import Watcher
from rowlock.store.engine.outage import Outage
from rowlock.store.jobs import leases
from rowlock.store.jobs.leases import ToSweep
from rowlock.store.jobs.settle import Keep
from rowlock.worker.upkeep import sweeper
from support.each import each
from support.rigs.rig import KEEP, Rig
from support.rigs.worker import new_claimer


class Times:
    """Both clocks, moved by hand."""

    def __init__(self) -> None:
        self.boot, self.wall = 1000.0, 5_000_000.0

    def move(self, seconds: float) -> None:
        self.boot += seconds
        self.wall += seconds


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> Times:
    clocks = Times()
    monkeypatch.setattr(sweeper, "boottime", lambda: clocks.boot)
    monkeypatch.setattr(sweeper, "time", SimpleNamespace(time=lambda: clocks.wall))
    return clocks


def made(heart: Any, store: Any = None) -> sweeper.Sweeper:
    return sweeper.Sweeper(store, WorkerSettings(), Keep(), heart, new_claimer(), Watcher())


def test_a_new_worker_waits_for_one_lease(times: Times) -> None:
    sweeping = made(SimpleNamespace(in_touch_since=times.boot))
    times.move(59)
    assert not sweeping._may_reclaim()
    times.move(1)
    assert sweeping._may_reclaim()


def test_after_a_failed_beat_it_waits_for_one_lease_of_good_ones(times: Times) -> None:
    heart = SimpleNamespace(in_touch_since=times.boot)
    sweeping = made(heart)
    times.move(100)
    assert sweeping._may_reclaim()
    heart.in_touch_since = math.inf  # as the heart says while beats fail
    assert not sweeping._may_reclaim()
    heart.in_touch_since = times.boot
    times.move(59)
    assert not sweeping._may_reclaim()
    times.move(1)
    assert sweeping._may_reclaim()


def test_a_jump_of_the_wall_clock_counts_as_an_outage(times: Times) -> None:
    sweeping = made(SimpleNamespace(in_touch_since=times.boot))
    times.move(100)
    assert sweeping._may_reclaim()
    times.wall += 31
    assert not sweeping._may_reclaim()
    times.move(60)
    assert sweeping._may_reclaim()


class Swept:
    """A store with a lease that looks expired, whose clock is moved by hand; it notes what it is asked."""

    def __init__(self, times: Times) -> None:
        self._times, self.ahead, self.slow, self.asked = times, 0.0, 0.0, list[str]()
        self.outage = Outage(lambda: times.boot)

    async def run(self, op: Any) -> Any:
        self.asked.append(op.name)
        if op.name != "to_sweep":
            return []
        read = self._times.wall + self.ahead
        self._times.move(self.slow)
        return ToSweep(True, False, False, read)


@each("jump", [3600.0, -3600.0])
async def test_a_jump_of_the_databases_clock_counts_as_an_outage(times: Times, jump: float) -> None:
    store = Swept(times)
    sweeping = made(SimpleNamespace(in_touch_since=times.boot), store)
    times.move(100)
    await sweeping.round()
    assert store.asked == ["to_sweep", "reclaim"]
    store.ahead, store.asked = jump, []
    await sweeping.round()
    times.move(59)
    await sweeping.round()
    assert store.asked == ["to_sweep", "to_sweep"]
    times.move(1)
    await sweeping.round()
    assert store.asked[2:] == ["to_sweep", "reclaim"]


async def test_while_the_disk_is_full_no_lease_is_ended_although_a_sweep_would_work(times: Times) -> None:
    store = Swept(times)
    sweeping = made(SimpleNamespace(in_touch_since=times.boot), store)
    times.move(100)
    for _ in range(20):  # for a hundred seconds
        store.outage.failed("settler", StorageFull("the disk is full"))
        store.outage.worked()  # a read
        await sweeping.round()
        times.move(5)
    times.move(5)
    store.outage.worked()
    await sweeping.round()
    assert store.asked == ["to_sweep"] * 21
    times.move(60)
    await sweeping.round()
    assert store.asked[21:] == ["to_sweep", "reclaim"]


async def test_a_sweep_that_waited_for_the_table_longer_than_leases_last_ends_none(times: Times) -> None:
    """While a VACUUM FULL or an ALTER TABLE locks the table, no worker can renew a lease."""
    store = Swept(times)
    sweeping = made(SimpleNamespace(in_touch_since=times.boot), store)
    times.move(100)
    store.slow = 45.0
    await sweeping.round()
    assert store.asked == ["to_sweep"]
    store.slow = 0.0
    times.move(60)
    await sweeping.round()
    assert store.asked[1:] == ["to_sweep", "reclaim"]


async def test_a_database_that_answers_late_has_no_clock_that_jumped(times: Times) -> None:
    store = Swept(times)
    sweeping = made(SimpleNamespace(in_touch_since=times.boot), store)
    times.move(100)
    for store.slow in (0.0, 40.0, 0.0):
        await sweeping.round()
    assert store.asked == ["to_sweep", "reclaim"] * 3


@pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)
async def test_a_sweep_reads_the_clock_of_the_database(rig: Rig) -> None:
    assert abs((await rig.store.run(leases.to_sweep())).clock - time.time()) < 60


async def test_partitions_of_days_ahead_are_not_made_in_the_first_round_of_tidying(
    times: Times, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    async def ensure(store: Any, days: int) -> None:
        done.append(f"partitions of {days} days")

    async def prune(store: Any, keep: Keep) -> None:
        done.append("prune")

    async def run(operation: Any) -> None:
        done.append(operation.name)

    monkeypatch.setattr(sweeper.partitions, "ensure_partitions", ensure)
    monkeypatch.setattr(sweeper.retention, "prune", prune)
    sweeping = made(SimpleNamespace(in_touch_since=times.boot), SimpleNamespace(run=run))
    assert await sweeping.tidy() > 60
    assert done == ["forget", "prune", "forget"]
    done.clear()
    await sweeping.tidy()
    assert done == ["forget", "partitions of 32 days", "prune", "forget"]


class Listener(Watcher):
    def __init__(self) -> None:
        self.lost: list[str] = []

    def reclaimed(self, lost: Sequence[tuple[Claimed, Transition]]) -> None:
        self.lost += [job.id for job, _ in lost]


async def test_a_lease_that_was_reclaimed_is_counted_and_told_and_wakes_the_claimer(rig: Rig) -> None:
    job, listener, claimer = await rig.running(), Listener(), new_claimer()
    claimer.plan.drained = True  # it sleeps until it is woken
    never: Any = None
    settings = WorkerSettings().model_copy(update={"lease_seconds": 0.0})  # the server may have started just now
    sweeping = sweeper.Sweeper(rig.store, settings, KEEP, never, claimer, listener)
    assert await sweeping._reclaim() == []
    assert (sweeping.reclaimed, claimer.plan.drained) == (0, True)
    rig.clock.move(1000)
    assert len(await sweeping._reclaim()) == 1
    assert (sweeping.reclaimed, listener.lost, claimer.plan.drained) == (1, [job.id], False)
