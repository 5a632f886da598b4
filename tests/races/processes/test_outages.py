"""PostgreSQL that goes away: sessions ended, the server restarted or stopped, rows locked by a stranger."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest

from rowlock.store import open_store
from rowlock.store.engine.ids import new_token
from rowlock.store.engine.store import StoreOptions
from rowlock.store.jobs import claim, leases, settle
from support.each import each
from support.races.ledger import boottime, unfaulted
from support.races.rig import LEASE, LONG_LEASE, Race, until
from support.servers.postgres import PostgresServer

LOCKED = 1.4 * LONG_LEASE  # seconds for which a stranger holds a row
LISTENING = "pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%%'"


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server that this test may stop."""
    with PostgresServer(fsync="off") as server:
        yield server


@pytest.fixture
async def own_race(server: PostgresServer, tmp_path: Path) -> AsyncIterator[Race]:
    url = server.create_database("race")
    await (await open_store(url, StoreOptions(migrate=True))).close()
    race = Race(url, tmp_path)
    await race.open()
    yield race
    await race.close()


async def test_ended_sessions_kill_no_worker_and_every_job_succeeds(postgres_race: Race) -> None:
    race = postgres_race
    race.start()
    race.start()
    await race.started()
    ended = 0
    while ended <= 10:  # on a busy machine, 1,500 jobs may be done after a few ended sessions
        await race.enqueue("work", 1500, ms=10, options={"max_attempts": 1})
        while race.live() > 0 and ended < 400:
            ended += len(
                race.query(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
                    " AND application_name LIKE 'rowlock%%' AND random() < 0.4 AND pid <> pg_backend_pid()"
                )
            )
            await asyncio.sleep(0.15)
    await race.until_done(30)
    race.judge()
    assert all(worker.alive for worker in race.workers), race.story()
    assert [await worker.stop() for worker in race.workers] == [0, 0]


async def test_an_immediate_restart_kills_no_worker_and_work_goes_on(server: PostgresServer, own_race: Race) -> None:
    race = own_race
    race.start()
    race.start()
    await race.started()
    await race.enqueue("work", 600, ms=50, options={"max_attempts": 1})
    for _ in range(2):
        done = len(race.noted("end"))
        await race.until_noted("end", done + 60)
        await asyncio.to_thread(server.restart, "immediate")
        done = len(race.noted("start"))
        await race.until_noted("start", done + 1, within=30)
    await race.until_done(30)
    race.judge()
    assert {row.losses for row in race.rows().values()} == {0}
    assert all(worker.alive for worker in race.workers)


async def test_restarts_use_up_no_try_of_a_job_whose_effects_are_in_its_transaction(
    server: PostgresServer, own_race: Race
) -> None:
    """Before its COMMIT all of it is rolled back, so that it may run again; after it, it has succeeded."""
    race = own_race
    race.query("CREATE TABLE effects (job text, attempt int)")
    worker = race.start()
    await race.started()
    ids = await race.enqueue("effect", 120, ms=60, options={"max_attempts": 1})
    for mode in ("immediate", "fast", "immediate"):
        begun = len(race.noted("start"))
        await race.until_noted("start", begun + 15)
        await asyncio.to_thread(server.restart, mode)
    await race.until_done(60)
    rows = race.rows()
    assert {job: rows[job].state for job in ids if rows[job].state != "succeeded"} == {}
    effects = sorted(race.query("SELECT job, attempt FROM effects"))
    assert effects == sorted((job, rows[job].attempt) for job in ids)
    assert max(row.attempt for row in rows.values()) > 1, "the test did not bite"
    assert worker.alive


async def test_an_outage_of_three_leases_is_not_the_death_of_live_workers(
    server: PostgresServer, own_race: Race
) -> None:
    race = own_race
    race.start()
    race.start()
    await race.started()
    await race.enqueue("work", 20, ms=3000, options={"max_attempts": 1})
    await race.until_noted("start", 20)
    await asyncio.to_thread(server.stop, "immediate")
    await asyncio.sleep(3 * LEASE)  # real: the workers are processes, and measure it by their own clocks
    assert all(worker.alive for worker in race.workers)
    await asyncio.to_thread(server.start)
    # What a sweeper would do that is quicker than the workers: every lease has run out, and none may be ended yet.
    assert await race.store.run(leases.reclaim([0.5] * 100, LEASE, settle.Keep())) == []
    await race.until_done(30)
    race.judge()
    false = {job: row for job, row in race.rows().items() if row.losses}
    assert not false, f"{len(false)} jobs were taken from workers that lived\n{race.story()}"
    assert [await worker.stop() for worker in race.workers] == [0, 0]


