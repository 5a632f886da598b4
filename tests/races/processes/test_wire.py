"""The network between worker and PostgreSQL: lost replies, a cable that is pulled."""

import asyncio
import signal
from collections.abc import AsyncIterator

import pytest

from rowlock.core.errors import StoreUnavailable
from rowlock.store import open_store
from rowlock.store.engine.store import StoreOptions
from support.races.ledger import boottime, unfaulted
from support.races.proxy import CLAIM, HISTORY, SUCCEED, Proxy
from support.races.rig import BEAT, CALM, GRACE, LEASE, POLL, Race, until

ONE_TRY = {"max_attempts": 1}


@pytest.fixture
async def proxy(postgres: str) -> AsyncIterator[Proxy]:
    async with Proxy(postgres) as proxy:
        yield proxy


async def test_a_success_whose_reply_is_lost_is_repeated_and_answered_duplicate(
    postgres_race: Race, proxy: Proxy
) -> None:
    race = postgres_race
    worker = race.start(proxy.url, **CALM)
    await race.started()
    for _ in range(3):
        dropped = proxy.drop_reply(SUCCEED)
        await race.enqueue("work", 3, ms=20, options=ONE_TRY)
        await asyncio.wait_for(dropped.done.wait(), 30)
        await race.until_done(10)
    race.judge()
    assert unfaulted(race.accepted, race.entries(), race.rows()) == []
    assert await worker.stop() == 0
    assert worker.counters()["stale_refused"] == 0, worker.log()


async def test_a_failure_whose_commit_reply_is_lost_is_written_once(postgres_race: Race, proxy: Proxy) -> None:
    race = postgres_race
    worker = race.start(proxy.url, **CALM)
    await race.started()
    dropped = proxy.drop_reply(b"COMMIT", after=HISTORY)
    (job,) = await race.enqueue("flaky")
    await asyncio.wait_for(dropped.done.wait(), 30)
    await race.until_done(10)
    race.judge()
    assert (race.row(job).attempt, race.row(job).tries) == (2, 2)
    assert race.attempts() == [(job, 1, "failed")]
    assert await worker.stop() == 0
    assert worker.counters()["stale_refused"] == 0, worker.log()


async def test_jobs_of_a_claim_whose_reply_is_lost_are_adopted_at_once(postgres_race: Race, proxy: Proxy) -> None:
    race = postgres_race
    race.start(proxy.url, **CALM)
    await race.started()
    dropped = proxy.drop_reply(CLAIM)
    sent = boottime()
    await race.enqueue("work", 5, options=ONE_TRY)
    await asyncio.wait_for(dropped.done.wait(), 30)
    await race.until_done(10)
    race.judge()
    assert unfaulted(race.accepted, race.entries(), race.rows()) == []
    late = max(entry.at for entry in race.noted("start")) - sent
    assert late < CALM["lease_seconds"] / 2, f"they waited {late:.1f} s; without an adoption it is a lease"


@pytest.mark.parametrize("late", [True, False], ids=["late", "lost"])
async def test_a_stop_while_a_claims_reply_is_late_or_lost_leaves_no_job_behind(
    postgres_race: Race, proxy: Proxy, late: bool
) -> None:
    race = postgres_race
    worker = race.start(proxy.url)
    await race.started()
    dropped = proxy.drop_reply(CLAIM, late=True)
    await race.enqueue("work", 5, options=ONE_TRY)
    await asyncio.wait_for(dropped.done.wait(), 10)
    worker.send(signal.SIGTERM)
    await until(lambda: "stopping" in worker.log(), 5, worker.log)
    if late:
        dropped.let_go.set()
    else:
        proxy.cut()
    assert await worker.exit(GRACE + 2) == 0
    held = race.query("SELECT count(*) FROM {t}jobs_live WHERE state = 'running'")
    assert held == [(0,)], f"a worker that has exited holds {held[0][0]} jobs until their leases run out"


async def test_effects_happen_once_when_the_reply_to_their_commit_is_lost(postgres_race: Race, proxy: Proxy) -> None:
    race = postgres_race
    race.query("CREATE TABLE effects (job text, attempt int)")
    worker = race.start(proxy.url)
    await race.started()
    ids = []
    for _ in range(3):
        dropped = proxy.drop_reply(b"COMMIT", after=b"INSERT INTO effects")
        ids += await race.enqueue("effect", ms=10, options=ONE_TRY)
        await asyncio.wait_for(dropped.done.wait(), 10)
        await race.until_done(10)
    race.judge()
    assert sorted(race.query("SELECT job, attempt FROM effects")) == sorted((job, race.row(job).attempt) for job in ids)
    assert await worker.stop() == 0
    assert worker.counters()["stale_refused"] == 0, worker.log()


