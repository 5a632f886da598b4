"""A role or a database may have settings of its own, made for other programs. Rowlock does the same work under each."""

import asyncio
import os
from contextlib import AsyncExitStack, nullcontext
from pathlib import Path
from typing import Any

import psycopg
import pytest

from rowlock import ConfigError, Context, Rowlock
from rowlock.core.config import Settings
from rowlock.store import open_store
from rowlock.store.engine.store import StoreOptions
from support.each import each
from support.servers.parts import PARTS
from support.servers.pgbouncer import pgbouncer
from support.servers.postgres import PostgresDatabases, PostgresServer

NUMBER = 6  # jobs of each kind
# Each group is set at the same time. Settings with which a program may notice the others less are alone.
GROUPS: list[dict[str, str]] = [
    {
        "default_transaction_isolation": "repeatable read",
        "DateStyle": "SQL, DMY",
        "IntervalStyle": "iso_8601",
        "TimeZone": "Pacific/Kiritimati",
        "search_path": "",
        "standard_conforming_strings": "off",
        "escape_string_warning": "off",
        "bytea_output": "escape",
        "quote_all_identifiers": "on",
        "synchronous_commit": "off",
        "xmlbinary": "hex",
    },
    {
        "default_transaction_isolation": "serializable",
        "DateStyle": "German",
        "IntervalStyle": "sql_standard",
        "TimeZone": "America/St_Johns",
        "search_path": "pg_temp, nowhere",
        "extra_float_digits": "-15",
        "backslash_quote": "off",
        "client_encoding": "LATIN1",
        "transform_null_equals": "on",
        "array_nulls": "off",
        "row_security": "off",
        "client_min_messages": "debug5",
    },
    {"DateStyle": "Postgres, MDY", "default_transaction_deferrable": "on"},
    {"session_replication_role": "replica"},
    {"exit_on_error": "on"},
    {"statement_timeout": "500"},
    {"transaction_timeout": "500"},
    {"lock_timeout": "1", "idle_in_transaction_session_timeout": "1", "idle_session_timeout": "20"},
    {
        "jit_above_cost": "0",
        "plan_cache_mode": "force_generic_plan",
        "enable_indexscan": "off",
        "enable_nestloop": "off",
        "temp_file_limit": "0",
        "from_collapse_limit": "1",
        "debug_parallel_query": "on",
    },
    {"work_mem": "64kB", "geqo_threshold": "2", "default_toast_compression": "pglz"},
]
SINCE = {"transaction_timeout": 170000, "debug_parallel_query": 160000}
# Time limits for SQL of the caller, which stay as they are.
CALLERS = {"statement_timeout", "transaction_timeout"}
PATIENT = "-c lock_timeout=0 -c idle_session_timeout=0 -c idle_in_transaction_session_timeout=0"  # of the caller
# Settings of the planner, which behind a pooler are what they are without one.
PLANS = {"jit_above_cost", "plan_cache_mode", "enable_indexscan", "enable_nestloop", "work_mem", "temp_file_limit"}
PLANS |= {"default_toast_compression", "from_collapse_limit", "geqo_threshold", "debug_parallel_query"}
# Behind a transaction pooler nothing is set, because its backends serve other programs: time limits of the role hold.
LIMITS = CALLERS | {"lock_timeout", "idle_session_timeout", "idle_in_transaction_session_timeout"}
POOLED = [kept for group in GROUPS if (kept := {name: group[name] for name in group.keys() - PLANS - LIMITS})]