async def test_a_strangers_row_lock_on_one_job_does_not_stop_the_beats_of_the_others(postgres_race: Race) -> None:
    race = postgres_race
    race.start(lease_seconds=LONG_LEASE)
    race.start(lease_seconds=LONG_LEASE)
    await race.started()
    ids = await race.enqueue("work", 10, ms=int(1.8 * LONG_LEASE * 1000), options={"max_attempts": 1})
    await race.until_noted("start", 10)
    with psycopg.connect(race.url) as stranger:
        stranger.execute("SELECT 1 FROM rowlock.jobs_live WHERE id = %s FOR UPDATE", (ids[0],))
        locked = boottime()
        gaps: list[float] = []
        while boottime() - locked < LOCKED:
            late = race.query(
                "SELECT extract(epoch FROM clock_timestamp() - heartbeat_at)::float FROM {t}jobs_live WHERE id <> %s",
                ids[0],
            )
            gaps += [gap for (gap,) in late]
            await asyncio.sleep(0.1)
        # Not while it is locked. Once it is not, its beat is first in line; but on a machine that is busy enough, a
        # sweep may still come before it.
        assert race.row(ids[0]).losses == 0
        stranger.rollback()
    assert max(gaps) < LONG_LEASE, f"{max(gaps):.1f} s without a beat; one that waits for the lock takes {LOCKED}"
    await race.until_done(15)
    race.judge()
    others = [job for job in ids if job != ids[0]]
    assert unfaulted(others, race.entries(), race.rows()) == []


@each("write", ["heartbeat_at = now()", "progress = 50", "cancel_requested_at = now()"])
async def test_a_success_that_waited_for_another_write_to_its_job_leaves_one_row(
    postgres_race: Race, write: str
) -> None:
    race = postgres_race
    (job_id,) = await race.enqueue("work")
    (job,) = await race.store.run(claim.claim("worker", new_token(), [claim.Range("default", "work")], 1, 60))
    with psycopg.connect(race.url) as writer:
        writer.execute(f"UPDATE rowlock.jobs_live SET {write} WHERE id = %s", (job_id,))
        settling = asyncio.create_task(race.store.run(settle.succeed([(job.id, job.token, None)], settle.Keep())))
        waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        await until(lambda: race.query(waits)[0][0] == 1, 5, race.story)
        writer.commit()
    assert await settling is True
    assert race.query("SELECT state FROM rowlock.jobs WHERE id = %s", job_id) == [("succeeded",)], "live and finished"


async def test_a_worker_starts_to_listen_again_after_its_session_was_ended(postgres_race: Race) -> None:
    race = postgres_race
    worker = race.start(poll_interval_seconds=30)
    await race.started()
    await until(lambda: listening(race) == 1, 10, race.story)
    race.query(f"SELECT pg_terminate_backend(pid) FROM {LISTENING}")
    await until(lambda: listening(race) == 1, 20, race.story)
    (job,) = await race.enqueue("work")
    await race.until_noted("end", within=10, job=job)  # the poll would take 30
    assert worker.alive


async def test_a_cancel_while_a_worker_does_not_listen_is_told_when_it_listens_again(postgres_race: Race) -> None:
    race = postgres_race
    race.start(heartbeat_seconds=20, lease_seconds=60)
    (job,) = await race.enqueue("work", ms=30_000)
    await race.until_noted("start", job=job)
    await until(lambda: listening(race) == 1, 10, race.story)
    race.query(f"SELECT pg_terminate_backend(pid, 5000) FROM {LISTENING}")
    assert race.query("SELECT rowlock.cancel(%s::uuid)", job) == [("cancelling",)]
    await race.until_noted("stop", within=10, job=job)  # the beat would take 20
    await race.until_done(10)
    race.judge(state="cancelled")


def listening(race: Race) -> int:
    return int(race.query(f"SELECT count(*) FROM {LISTENING}")[0][0])