async def test_a_commit_that_is_not_answered_in_time_may_have_happened(postgres: str, proxy: Proxy) -> None:
    """Not a statement that takes too long, which would be known to have failed."""
    store = await open_store(proxy.url, StoreOptions(command_timeout=2))
    dropped = proxy.drop_reply(b"COMMIT", late=True)
    done = False
    with pytest.raises(StoreUnavailable):
        async with store.transaction() as tx:
            await tx.execute("CREATE TABLE kept (n integer)")
            done = True
    assert done, "it was not the COMMIT whose reply was late"
    assert dropped.done.is_set()
    dropped.let_go.set()
    assert await store.fetch("SELECT * FROM kept") == []
    await store.close()


async def test_effects_happen_once_when_sessions_are_ended_around_their_commit(postgres_race: Race) -> None:
    race = postgres_race
    race.query("CREATE TABLE effects (job text, attempt int)")
    race.start()
    await race.started()
    ids = await race.enqueue("effect", 60, ms=20)
    while race.live():
        race.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = 'rowlock' AND random() < 0.3 AND pid <> pg_backend_pid()"
            " AND (xact_start IS NOT NULL OR random() < 0.3)"
        )
        await asyncio.sleep(0.05)
        if len(race.noted("start")) > 60:
            break
    await race.until_done(40)
    rows = race.rows()
    succeeded = sorted(job for job in ids if rows[job].state == "succeeded")
    assert sorted(job for (job,) in race.query("SELECT job FROM effects")) == succeeded
    assert len(succeeded) == 60, [row for row in rows.values() if row.state != "succeeded"][:3]


async def test_cut_connections_lose_nothing(postgres_race: Race, proxy: Proxy) -> None:
    race = postgres_race
    race.start(proxy.url)
    race.start(proxy.url)
    await race.started()
    await race.enqueue("work", 300, ms=50, options=ONE_TRY)
    for number in range(5):
        await race.until_noted("end", 20 + 40 * number)
        proxy.cut()
    await race.until_done(20)
    race.judge()
    assert {row.losses for row in race.rows().values()} == {0}
    assert all(worker.alive for worker in race.workers)


async def test_a_worker_cut_off_stops_its_handlers_before_their_leases_run_out(
    postgres_race: Race, proxy: Proxy
) -> None:
    race = postgres_race
    worker = race.start(proxy.url)
    await race.started()
    ids = await race.enqueue("work", 5, ms=30_000, options=ONE_TRY)
    await race.until_noted("start", 5)
    await asyncio.sleep(2 * BEAT)  # leases that were renewed, by the clocks of two processes
    proxy.blackhole()
    expires = "SELECT min(extract(epoch FROM lease_expires_at - clock_timestamp()))::float FROM {t}jobs_live"
    runs_out = boottime() + race.query(expires)[0][0]
    stopped = await race.until_noted("stop", 5)
    late = max(entry.at for entry in stopped) - runs_out
    assert late < 0, f"a handler went on for {late:.1f} s after its lease"
    proxy.mend()
    race.query("UPDATE {t}jobs_live SET args = '{\"ms\": 10}'")
    await race.until_done(20)
    race.judge()
    assert worker.alive
    assert {race.row(job).tries for job in ids} == {1}


async def test_a_network_that_is_away_for_three_leases_is_not_the_death_of_live_workers(
    postgres_race: Race, proxy: Proxy
) -> None:
    race = postgres_race
    race.start(proxy.url)
    race.start(proxy.url)
    await race.started()
    await race.enqueue("work", 20, ms=3000, options=ONE_TRY)
    await race.until_noted("start", 20)
    proxy.blackhole()
    await asyncio.sleep(3 * LEASE)  # real: the workers are processes, and measure it by their own clocks
    proxy.mend()
    await race.until_done(30)
    race.judge()
    false = {job: row for job, row in race.rows().items() if row.losses}
    assert not false, f"{len(false)} jobs were taken from workers that lived\n{race.story()}"


async def test_a_worker_that_was_cut_off_works_again_soon(postgres_race: Race, proxy: Proxy) -> None:
    race = postgres_race
    worker = race.start(proxy.url)
    await race.started()
    await race.enqueue("work")
    await race.until_done(5)
    proxy.blackhole()
    await asyncio.sleep(LEASE)  # real: the worker is a process, and measures it by its own clock
    proxy.mend()
    await race.enqueue("work", 3)
    await race.until_done(POLL + 10)
    race.judge()
    assert worker.alive
