"""Many workers, and workers that die or freeze in the middle of their work."""

import asyncio
import random

import pytest

from support.races.ledger import boottime, unfaulted
from support.races.rig import BEAT, CALM, LEASE, LONG_LEASE, PATIENCE, SWEEP, Race, Worker, until
from support.rigs.worker import on_one_engine

ONE_TRY = {"max_attempts": 1}
NEXT_ATTEMPT_ENDS_AT_ONCE = "UPDATE {t}jobs_live SET args = '{\"ms\": 0}'"  # the one that runs has its arguments
SPREAD = 1.0  # a first loss is put off by up to a second, so that not all jobs of a dead worker start at once


@pytest.mark.parametrize("count", [2000, pytest.param(5000, marks=pytest.mark.soak)])
async def test_jobs_of_four_workers_succeed_once_each_in_their_first_attempt(race: Race, count: int) -> None:
    for _ in range(4):
        race.start(**CALM)
    await race.started()
    await race.enqueue("work", count)
    await race.until_done(60)
    race.judge()
    assert unfaulted(race.accepted, race.entries(), race.rows()) == []
    assert race.attempts() == []
    assert [await worker.stop() for worker in race.workers] == [0] * 4
    assert sum(worker.counters()["stale_refused"] for worker in race.workers) == 0
    assert len({entry.worker for entry in race.entries()}) > 1, "there was no race: one worker did everything"


async def test_kill_9_of_random_workers_loses_nothing_and_uses_no_try(race: Race) -> None:
    chance = random.Random(7)
    crew = [race.start() for _ in range(3)]
    await race.started()
    await race.enqueue("work", 300, ms=100, options=ONE_TRY)
    await race.until_noted("start", 30)
    for _ in range(3):
        victim = chance.randrange(3)
        await race.until_at_work(crew[victim])
        crew[victim].kill()
        crew[victim] = race.start()
        await race.started(crew[victim])
    await race.until_done(LEASE + SWEEP + SPREAD + 20)
    race.judge()
    lost = [attempt for attempt in race.attempts() if attempt[2] == "lost"]
    assert lost, "no job was running when its worker was killed: the test did not bite"
    race.check_numbers()


async def test_a_killed_workers_jobs_start_again_within_lease_and_sweep(race: Race) -> None:
    victim, heir = race.start(pool_size=3), race.start(pool_size=3)
    await race.started()
    ids = await race.enqueue("work", 6, ms=4000, options=ONE_TRY)
    await race.until_noted("start", 6)
    orphans = {entry.job for entry in race.noted("start") if entry.worker == str(victim.pid)}
    assert len(orphans) == 3
    victim.kill()
    race.query(NEXT_ATTEMPT_ENDS_AT_ONCE)
    reclaimed = await until(
        lambda: race.query("SELECT count(*) FROM {t}jobs_live WHERE state = 'running' AND losses = 0")[0][0] == 0,
        LEASE + 1.2 * SWEEP + 10,
        race.story,
    )
    assert reclaimed > LEASE - BEAT - 0.2, "reclaimed before the lease ran out"
    await race.until_done(15)
    race.judge()
    assert {job for job in ids if race.row(job).losses == 1} == orphans
    assert heir.alive


async def frozen_in_mid_job(race: Race, task: str) -> tuple[Worker, str]:
    """A worker frozen until another one has finished its job."""
    victim = race.start(pool_size=1)
    await race.started()
    (job,) = await race.enqueue(task, ms=3000, options=ONE_TRY)  # it is frozen before its end, on a busy machine too
    (begun,) = await race.until_noted("start")
    with race.frozen(victim):
        race.query(NEXT_ATTEMPT_ENDS_AT_ONCE)
        race.start()
        await race.started(race.workers[-1])
        await race.until_done(LEASE + SWEEP + SPREAD + 15)
        race.judge()
        await until(lambda: boottime() > begun.at + 3.2, PATIENCE, race.story)  # its handler is due as soon as it wakes
    return victim, job


async def test_a_frozen_worker_that_wakes_after_its_lease_changes_nothing(race: Race) -> None:
    victim, job = await frozen_in_mid_job(race, "work")
    before = race.query("SELECT * FROM {t}jobs")
    assert race.row(job).attempt == 2
    assert race.row(job).losses == 1
    # Whether its handler still returns or is stopped first: either is too late.
    await until(lambda: len(race.noted("end")) + len(race.noted("stop")) == 2, PATIENCE, race.story)
    assert await victim.stop() == 0
    assert victim.counters()["stale_refused"] > 0, "the zombie wrote nothing: the test did not bite"
    assert race.query("SELECT * FROM {t}jobs") == before
    race.judge()


@on_one_engine
async def test_a_frozen_worker_that_wakes_while_the_next_attempt_runs_does_not_touch_it(race: Race) -> None:
    victim = race.start(pool_size=1)
    await race.started()
    (job,) = await race.enqueue("work", ms=2000, options=ONE_TRY)
    await race.until_noted("start")
    with race.frozen(victim):
        race.start()
        await race.until_noted("start", 2, within=LEASE + SWEEP + SPREAD + 15)
    await race.until_done(10)
    race.judge()
    assert (race.row(job).attempt, race.row(job).losses, race.row(job).releases) == (2, 1, 0)
    assert await victim.stop() == 0
    assert victim.counters()["stale_refused"] > 0, "the zombie wrote nothing: the test did not bite"


async def test_a_zombies_progress_and_children_are_refused(race: Race) -> None:
    victim, job = await frozen_in_mid_job(race, "zombie")
    jobs = race.query("SELECT count(*) FROM {t}jobs")[0][0]
    children = len(race.noted("child-accepted"))
    assert children == 1, "the attempt that held the lease may enqueue"
    await until(lambda: len(race.noted("end")) == 2, PATIENCE, race.story)
    zombies = [entry.kind for entry in race.entries() if entry.worker == str(victim.pid)]
    assert "child-accepted" not in zombies
    assert {"child-refused", "child-stopped"} & set(zombies)
    assert await victim.stop() == 0
    assert race.query("SELECT message FROM {t}jobs WHERE id = %s", job) == [("attempt 2",)]
    assert race.query("SELECT count(*) FROM {t}jobs")[0][0] == jobs
    assert victim.counters()["stale_refused"] > 0


@on_one_engine
async def test_a_short_freeze_loses_no_job(race: Race) -> None:
    victim = race.start(lease_seconds=LONG_LEASE)
    race.start(lease_seconds=LONG_LEASE)
    await race.started()
    await race.enqueue("work", 10, ms=5000)
    await race.until_noted("start", 10)
    with race.frozen(victim):
        await asyncio.sleep((LONG_LEASE - BEAT) / 3)  # a late beat that is still in time
    await race.until_done(15)
    race.judge()
    assert unfaulted(race.accepted, race.entries(), race.rows()) == []
