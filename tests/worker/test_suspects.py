"""Jobs whose worker died, in the next worker: one runs in the quarantine child, and the others are in nobody's way."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rowlock.core.config import Settings
from rowlock.core.job import Claimed
from rowlock.core.outcome import Released
from rowlock.store.engine.ids import new_token
from rowlock.store.jobs import claim, leases
from rowlock.store.jobs.claim import Range
from rowlock.store.jobs.settle import Keep
from rowlock.worker.attempt import quarantine
from rowlock.worker.attempt.attempt import LiveAttempt
from rowlock.worker.attempt.quarantine import Suspects
from rowlock.worker.attempt.slots import Slots
from rowlock.worker.processes.children import Children
from support.rigs.rig import prefix
from support.rigs.worker import new_slots, on_one_engine
from support.tasks import processes as tasks
from support.tasks.processes import LOST, app, claimed

LIMIT = 60.0  # seconds; a child starts in less than one


@pytest.fixture
async def on_database(database: str) -> AsyncIterator[None]:
    app.configure(Settings(database=database))
    yield
    await app.close()


@pytest.fixture
async def held(on_database: None, tmp_path: Path) -> list[str]:
    """Three jobs whose worker died; each returns once the file `go` is there."""
    ids = [(await tasks.waits_for.enqueue(file=str(tmp_path / "go"))).id for _ in range(3)]
    store = await app.store()
    lost: list[Claimed] = await store.run(claim.claim("dead", new_token(), [Range("default", "waits_for")], 3, -1.0))
    assert sorted(job.id for job in lost) == sorted(ids)
    await store.run(leases.reclaim([0.0] * 3, 0.0, Keep()))
    return ids


async def until(true: Any, what: str) -> None:
    try:
        async with asyncio.timeout(LIMIT):
            while not await true():
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"waited {LIMIT:g} s in vain: {what}") from None


async def states(ids: list[str]) -> list[str]:
    return sorted([str((await app.job(job_id)).state) for job_id in ids])


def processes(folder: Path) -> int:
    """In how many processes suspects have run."""
    return len(list(folder.glob("go.*")))


def list_here(folder: Path) -> list[Path]:
    """What jobs wrote that ran in this process."""
    return list(folder.glob(f"go.{os.getpid()}"))


def one_runs(folder: Path) -> Any:
    async def look() -> bool:
        return processes(folder) > 0

    return look


@pytest.mark.usefixtures("on_database")
async def test_suspects_that_wait_for_the_quarantine_child_hold_no_slot_of_healthy_work(
    held: list[str], tmp_path: Path
) -> None:
    async with app.worker(pool_size=2, poll_interval_seconds=0.2):
        await until(one_runs(tmp_path), "the first suspect runs")
        healthy = [(await tasks.pid_anywhere.enqueue()).id for _ in range(6)]

        async def done() -> bool:
            return await states(healthy) == ["succeeded"] * 6

        await until(done, "healthy jobs run while suspects wait")
        assert "succeeded" not in await states(held), "no suspect was waiting: the test did not bite"
        (tmp_path / "go").touch()

        async def all_done() -> bool:
            return await states(held) == ["succeeded"] * 3

        await until(all_done, "the suspects run one after the other")
    for job_id in held:
        job = await app.job(job_id)
        assert (job.losses, job.attempt - job.releases - job.losses) == (1, 1), "waiting used up a try"
    assert processes(tmp_path) == 1, "one child serves all suspects"


@pytest.mark.usefixtures("on_database")
async def test_a_suspect_that_has_waited_too_long_goes_back_to_the_queue_and_uses_up_no_try(
    held: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quarantine, "LONGEST_SECONDS", 0.2)
    async with app.worker(pool_size=2, poll_interval_seconds=0.2) as pool:

        async def given_back() -> bool:
            return sum([(await app.job(job_id)).releases > 0 for job_id in held]) == 2

        await until(given_back, "the two that wait are given back")
        store = await app.store()
        left = await store.fetch(f"SELECT losses_in_row FROM {prefix(store)}jobs_live")
        assert [row[0] for row in left] == [1, 1, 1], "one that waited in vain has not come back: it is a suspect still"
        (tmp_path / "go").touch()

        async def all_done() -> bool:
            return await states(held) == ["succeeded"] * 3

        await until(all_done, "they come back")
        assert not pool.running
    for job_id in held:
        job = await app.job(job_id)
        assert (job.losses, job.attempt - job.releases - job.losses) == (1, 1)


@on_one_engine
@pytest.mark.usefixtures("on_database")
async def test_jobs_that_came_back_after_a_loss_run_side_by_side_and_where_their_task_says(
    held: list[str], tmp_path: Path
) -> None:
    """One `kill -9` must not slow jobs down for the rest of their lives."""
    store = await app.store()
    async with store.transaction() as tx:
        await tx.execute(f"UPDATE {prefix(store)}jobs_live SET losses_in_row = 0, probation = probation - 1")
    async with app.worker(pool_size=3, poll_interval_seconds=0.2) as pool:

        async def three_run() -> bool:
            return pool.slots.occupied == 3 and processes(tmp_path) > 0

        await until(three_run, "side by side")
        assert processes(tmp_path) == len(list_here(tmp_path)) == 1, "one runs in quarantine"
        (tmp_path / "go").touch()

        async def all_done() -> bool:
            return await states(held) == ["succeeded"] * 3

        await until(all_done, "they return")


@on_one_engine
@pytest.mark.usefixtures("on_database")
async def test_a_worker_that_stops_gives_waiting_suspects_back(held: list[str], tmp_path: Path) -> None:
    async with app.worker(pool_size=2, shutdown_timeout_seconds=0.1):
        await until(one_runs(tmp_path), "the first suspect runs")
    assert await states(held) == ["queued"] * 3
    assert [(await app.job(job_id)).releases for job_id in held] == [1, 1, 1]
    store = await app.store()
    left = await store.fetch(f"SELECT losses_in_row FROM {prefix(store)}jobs_live")
    assert [row[0] for row in left] == [1, 1, 1], "a suspect that was stopped has not come back: it is one still"


@on_one_engine
@pytest.mark.usefixtures("on_database")
async def test_a_suspect_that_waits_can_be_cancelled(held: list[str], tmp_path: Path) -> None:
    async with app.worker(pool_size=2, shutdown_timeout_seconds=0.1, heartbeat_seconds=1, lease_seconds=10) as pool:
        await until(one_runs(tmp_path), "the first suspect runs")

        async def others_wait() -> bool:
            return len(pool.slots.suspects) == 2

        await until(others_wait, "the other two wait")
        waiting = [attempt.job.id for attempt in pool.slots.suspects]
        await app.cancel(waiting[1])

        async def cancelled() -> bool:
            return str((await app.job(waiting[1])).state) == "cancelled"

        await until(cancelled, "the one that waits is cancelled")
        assert pool.slots.suspects[0].job.id == waiting[0]
        assert len(pool.running) == 2


class Settlements:
    """What a settler was told to settle."""

    def __init__(self) -> None:
        self.put: list[tuple[LiveAttempt, Released]] = []

    def settle(self, attempt: LiveAttempt, end: Released) -> None:
        self.put.append((attempt, end))


def suspects(slots: Slots, settler: Settlements) -> Suspects:
    """The suspects of a worker that starts no child process for them."""
    absent: Any = None
    return Suspects(slots, settler, absent, Children(absent, 1))  # type: ignore[arg-type]


async def test_no_more_suspects_wait_than_a_worker_may_hold() -> None:
    settler = Settlements()
    slots = new_slots()
    waiting = suspects(slots, settler)
    many = [claimed("pid", **LOST) for _ in range(quarantine.MOST + 2)]
    for attempt in many:
        waiting.add(attempt)
    assert [attempt for attempt, _ in settler.put] == many[-2:]
    assert len(slots.suspects) == quarantine.MOST
    assert waiting.next() is many[0]
    assert waiting.next() is None, "two suspects run at once"
    waiting.returned(many[1])
    assert waiting.next() is None, "another attempt has returned, not the one that runs"
    waiting.returned(many[0])
    many[1].ended = True  # cancelled while it waited
    assert waiting.next() is many[2]
    await waiting.close()


async def test_a_suspect_that_finds_no_place_comes_back_when_those_ahead_are_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quarantine, "MOST", 10)
    settler = Settlements()
    waiting = suspects(new_slots(), settler)
    for _ in range(10):
        waiting.add(claimed("returns"))
    first = waiting.next()
    assert first is not None
    first.started -= 4.0  # seconds that it has taken
    for _ in range(2):
        waiting.add(claimed("returns"))
    ((_, again),) = settler.put
    await waiting.close()
    assert again.after >= 10 * 4.0 / 2, "with ten ahead of it, of four seconds each; half of that is jitter"
