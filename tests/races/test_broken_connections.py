"""PostgreSQL ends a connection, goes away or is silent: every operation says what happened, and nothing of secrets."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from rowlock import ConfigError, Rowlock, StoreError, StoreUnavailable
from rowlock.core.job import NewJob
from rowlock.store import Store, open_store
from rowlock.store.engine.ids import new_id
from rowlock.store.engine.postgres.listener import EVERY_MESSAGE, PostgresListener
from rowlock.store.engine.store import StoreOptions, redact
from rowlock.store.jobs import cancel as cancels
from rowlock.store.jobs import enqueue as enqueue_jobs
from rowlock.store.jobs import settle
from rowlock.store.read import job_rows
from support.each import each
from support.races.proxy import Proxy
from support.servers.postgres import PostgresServer

Do = Callable[[Store], Awaitable[Any]]
ENDED = "ended the connection: terminating connection due to administrator command"
LOCKED = "LOCK TABLE rowlock.jobs_live, rowlock.jobs_finished, rowlock.queues IN ACCESS EXCLUSIVE MODE"
PARTITIONS = """SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = 'rowlock.jobs_finished'::regclass AND c.relname <> 'jobs_finished_default'"""
WAITING = "datname = current_database() AND wait_event_type = 'Lock'"


async def enqueue(store: Store) -> None:
    await store.run(enqueue_jobs.enqueue([(new_id(), "{}")], NewJob(task="t")))


async def cancel(store: Store) -> None:
    await store.run(cancels.cancel([new_id()], settle.Keep()))


async def read(store: Store) -> None:
    await store.run(job_rows.get(new_id()))


async def fetch(store: Store) -> None:
    await store.fetch("SELECT count(*) FROM rowlock.jobs_live")


async def execute(store: Store) -> None:
    await store.execute("ANALYZE rowlock.jobs_live")


async def enqueue_in_transaction(store: Store) -> None:
    async with store.transaction() as session:
        await session.run(enqueue_jobs.enqueue([(new_id(), "{}")], NewJob(task="t")))


EVERY: list[Do] = [enqueue, cancel, read, fetch, execute, enqueue_in_transaction]
every = each("do", EVERY, ids=lambda do: do.__name__)


@pytest.fixture(params=["postgres"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def store(database: str) -> AsyncIterator[Store]:
    """One that tries each operation once, so that a second try hides nothing."""
    opened = await open_store(database, StoreOptions(repeats=1))
    yield opened
    await opened.close()


@pytest.fixture
def admin(database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


async def failure(work: Awaitable[Any]) -> str:
    with pytest.raises(StoreUnavailable) as raised:
        await work
    return str(raised.value)


@every
async def test_an_operation_whose_backend_is_terminated_tells_the_reason_of_the_server(
    store: Store, admin: psycopg.Connection[Any], database: str, do: Do
) -> None:
    with psycopg.connect(database) as stranger:
        stranger.execute(LOCKED)
        waiting = asyncio.create_task(do(store))
        ended: Any = None
        async with asyncio.timeout(20):
            while ended is None:
                await asyncio.sleep(0.01)
                found = admin.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {WAITING}")
                ended = found.fetchone()
        text = await failure(waiting)
    assert ENDED in text
    assert urlsplit(database).netloc.rpartition("@")[2] in text


@every
async def test_a_connection_that_the_server_has_ended_between_two_statements_is_not_used_again(
    database: str, do: Do
) -> None:
    async with Proxy(database) as proxy:
        store = await open_store(proxy.url, StoreOptions(repeats=1))
        try:
            await do(store)
            before = set(proxy._links)
            proxy.say_goodbye("terminating connection due to administrator command")
            await asyncio.sleep(0.1)  # the word is in the socket already: one turn of the loop reads it
            await do(store)
            assert proxy._links - before, "it was not another connection"
        finally:
            await store.close()


async def test_a_transaction_whose_backend_is_terminated_between_two_statements_tells_the_reason(
    store: Store, admin: psycopg.Connection[Any]
) -> None:
    async def work() -> None:
        async with store.transaction() as session:
            ((pid,),) = await session.fetch("SELECT pg_backend_pid()")
            admin.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
            await session.fetch("SELECT 1")

    assert ENDED in await failure(work())


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_every_operation_on_a_server_that_stops_says_that_it_stops_or_accepts_no_connections(mode: str) -> None:
    with PostgresServer(fsync="off") as server:
        url = server.url.replace("postgres@", "postgres:secret@")
        store = await open_store(url, StoreOptions(migrate=True, repeats=1))
        for do in EVERY:
            await do(store)
        server.stop(mode)
        first = [await failure(do(store)) for do in EVERY]
        later = [await failure(do(store)) for do in EVERY]
        await store.close()
        place = f"127.0.0.1:{server.port}"
    assert any(f"the server at {place} ended the connection: terminating connection" in text for text in first)
    assert {text.partition(": ")[2] for text in later} == {
        f"no server accepts connections at {place}: connection refused"
    }
    for text in first:
        assert "terminating connection" in text or "connection refused" in text
        assert "secret" not in text


async def test_a_server_that_starts_up_is_named_with_its_own_words(database: str) -> None:
    async with Proxy(database) as proxy:
        proxy.refuse = ("57P03", "the database system is starting up")
        with pytest.raises(StoreUnavailable, match="does not accept connections: the database system is starting up"):
            await open_store(proxy.url, StoreOptions(repeats=1))


@every
async def test_an_operation_that_gets_no_answer_says_so(database: str, do: Do) -> None:
    async with Proxy(database) as proxy:
        store = await open_store(proxy.url, StoreOptions(repeats=1, command_timeout=0.3))
        try:
            await do(store)
            proxy.blackhole()
            assert "did not answer in time" in await failure(do(store))
            proxy.mend()
        finally:
            await store.close()


@each("do", [enqueue, cancel, read, fetch, execute], ids=lambda do: do.__name__)
async def test_a_cancelled_operation_does_not_wait_for_a_silent_server(database: str, do: Do) -> None:
    async with Proxy(database) as proxy:
        store = await open_store(proxy.url, StoreOptions(repeats=1))
        try:
            await do(store)
            proxy.blackhole()
            began = time.monotonic()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await do(store)
            assert time.monotonic() - began < 10, "it waited for its command timeout of 30 s"
            proxy.mend()
        finally:
            await store.close()


async def test_an_enqueue_that_is_cancelled_at_any_moment_leaves_no_error_to_asyncio(database: str) -> None:
    left: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: left.append(str(about)))
    for turns in range(120):  # of the event loop, from the opening of its connection to the end of its statement
        store = await open_store(database, StoreOptions(repeats=1))
        enqueuing = asyncio.create_task(enqueue(store))
        for _ in range(turns):
            await asyncio.sleep(0)
        enqueuing.cancel()
        await asyncio.wait([enqueuing])
        await store.close()
    gc.collect()
    assert left == []


@each("statement", [b"server_encoding", b"rowlock.migrations", b"ATTACH PARTITION"])
async def test_a_worker_whose_connection_breaks_while_it_starts_tries_again(database: str, statement: bytes) -> None:
    with psycopg.connect(database, autocommit=True) as admin:  # so that the start has a partition to create
        for (name,) in admin.execute(PARTITIONS).fetchall():
            admin.execute(f"DROP TABLE rowlock.{name}")
    async with Proxy(database) as proxy:
        app = Rowlock(proxy.url)

        @app.task
        async def work() -> int:
            return 7

        broken = proxy.drop_reply(statement)
        async with asyncio.timeout(30), app, app.worker():
            assert broken.done.is_set(), "its connection did not break"
            assert await (await work.enqueue()).wait(timeout=20) == 7


async def test_a_connection_whose_cancelled_begin_takes_effect_later_is_not_handed_on(database: str) -> None:
    async def empty() -> None:
        async with store.transaction():
            pass

    async with Proxy(database) as proxy:
        store = await open_store(proxy.url, StoreOptions(session_connections=1))
        try:
            begin = proxy.drop_reply(b"BEGIN", late=True)
            beginning = asyncio.create_task(empty())
            await asyncio.wait_for(begin.done.wait(), 30)
            beginning.cancel()
            await asyncio.wait([beginning])
            assert beginning.cancelled()
            begin.let_go.set()
            await asyncio.sleep(0.1)  # the reply is in the socket: one turn of the loop reads it
            job_id = new_id()
            async with store.transaction() as session:
                await session.run(enqueue_jobs.enqueue([(job_id, "{}")], NewJob(task="t")))
            assert await store.run(job_rows.get(job_id)) is not None, "what was committed is not there"
        finally:
            await store.close()


async def test_a_statement_with_too_few_parameters_is_a_mistake_and_no_outage(store: Store) -> None:
    with pytest.raises(StoreError, match="expects 1 argument") as raised:
        await store.fetch("SELECT $1::int")
    assert not isinstance(raised.value, StoreUnavailable), "it would be tried again for ever"


@each(
    "url, shown",
    [
        ("postgresql://ana:sec/ret@db:5432/app", "postgresql://ana@db:5432/app"),
        ("postgresql://ana:sec#ret@db:5432/app", "postgresql://ana@db:5432/app"),
        ("postgresql://ana:secret@db:port/app", "postgresql://ana@db:port/app"),
        ("postgresql://ana:secret@[::1/app", "postgresql://ana@[::1/app"),
    ],
)
async def test_a_url_that_cannot_be_read_is_told_without_its_password(url: str, shown: str) -> None:
    with pytest.raises(ConfigError) as raised:
        await open_store(url)
    assert shown in str(raised.value)
    assert "sec" not in str(raised.value)
    assert raised.value.__suppress_context__, "a traceback would show a piece of the password"


def test_a_password_among_the_parameters_of_a_url_is_hidden() -> None:
    shown = redact("postgresql://db/app?user=ana&password=s@cret&sslmode=require")
    assert shown == "postgresql://db/app?user=ana&password=***&sslmode=require"


WRITES: list[Do] = [enqueue, cancel, enqueue_in_transaction]


@each("do", WRITES, ids=lambda do: do.__name__)
async def test_connections_to_a_server_that_became_read_only_are_replaced(database: str, do: Do) -> None:
    """After a failover an open connection stays with the old server, which answers; a new one leads to the new one."""
    store: Any = await open_store(database, StoreOptions(connections=1, session_connections=1))
    try:
        await do(store)
        for connections in store._connections.values():
            async with connections.one() as connection:
                await connection.execute("SET default_transaction_read_only = on")
        if do is enqueue_in_transaction:  # a user's transaction is not repeated, but the next one works
            with pytest.raises(StoreUnavailable, match="read-only"):
                await do(store)
        await do(store)
    finally:
        await store.close()


@pytest.fixture
def standby(database: str) -> Iterator[PostgresServer]:
    """A server with a database of the same name, which takes no writes."""
    name = urlsplit(database).path[1:]
    with PostgresServer(fsync="off") as server:
        with psycopg.connect(server.create_database(name), autocommit=True) as connection:
            connection.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
        yield server


@each("form", ["{user}@{a}:{b},{c}:{d}{path}", "{user}@{path}?host={a},{c}&port={b},{d}"])
async def test_of_several_hosts_the_one_that_takes_writes_is_used(
    database: str, standby: PostgresServer, form: str
) -> None:
    """After a failover the first host of the URL may have become a standby."""
    there = urlsplit(database)
    servers = {"a": "127.0.0.1", "b": standby.port, "c": there.hostname, "d": there.port}
    url = "postgresql://" + form.format(user=there.username, path=there.path, **servers)
    store = await open_store(url, StoreOptions(repeats=1))
    try:
        for do in WRITES:
            await do(store)
    finally:
        await store.close()


async def test_a_listener_leaves_a_server_that_is_read_only(
    database: str, admin: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PostgresListener, "CHECK_SECONDS", 0.05)
    name, heard = urlsplit(database).path[1:], asyncio.Queue[str]()
    admin.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')  # for later connections
    store = await open_store(database)
    wakeups = await store.listen(heard.put_nowait)
    try:
        async with asyncio.timeout(60):
            for message in EVERY_MESSAGE * 2:  # once for each connection that it opens
                assert await heard.get() == message
    finally:
        admin.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
        await wakeups.close()
        await store.close()
