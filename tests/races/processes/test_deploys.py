"""Deploys are free: a stop signal uses up no attempt and loses nothing."""

import random
import signal

import pytest

from support.races.rig import CALM, GRACE, LEASE, Race, until
from support.rigs.worker import on_one_engine

ONE_TRY = {"max_attempts": 1}


@pytest.mark.parametrize("rounds", [4, pytest.param(20, marks=pytest.mark.soak)])
async def test_rolling_sigterms_use_up_no_attempt_and_lose_nothing(race: Race, rounds: int) -> None:
    chance = random.Random(11)
    crew = [race.start(**CALM), race.start(**CALM)]
    await race.started()
    for number in range(rounds):
        # The next one is there before the old one goes, as in any rolling deploy.
        crew.append(race.start(**CALM))
        await race.started(crew[-1])
        leaving = crew.pop(chance.randrange(2))
        await race.until_at_work(leaving, kept=20)
        leaving.send(signal.SIGTERM)
        if number % 4 == 3:
            assert await leaving.exit(GRACE + 2) == 0
    for worker in race.workers:
        if worker not in crew:
            assert await worker.exit(GRACE + 2) == 0, worker.log()
    await race.until_done(20)
    race.judge()
    harmed = {job: row for job, row in race.rows().items() if row.losses or row.tries != 1}
    assert not harmed, f"{len(harmed)} jobs lost a lease or a try: {list(harmed.items())[:3]}\n{race.story()}"


async def test_a_stop_in_the_middle_of_claiming_leaves_no_job_behind(race: Race) -> None:
    await race.enqueue("work", 2000, ms=1, options=ONE_TRY)
    for _ in range(3):
        worker = race.start(pool_size=50)
        await race.started(worker)
        seen = len(race.noted("end"))
        await until(lambda seen=seen: len(race.noted("end")) > seen, 10, race.story)  # type: ignore[misc]
        assert await worker.stop(GRACE + 2) == 0
        orphans = race.query("SELECT id, locked_by FROM {t}jobs_live WHERE state = 'running'")
        assert orphans == [], f"a worker that has exited still holds {len(orphans)} jobs\n{worker.log()[-1500:]}"
    race.start()
    await race.until_done(30)
    race.judge()
    assert {row.losses for row in race.rows().values()} == {0}


@on_one_engine
async def test_a_job_longer_than_the_grace_is_given_back_and_finished_by_another_worker(race: Race) -> None:
    first = race.start(shutdown_timeout_seconds=0.3)
    await race.started()
    await race.enqueue("work", 5, ms=2500, options=ONE_TRY)
    await race.until_noted("start", 5)
    assert await first.stop(10) == 0
    race.start()
    await race.until_done(15)
    race.judge()
    assert {(row.attempt, row.releases, row.losses) for row in race.rows().values()} == {(2, 1, 0)}
    assert {outcome for _, _, outcome in race.attempts()} == {"released"}


@on_one_engine
async def test_the_second_signal_gives_everything_back_at_once(race: Race) -> None:
    worker = race.start(shutdown_timeout_seconds=30)
    await race.started()
    ids = await race.enqueue("work", 5, ms=20_000, options=ONE_TRY)
    await race.until_noted("start", 5)
    worker.send(signal.SIGTERM)
    await until(lambda: "finishing running jobs" in worker.log(), 5, worker.log)
    leases = "SELECT {which}(lease_expires_at) FROM {{t}}jobs_live WHERE state = 'running'"
    ((before,),) = race.query(leases.format(which="max"))
    # The first signal waits for what runs: a worker that has stopped, or gave its jobs back, renews no lease.
    await until(lambda: race.query(leases.format(which="count")) == [(5,)], 5, race.story)
    await until(lambda: race.query(leases.format(which="min"))[0][0] > before, 20, race.story)
    worker.send(signal.SIGTERM)
    assert await worker.exit(10) == 0
    rows = race.rows()
    assert {(rows[job].state, rows[job].releases, rows[job].losses) for job in ids} == {("queued", 1, 0)}


@on_one_engine
async def test_the_third_signal_exits(race: Race) -> None:
    worker = race.start(shutdown_timeout_seconds=30)
    await race.started()
    (job,) = await race.enqueue("insist", ms=20_000)
    await race.until_noted("start")
    for said in ("finishing running jobs", "releasing"):
        worker.send(signal.SIGTERM)
        await until(lambda said=said: said in worker.log(), 5, worker.log)  # type: ignore[misc]
    worker.send(signal.SIGINT)
    assert await worker.exit(5) != 0  # its handler goes on for 20 s
    assert race.row(job).state == "running"  # and its lease will run out
    race.query("UPDATE {t}jobs_live SET args = '{\"ms\": 0}'")
    race.start()
    await race.until_done(LEASE + 10)
    race.judge()


@on_one_engine
async def test_a_stuck_thread_does_not_keep_a_worker_from_exiting(race: Race) -> None:
    worker = race.start(shutdown_timeout_seconds=0.5)
    await race.started()
    (job,) = await race.enqueue("deaf_thread", ms=30_000, options=ONE_TRY)
    await race.until_noted("start")
    worker.send(signal.SIGTERM)
    await worker.exit(15)  # half of what its thread takes
    assert race.row(job).tries == 0