class World:
    """The apps of two processes on one database, and what their handlers have seen."""

    def __init__(self, url: str, direct: str) -> None:
        self.direct, self.running, self.most, self.reports = direct, 0, 0, list[dict[str, Any]]()
        settings = {
            "database": url,
            "pooler": "session" if url == direct else "transaction",
            "sources": {"api": {"concurrency": 2}},
            "worker": {"poll_interval_seconds": 0.05, "pool_size": 8},
        }
        self.apps = [self._app(Settings.model_validate(settings)) for _ in range(2)]

    def _app(self, settings: Settings) -> Rowlock:
        app = Rowlock(settings=settings)

        @app.task("call", source="api", max_attempts=1)
        async def call(n: int) -> None:
            self.running += 1
            self.most = max(self.most, self.running)
            await asyncio.sleep(0.01)
            self.running -= 1

        @app.task("book", max_attempts=1)
        async def book(ctx: Context, n: int) -> None:
            async with ctx.transaction() as tx:
                await tx.execute("UPDATE public.account SET balance = balance + 1")
                await tx.execute("INSERT INTO public.entries VALUES ($1)", n)

        @app.task("report", max_attempts=1)
        async def report(batch: dict[str, Any]) -> None:
            self.reports.append(batch)

        return app

    async def work(self, callers: bool) -> None:
        """Enqueue in every way, with two workers, and wait for the end of all; `callers` has SQL of the caller, too."""
        first, tasks = self.apps[0], self.apps[0].registry.all()
        call, book, report = tasks["call"], tasks["book"], tasks["report"]
        async with AsyncExitStack() as stack:
            for app in self.apps:
                await stack.enter_async_context(app)
            if callers:
                await book.enqueue_many([{"n": n} for n in range(NUMBER)])
            async with first.batch("all", on_end=report) as batch:
                await call.using(batch=batch).enqueue_many([{"n": n} for n in range(2 * NUMBER)])
                if callers:
                    async with first.transaction() as tx:
                        await tx.fetch("SELECT 1")
                        await book.using(batch=batch, key="one").enqueue(n=NUMBER)
            if callers:
                with psycopg.connect(self.direct, options=PATIENT) as caller:
                    twice = [call.using(key="two", connection=caller).enqueue_sync(n=n) for n in range(2)]
                assert [job.created for job in twice] == [True, False]
            for app in self.apps:
                await stack.enter_async_context(app.worker())
            async with asyncio.timeout(30):
                while not self.reports or await first.jobs(state="queued", limit=1) or await self._unfinished():
                    await asyncio.sleep(0.02)

    async def _unfinished(self) -> bool:
        app = self.apps[0]
        return bool(await app.jobs(state="running", limit=1) or await app.jobs(state="retryable", limit=1))


def check(admin: psycopg.Connection[Any], world: World, callers: bool) -> None:
    """Limits, batches and transactions are exact."""
    booked, called = (NUMBER + 1, 2 * NUMBER + 1) if callers else (0, 2 * NUMBER)
    jobs = "SELECT task, state, count(*), max(attempt - releases - losses) FROM rowlock.jobs GROUP BY 1, 2 ORDER BY 1"
    ended = [("book", "succeeded", booked, 1)] if booked else []
    ended += [("call", "succeeded", called, 1), ("report", "succeeded", 1, 1)]
    assert (found := admin.execute(jobs).fetchall()) == ended, found
    entries = [n for (n,) in admin.execute("SELECT n FROM public.entries ORDER BY n").fetchall()]
    assert entries == list(range(booked)), "a transaction did not commit with its success"
    assert admin.execute("SELECT balance FROM public.account").fetchall() == [(booked,)]
    assert world.most <= 2, f"the source's limit of 2 was exceeded: {world.most}"
    (counts,) = world.reports
    assert counts["succeeded"] == counts["total"] == 2 * NUMBER + callers, f"the batch ended early: {counts}"


def prepare(admin: psycopg.Connection[Any], group: dict[str, str]) -> None:
    database = admin.info.dbname
    admin.execute(f'ALTER DATABASE "{database}" RESET ALL')
    admin.execute("DELETE FROM rowlock.jobs_live; DELETE FROM rowlock.jobs_finished; DELETE FROM rowlock.job_keys")
    admin.execute("DROP TABLE IF EXISTS public.entries, public.account")
    admin.execute("CREATE TABLE public.entries (n int); CREATE TABLE public.account (balance int)")
    admin.execute("INSERT INTO public.account VALUES (0)")
    for name, value in group.items():
        shown = "''" if value == "" else value if name in ("DateStyle", "search_path") else f"'{value}'"
        admin.execute(f'ALTER DATABASE "{database}" SET {name} = {shown}')


async def failure(url: str, admin: psycopg.Connection[Any], group: dict[str, str], pooled: bool) -> str:
    """What goes wrong under these settings. A pooler is started anew, so that its connections are as young."""
    prepare(admin, group)
    async with pgbouncer(url, "transaction", size=6) if pooled else nullcontext(url) as through:
        world, callers = World(through, url), not CALLERS & group.keys()
        try:
            await world.work(callers)
            check(admin, world, callers)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return ""


async def failures(url: str, groups: list[dict[str, str]] = GROUPS, *, pooled: bool = False) -> dict[str, str]:
    """What goes wrong in the first group that fails, by setting: they are tried one by one."""
    with psycopg.connect(url, autocommit=True) as admin:
        for settings in groups:
            group = {name: settings[name] for name in settings if admin.info.server_version >= SINCE.get(name, 0)}
            if not group or not (wrong := await failure(url, admin, group, pooled)):
                continue
            if len(group) == 1:
                return {str(group): wrong}
            alone = {name: await failure(url, admin, {name: value}, pooled) for name, value in group.items()}
            return {f"{name} = {group[name]!r}": text for name, text in alone.items() if text} or {str(group): wrong}
    return {}


