"""A pooler between Rowlock and PostgreSQL, in both of its modes: the real PgBouncer, and a proxy that is as strict."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from rowlock import ConfigError, Rowlock
from rowlock.core.config import Settings
from rowlock.store import Store, open_store
from rowlock.store.engine.postgres.listener import EVERY_MESSAGE
from rowlock.store.engine.store import StoreOptions
from support.races.proxy import Proxy
from support.races.rig import BEAT, Race
from support.servers.pgbouncer import pgbouncer

REAL = pytest.param("pgbouncer", marks=pytest.mark.needs("pgbouncer"))
both = pytest.mark.parametrize("program", ["proxy", REAL])
modes = pytest.mark.parametrize("mode", ["session", "transaction"])


@asynccontextmanager
async def pooler(program: str, url: str, mode: str) -> AsyncIterator[tuple[str, Proxy | None]]:
    if program == "pgbouncer":
        async with pgbouncer(url, mode, size=4 if mode == "transaction" else 100) as through:
            yield through, None
    else:
        async with Proxy(url, pooler=mode) as proxy:
            yield proxy.url, proxy


@both
@modes
async def test_everything_works_through_a_pooler(postgres_race: Race, program: str, mode: str) -> None:
    race = postgres_race
    race.query("CREATE TABLE effects (job text, attempt int)")
    async with pooler(program, race.url, mode) as (url, proxy):
        await race.store.close()
        race.store = await open_store(url, StoreOptions(pooler=mode))
        for _ in range(2):
            race.start(url, env={"ROWLOCK_POOLER": mode})
        await race.started()
        await race.enqueue("work", 200, ms=5)
        flaky = await race.enqueue("flaky", 10)
        effects = await race.enqueue("effect", 20, ms=5)
        await race.until_done(60)
        race.judge()
        assert {race.row(job).attempt for job in flaky} == {2}
        assert sorted(job for (job,) in race.query("SELECT job FROM effects")) == sorted(effects)

        (long,) = await race.enqueue("work", ms=60_000)
        await race.until_noted("start", job=long)
        async with Rowlock(settings=Settings(database=url, pooler=mode)) as app:
            assert await app.cancel(long) == "cancelling"
            await race.until_done(5 * BEAT + 20)
            assert (await app.job(long)).state == "cancelled"
            await app.retry(long)
            await race.until_noted("start", 2, job=long)
            await app.cancel(long)
            await race.until_done(5 * BEAT + 20)
        assert [await worker.stop() for worker in race.workers] == [0, 0]
        assert proxy is None or mode == "session" or proxy.swaps > 200


async def heard(store: Store, direct: str) -> str:
    """What a listener hears when somebody else wakes it. Its first words are its own, when it begins to listen."""
    messages: asyncio.Queue[str] = asyncio.Queue()
    wakeups = await store.listen(messages.put_nowait)
    try:
        async with asyncio.timeout(30):
            assert tuple([await messages.get() for _ in EVERY_MESSAGE]) == EVERY_MESSAGE, "it does not listen"
            connection = await asyncpg.connect(direct)
            await connection.execute("NOTIFY rowlock, 'schedules'")
            await connection.close()
            return await messages.get()
    finally:
        await wakeups.close()


@both
@pytest.mark.parametrize("direct", [False, True], ids=["session", "transaction-with-direct_url"])
async def test_wake_ups_come_through_a_session_pooler_and_past_a_transaction_pooler(
    postgres: str, program: str, direct: bool
) -> None:
    mode = "transaction" if direct else "session"
    async with pooler(program, postgres, mode) as (url, _):
        store = await open_store(url, StoreOptions(pooler=mode, direct_url=postgres if direct else None))
        try:
            assert await heard(store, postgres) == "schedules"
        finally:
            await store.close()


@both
async def test_a_connection_through_a_session_pooler_has_the_same_settings_as_a_direct_one(
    postgres: str, program: str
) -> None:
    names = ("jit", "lock_timeout", "idle_in_transaction_session_timeout", "application_name")
    asked = f"SELECT {', '.join(f'current_setting({name!r})' for name in names)}"
    async with pooler(program, postgres, "session") as (url, _):
        found = []
        for address in (url, postgres):
            store = await open_store(address)
            found += [tuple(row) for row in await store.fetch(asked)]
            await store.close()
    assert found == [("off", "10s", "1min", "rowlock")] * 2


@pytest.mark.needs("pgbouncer")
async def test_a_transaction_pooler_that_the_config_does_not_name_is_refused_and_its_backends_keep_their_settings(
    postgres: str,
) -> None:
    async with pgbouncer(postgres, "transaction", size=1) as url:
        with pytest.raises(ConfigError, match="ROWLOCK_POOLER=transaction"):
            await open_store(url)
        connection = await asyncpg.connect(url, statement_cache_size=0)
        try:
            assert await connection.fetchval("SHOW plan_cache_mode") == "auto"
            assert await connection.fetchval("SHOW lock_timeout") == "0"
        finally:
            await connection.close()


@both
async def test_a_transaction_pooler_gives_no_wake_ups_and_jobs_are_found_by_polling(
    postgres_race: Race, program: str
) -> None:
    race = postgres_race
    async with pooler(program, race.url, "transaction") as (url, _):
        worker = race.start(url, env={"ROWLOCK_POOLER": "transaction"})
        await race.started()
        await race.enqueue("work")
        await race.until_done(30)
        assert "workers only poll" in worker.log()
        assert await worker.stop() == 0