on_postgres = pytest.mark.parametrize("engine", ["postgres"])
enough_time_to_name_the_setting = pytest.mark.timeout(900)


@enough_time_to_name_the_setting
@on_postgres
async def test_limits_batches_and_transactions_are_exact_under_hostile_settings(database: str) -> None:
    try:
        assert not (found := await failures(database)), found
    finally:
        reset(database)


@enough_time_to_name_the_setting
@pytest.mark.needs("postgres")
async def test_limits_batches_and_transactions_are_exact_under_hostile_settings_of_an_older_server() -> None:
    program = PARTS["postgres"].find()
    assert program is not None
    with PostgresServer(programs=Path(program).parent, fsync="off") as server:
        url = server.create_database("jobs")
        await (await open_store(url, StoreOptions(migrate=True))).close()
        assert not (found := await failures(url)), found


@enough_time_to_name_the_setting
@on_postgres
@pytest.mark.needs("pgbouncer")
async def test_limits_batches_and_transactions_are_exact_under_hostile_settings_behind_a_transaction_pooler(
    database: str,
) -> None:
    try:
        assert not (found := await failures(database, POOLED, pooled=True)), found
    finally:
        reset(database)


def reset(url: str) -> None:
    """Databases are used again by later tests."""
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f'ALTER DATABASE "{admin.info.dbname}" RESET ALL')
        admin.execute("DROP TABLE IF EXISTS public.entries, public.account")


SHOWN = "SELECT current_setting('synchronous_commit'), current_setting('transaction_isolation')"


@on_postgres
@each("given, used", [("off", "on"), ("local", "local"), ("remote_apply", "remote_apply")])
async def test_a_role_that_does_not_wait_for_the_disk_waits_for_it_here_and_one_that_says_which_standbys_is_heard(
    database: str, given: str, used: str
) -> None:
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(f'ALTER DATABASE "{admin.info.dbname}" SET synchronous_commit = {given}')
    try:
        async with Rowlock(database) as app, app.transaction() as tx:
            assert [tuple(row) for row in await tx.fetch(SHOWN)] == [(used, "read committed")]
    finally:
        reset(database)


@on_postgres
@pytest.mark.needs("pgbouncer")
@each(
    "name, value",
    [("synchronous_commit", "off"), ("default_transaction_isolation", "serializable")],
)
async def test_every_transaction_behind_a_transaction_pooler_has_our_level_and_waits_for_the_disk(
    database: str, name: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(f'ALTER DATABASE "{admin.info.dbname}" SET {name} = {value}')
    try:
        async with pgbouncer(database, "transaction") as through:
            settings = Settings(database=through, pooler="transaction")
            async with Rowlock(settings=settings) as app:
                shown = await app.fetch(SHOWN)  # as each operation, in a transaction of the store
                async with app.transaction() as tx:
                    shown += await tx.fetch(SHOWN)
        assert [tuple(row) for row in shown] == [("on", "read committed")] * 2
        assert f"the role's {name} is not the server's default" in caplog.text
    finally:
        reset(database)


@on_postgres
async def test_time_limits_of_a_role_do_not_end_our_own_statements(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as admin:
        for name in sorted(LIMITS):
            if admin.info.server_version >= SINCE.get(name, 0):
                admin.execute(f'ALTER DATABASE "{admin.info.dbname}" SET {name} = 100')
    try:
        store = await open_store(database)
        await store.execute("SELECT pg_sleep(0.3)")
        shown = await store.fetch("SELECT current_setting('lock_timeout'), current_setting('idle_session_timeout')")
        assert [tuple(row) for row in shown] == [("10s", "0")]
        await store.close()
    finally:
        reset(database)


@each("encoding", ["LATIN1", "SQL_ASCII"])
@each("migrate", [False, True])
async def test_a_database_whose_encoding_is_not_utf8_is_refused_with_the_reason(
    postgres_server: PostgresDatabases, encoding: str, migrate: bool
) -> None:
    name = f"rowlock_{encoding.lower()}_{os.getpid()}_{migrate}".lower()
    with psycopg.connect(postgres_server.url, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    try:
        with pytest.raises(ConfigError, match=f"has the encoding {encoding}, but Rowlock needs UTF8"):
            await open_store(postgres_server.database_url(name), StoreOptions(migrate=migrate))
    finally:
        postgres_server.drop_database(name)
