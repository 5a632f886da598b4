"""The caller's own connection: the job is part of the caller's transaction, whatever the library.

PostgreSQL only, by nature. Every kind of connection passes the same tests. These have no event loop of their
own: async kinds bring one, sync kinds run without.
"""

import asyncio
import json
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import apsw
import asyncpg
import django.db
import django.db.transaction
import psycopg
import pytest
import sqlalchemy
from django.conf import settings as django_settings
from django.core.exceptions import SynchronousOnlyOperation
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from rowlock.core.clock import FakeClock
from rowlock.core.errors import InvalidArguments, SchemaError
from rowlock.core.job import NewJob
from rowlock.core.policy import fixed
from rowlock.store import claim, jobs, reads
from rowlock.store.adding import NewRow
from rowlock.store.engines.dialects import POSTGRES
from rowlock.store.engines.engine import StoreOptions
from rowlock.store.engines.foreign import _as_text, is_async, run_on, run_on_sync
from rowlock.store.engines.opening import open_store
from rowlock.store.engines.operation import Call, Operation, Steps, drive, operation
from rowlock.store.engines.queries import Query, load
from support.server import PostgresDatabases

TRICKY = {"text": "100% of :all 'single' \"double\" \\ $1 %s %(a)s ::json {} ü 時", "list": [1, None, True]}


@dataclass
class Caller:
    """Somebody else's open transaction. In async kinds the three functions are awaited."""

    connection: Any
    execute: Callable[[str], Any]
    commit: Callable[[], Any]
    rollback: Callable[[], Any]


# --- the kinds of connection


async def asyncpg_caller(connection: Any) -> Caller:
    transaction = connection.transaction()
    await transaction.start()
    return Caller(connection, connection.execute, transaction.commit, transaction.rollback)


@asynccontextmanager
async def asyncpg_connection(url: str) -> AsyncIterator[Caller]:
    connection = await asyncpg.connect(url)
    try:
        yield await asyncpg_caller(connection)
    finally:
        await connection.close()


@asynccontextmanager
async def asyncpg_pool(url: str) -> AsyncIterator[Caller]:
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool, pool.acquire() as connection:
        yield await asyncpg_caller(connection)


@asynccontextmanager
async def asyncpg_with_codecs(url: str) -> AsyncIterator[Caller]:
    """Set up as applications do it: JSON to and from Python, ids as objects only."""
    async with asyncpg_connection(url) as caller:
        known = {"json": (json.dumps, json.loads), "uuid": (lambda value: value.hex, uuid.UUID)}
        for name, (encoder, decoder) in known.items():
            await caller.connection.set_type_codec(name, schema="pg_catalog", encoder=encoder, decoder=decoder)
        yield caller


@asynccontextmanager
async def psycopg_async(url: str) -> AsyncIterator[Caller]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield Caller(connection, connection.execute, connection.commit, connection.rollback)


@contextmanager
def psycopg_sync(url: str, **options: Any) -> Iterator[Caller]:
    with psycopg.connect(url, **options) as connection:
        yield Caller(connection, connection.execute, connection.commit, connection.rollback)


def psycopg_client_binding(url: str) -> Any:
    """Set up as behind an old pooler: the client writes the values into the text; rows are dicts."""
    return psycopg_sync(url, row_factory=dict_row, cursor_factory=psycopg.ClientCursor, prepare_threshold=None)


def sqlalchemy_url(url: str, driver: str) -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://", 1)


def sqlalchemy_caller(opened: Any) -> Caller:
    def execute(sql: str) -> Any:
        return opened.execute(sqlalchemy.text(sql))

    return Caller(opened, execute, opened.commit, opened.rollback)


def engine_of(url: str) -> sqlalchemy.Engine:
    return sqlalchemy.create_engine(sqlalchemy_url(url, "psycopg"), poolclass=NullPool)


@contextmanager
def sqlalchemy_connection(url: str) -> Iterator[Caller]:
    with engine_of(url).connect() as connection:
        yield sqlalchemy_caller(connection)


@contextmanager
def sqlalchemy_session(url: str) -> Iterator[Caller]:
    with Session(engine_of(url)) as session:
        yield sqlalchemy_caller(session)


@contextmanager
def sqlalchemy_scoped_session(url: str) -> Iterator[Caller]:
    session = scoped_session(sessionmaker(engine_of(url)))
    try:
        yield sqlalchemy_caller(session)
    finally:
        session.remove()


def async_session(driver: str) -> Callable[[str], Any]:
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Caller]:
        engine = create_async_engine(sqlalchemy_url(url, driver), poolclass=NullPool)
        async with AsyncSession(engine) as session:
            yield sqlalchemy_caller(session)

    return opened


@asynccontextmanager
async def async_scoped(url: str) -> AsyncIterator[Caller]:
    engine = create_async_engine(sqlalchemy_url(url, "asyncpg"), poolclass=NullPool)
    session = async_scoped_session(async_sessionmaker(engine), scopefunc=asyncio.current_task)
    try:
        yield sqlalchemy_caller(session)
    finally:
        await session.remove()


@asynccontextmanager
async def async_connection(url: str) -> AsyncIterator[Caller]:
    engine = create_async_engine(sqlalchemy_url(url, "asyncpg"), poolclass=NullPool)
    async with engine.connect() as connection:
        yield sqlalchemy_caller(connection)


@contextmanager
def django_default(database: dict[str, Any]) -> Iterator[None]:
    """Give Django, which has one set of databases for a process, this one as its default."""
    if not django_settings.configured:
        django_settings.configure(DATABASES={"default": {}}, USE_TZ=True)
        django.setup()
    handler = django.db.connections
    handler.settings["default"] = handler.configure_settings({"default": database})["default"]
    try:
        yield
    finally:
        handler["default"].close()
        del handler["default"]


def django_postgres(url: str, **options: Any) -> dict[str, Any]:
    parts = urlsplit(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.lstrip("/"),
        "USER": parts.username,
        "PASSWORD": parts.password or "",
        "HOST": parts.hostname,
        "PORT": parts.port,
        "OPTIONS": options,
    }


@contextmanager
def django_connection(url: str, **options: Any) -> Iterator[Caller]:
    with django_default(django_postgres(url, **options)):
        connection, atomic = django.db.connection, django.db.transaction.atomic()

        def execute(sql: str) -> None:
            with connection.cursor() as cursor:
                cursor.execute(sql)

        def rollback() -> None:
            django.db.transaction.set_rollback(True)
            atomic.__exit__(None, None, None)

        atomic.__enter__()
        yield Caller(connection, execute, lambda: atomic.__exit__(None, None, None), rollback)


@contextmanager
def django_wrapper(url: str) -> Iterator[Caller]:
    with django_connection(url, server_side_binding=True) as caller:
        caller.connection = django.db.connections["default"]
        yield caller


KINDS: dict[str, Callable[[str], Any]] = {
    "asyncpg": asyncpg_connection,
    "asyncpg-pool": asyncpg_pool,
    "asyncpg-codecs": asyncpg_with_codecs,
    "psycopg-async": psycopg_async,
    "psycopg": psycopg_sync,
    "psycopg-client-binding": psycopg_client_binding,
    "sqlalchemy-connection": sqlalchemy_connection,
    "sqlalchemy-session": sqlalchemy_session,
    "sqlalchemy-scoped-session": sqlalchemy_scoped_session,
    "sqlalchemy-async-session-asyncpg": async_session("asyncpg"),
    "sqlalchemy-async-session-psycopg": async_session("psycopg"),
    "sqlalchemy-async-scoped-session": async_scoped,
    "sqlalchemy-async-connection": async_connection,
    "django": django_connection,
    "django-wrapper-server-binding": django_wrapper,
}

Step = str | Operation[Any] | Callable[[], Any]  # the caller's SQL, an operation, or a look from outside


def use(opened: Any, *steps: Step, commit: bool = True, clock: FakeClock | None = None) -> list[Any]:
    """Take the steps in one transaction of `opened`; answers the operations' answers."""
    if hasattr(opened, "__aenter__"):
        return asyncio.run(use_async(opened, steps, commit, clock))
    with opened as caller:
        answers = []
        for step in steps:
            if isinstance(step, Operation):
                answers.append(run_on_sync(caller.connection, step, clock))
            else:
                caller.execute(step) if isinstance(step, str) else step()
        (caller.commit if commit else caller.rollback)()
        return answers


async def use_async(opened: Any, steps: tuple[Step, ...], commit: bool, clock: FakeClock | None) -> list[Any]:
    async with opened as caller:
        answers = []
        for step in steps:
            if isinstance(step, Operation):
                answers.append(await run_on(caller.connection, step, clock))
            elif isinstance(step, str):
                await caller.execute(step)
            else:
                step()
        await (caller.commit if commit else caller.rollback)()
        return answers


# --- fixtures


async def migrate(url: str) -> None:
    store = await open_store(url, StoreOptions(migrate=True))
    await store.close()


@pytest.fixture(scope="module")
def url(postgres_server: PostgresDatabases) -> Iterator[str]:
    """One migrated database for this file; each test has its own task name."""
    name = f"rowlock_foreign_{uuid.uuid4().hex[:12]}"
    address = postgres_server.create_database(name)
    asyncio.run(migrate(address))
    with psycopg.connect(address) as connection:
        connection.execute("CREATE TABLE orders (task text)")
    yield address
    postgres_server.drop_database(name)


@pytest.fixture(scope="module")
def outside(url: str) -> Iterator[psycopg.Connection[Any]]:
    """Another connection, which sees only what is committed."""
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def task() -> str:
    return f"task-{uuid.uuid4().hex}"


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Callable[[str], Any]:
    return KINDS[request.param]


def new_id() -> str:
    return str(uuid.uuid4())


def ids_of(outside: psycopg.Connection[Any], task: str) -> set[str]:
    rows = outside.execute("SELECT id FROM rowlock.jobs WHERE task = %s", [task]).fetchall()
    return {str(row[0]) for row in rows}


def orders_of(outside: psycopg.Connection[Any], task: str) -> int:
    return len(outside.execute("SELECT 1 FROM orders WHERE task = %s", [task]).fetchall())


# --- what every kind does


def test_the_job_commits_with_the_callers_rows(kind, url, outside, task) -> None:
    plain, chosen, seen = new_id(), new_id(), []
    answers = use(
        kind(url),
        f"INSERT INTO orders VALUES ('{task}')",
        jobs.enqueue([(plain, "{}")], NewJob(task)),
        jobs.enqueue_once(chosen, "{}", NewJob(task)),
        lambda: seen.append(ids_of(outside, task)),
    )
    assert answers == [None, True]
    assert seen == [set()], "an operation must not commit"
    assert ids_of(outside, task) == {plain, chosen}
    assert orders_of(outside, task) == 1


def test_a_rollback_leaves_neither_job_nor_reserved_id(kind, url, outside, task) -> None:
    chosen = new_id()
    both = [jobs.enqueue([(new_id(), "{}")], NewJob(task)), jobs.enqueue_once(chosen, "{}", NewJob(task))]
    assert use(kind(url), f"INSERT INTO orders VALUES ('{task}')", *both, commit=False) == [None, True]
    assert ids_of(outside, task) == set()
    assert orders_of(outside, task) == 0
    again = jobs.enqueue_once(chosen, "{}", NewJob(task))
    assert use(kind(url), again, jobs.enqueue_once(chosen, "{}", NewJob(task))) == [True, False]
    assert ids_of(outside, task) == {chosen}


def test_a_bulk_of_100_keeps_ids_and_arguments(kind, url, outside, task) -> None:
    rows = [(new_id(), json.dumps({"n": n, **TRICKY})) for n in range(100)]
    use(kind(url), jobs.enqueue(rows, NewJob(task)))
    stored = outside.execute("SELECT id, args FROM rowlock.jobs WHERE task = %s", [task]).fetchall()
    assert {str(row[0]): row[1] for row in stored} == {job_id: json.loads(args) for job_id, args in rows}


def test_every_option_is_stored_and_now_is_the_clocks(kind, url, outside, task) -> None:
    clock = FakeClock()
    later = datetime(2026, 3, 1, tzinfo=UTC)
    new = NewJob(
        task,
        queue="links",
        priority=-7,
        owner="ana",
        source="domain:example.com",
        tags=("a", "b%"),
        max_attempts=2,
        backoff=fixed(minutes=5).to_json(),
        timeout_seconds=30,
        run_after=later,
        expires_at=later + timedelta(hours=1),
        on_success='{"task": "next"}',
        on_dead='{"task": "alarm"}',
        on_lost="dead",
        keep_seconds=60,
    )
    use(kind(url), jobs.enqueue([(new_id(), "{}")], new), clock=clock)
    row = outside.execute(
        "SELECT queue, priority, owner, source, tags, max_attempts, backoff, timeout_seconds, run_after,"
        " expires_at, on_success, on_dead, on_lost, keep_seconds, created_at, ready"
        " FROM rowlock.jobs_live WHERE task = %s",
        [task],
    ).fetchone()
    assert row == (
        *("links", -7, "ana", "domain:example.com", ["a", "b%"], 2, json.loads(new.backoff or ""), 30),
        *(
            later,
            later + timedelta(hours=1),
            {"task": "next"},
            {"task": "alarm"},
            "dead",
            60,
            clock.now(),
            False,
        ),
    )


def test_a_delay_counts_from_the_databases_clock(kind, url, outside, task) -> None:
    use(kind(url), jobs.enqueue([(new_id(), "{}")], NewJob(task, delay=90)))
    row = outside.execute(
        "SELECT run_after - created_at, now() - created_at, ready FROM rowlock.jobs_live WHERE task = %s",
        [task],
    ).fetchone()
    assert row is not None
    assert row[0] == timedelta(seconds=90)
    assert abs(row[1]) < timedelta(minutes=1)
    assert row[2] is False


def test_a_repeatable_read_transaction_may_enqueue(kind, url, outside, task) -> None:
    chosen = new_id()
    answers = use(
        kind(url),
        "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
        "SELECT count(*) FROM orders",
        jobs.enqueue_once(chosen, "{}", NewJob(task)),
        jobs.enqueue_once(chosen, "{}", NewJob(task)),
    )
    assert answers == [True, False]
    assert ids_of(outside, task) == {chosen}


def test_rows_come_back_as_from_our_own_connections(kind, url, outside, task) -> None:
    job_id, token = new_id(), new_id()
    claiming = claim.claim("worker-1", token, [claim.Lane("default", task)], 10, 60)
    new = NewJob(task, backoff=fixed(minutes=5).to_json())
    _, claimed = use(kind(url), jobs.enqueue([(job_id, json.dumps(TRICKY))], new), claiming)
    assert [(job.id, job.token, job.attempt) for job in claimed] == [(job_id, token, 1)]
    assert json.loads(claimed[0].args) == TRICKY
    assert json.loads(claimed[0].backoff) == json.loads(new.backoff or "")


def test_the_job_that_has_the_id_already_can_be_read(kind, url, outside, task) -> None:
    chosen = new_id()
    new = NewJob(task, tags=("a", "b"), backoff=fixed(minutes=5).to_json())
    _, met = use(kind(url), jobs.enqueue_once(chosen, json.dumps(TRICKY), new), reads.get(chosen))
    assert (met.id, met.args, met.tags, met.state) == (chosen, TRICKY, ("a", "b"), "queued")
    assert abs(datetime.now(UTC) - met.created_at) < timedelta(minutes=1)


def test_percent_signs_and_repeated_parameters_survive(kind, url, monkeypatch) -> None:
    odd = Query("odd", "SELECT $2::text || '%' || $1::text || '%s' || $2::text", (("a", None), ("b", None)))
    bare = Query("bare", "SELECT '100%'", ())
    monkeypatch.setitem(load("postgres"), "odd", odd)
    monkeypatch.setitem(load("postgres"), "bare", bare)

    @operation()
    def both() -> Steps[list[Any]]:
        first = yield Call("odd", a="A%", b="B")
        second = yield Call("bare")
        return [*first, *second]

    assert use(kind(url), both()) == [[("B%A%%sB",), ("100%",)]]


def test_a_missing_schema_says_what_to_run(kind, postgres_url) -> None:
    with pytest.raises(SchemaError, match="rowlock migrate") as failure:
        use(kind(postgres_url), jobs.enqueue([(new_id(), "{}")], NewJob("any")))
    assert "\n" not in str(failure.value)


# --- no transaction to join


@operation()
def half(job_id: str) -> Steps[None]:
    """An operation that dies between its two statements."""
    yield Call("take_id", key=job_id, job_id=job_id)
    raise RuntimeError("half way")


async def alone_on_asyncpg(url: str, op: Operation[Any]) -> Any:
    connection = await asyncpg.connect(url)
    try:
        return await run_on(connection, op)
    finally:
        await connection.close()


async def alone_on_psycopg_async(url: str, op: Operation[Any]) -> Any:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        return await run_on(connection, op)


def alone_on_psycopg(url: str, op: Operation[Any]) -> Any:
    with psycopg.connect(url, autocommit=True) as connection:
        return run_on_sync(connection, op)


def alone_on_django(url: str, op: Operation[Any]) -> Any:
    with django_default(django_postgres(url)):
        return run_on_sync(django.db.connection, op)


ALONE = {
    "asyncpg": lambda url, op: asyncio.run(alone_on_asyncpg(url, op)),
    "psycopg-async": lambda url, op: asyncio.run(alone_on_psycopg_async(url, op)),
    "psycopg": alone_on_psycopg,
    "django": alone_on_django,
}


@pytest.mark.parametrize("alone", ALONE.values(), ids=ALONE)
def test_in_autocommit_an_operation_is_whole_or_nothing(alone, url, outside, task) -> None:
    chosen, single = new_id(), new_id()
    with pytest.raises(RuntimeError, match="half way"):
        alone(url, half(chosen))
    assert alone(url, jobs.enqueue_once(chosen, "{}", NewJob(task))) is True
    alone(url, jobs.enqueue([(single, "{}")], NewJob(task)))
    assert ids_of(outside, task) == {chosen, single}


def test_psycopgs_own_block_on_an_autocommit_connection_is_joined(url, outside, task) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        with connection.transaction():
            run_on_sync(connection, jobs.enqueue_once(new_id(), "{}", NewJob(task)))
            raise psycopg.Rollback
    assert ids_of(outside, task) == set()


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_sqlalchemys_autocommit_is_refused(driver, url, outside, task) -> None:
    async def refused() -> None:
        engine = create_async_engine(sqlalchemy_url(url, driver), poolclass=NullPool, isolation_level="AUTOCOMMIT")
        async with engine.connect() as connection:
            with pytest.raises(InvalidArguments, match="AUTOCOMMIT"):
                await run_on(connection, jobs.enqueue([(new_id(), "{}")], NewJob(task)))

    asyncio.run(refused())
    assert ids_of(outside, task) == set()


# --- sync and async


async def test_a_sync_connection_may_be_given_to_async_code(url, outside, task) -> None:
    job_id = new_id()
    with psycopg.connect(url) as connection, Session(engine_of(url)) as session:
        assert not is_async(connection)
        assert not is_async(session)
        await run_on(connection, jobs.enqueue([(job_id, "{}")], NewJob(task)))
        connection.commit()
        await run_on(session, jobs.enqueue([(new_id(), "{}")], NewJob(task)))
    assert ids_of(outside, task) == {job_id}


def test_django_itself_forbids_its_connection_in_async_code(url, outside, task) -> None:
    with django_default(django_postgres(url)):
        with pytest.raises(SynchronousOnlyOperation):
            asyncio.run(run_on(django.db.connection, jobs.enqueue([(new_id(), "{}")], NewJob(task))))
    assert ids_of(outside, task) == set()


async def test_an_async_connection_in_sync_code_says_to_await(url) -> None:
    connection = await asyncpg.connect(url)
    engine = create_async_engine(sqlalchemy_url(url, "asyncpg"), poolclass=NullPool)
    async with await psycopg.AsyncConnection.connect(url) as second, AsyncSession(engine) as third:
        for given in (connection, second, third):
            assert is_async(given)
            with pytest.raises(InvalidArguments, match=f"{type(given).__name__}.*await"):
                run_on_sync(given, jobs.enqueue([(new_id(), "{}")], NewJob("any")))
    await connection.close()


def test_a_proxy_that_tells_its_class_is_known(url, outside, task) -> None:
    class Traced:
        def __init__(self, wrapped: Any) -> None:
            self._wrapped = wrapped

        @property
        def __class__(self) -> Any:
            return type(self._wrapped)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._wrapped, name)

    with psycopg.connect(url) as connection:
        run_on_sync(Traced(connection), jobs.enqueue([(new_id(), "{}")], NewJob(task)))
        connection.commit()
    assert len(ids_of(outside, task)) == 1


# --- what is refused


def refused(connection: Any) -> str:
    for run in (run_on_sync, lambda *given: asyncio.run(run_on(*given))):
        with pytest.raises(InvalidArguments) as failure:
            run(connection, jobs.enqueue([(new_id(), "{}")], NewJob("any")))
    return str(failure.value)


def test_other_objects_are_refused_with_what_is_accepted(url) -> None:
    for given in ("postgresql://localhost/app", None, object(), engine_of(url), django):
        message = refused(given)
        assert type(given).__qualname__ in message
        for accepted in ("asyncpg", "psycopg", "SQLAlchemy", "Django"):
            assert accepted in message


def test_a_pool_is_not_a_connection(url) -> None:
    async def pool_refused() -> None:
        async with asyncpg.create_pool(url, min_size=0) as pool:
            with pytest.raises(InvalidArguments, match=r"asyncpg\.pool\.Pool"):
                await run_on(pool, jobs.enqueue([(new_id(), "{}")], NewJob("any")))

    asyncio.run(pool_refused())


def test_sqlite_is_refused_with_the_way_to_do_it(tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    engine = sqlalchemy.create_engine(f"sqlite:///{file}")
    for given in (sqlite3.connect(":memory:"), apsw.Connection(":memory:"), engine, Session(engine)):
        message = refused(given)
        assert type(given).__qualname__ in message
        assert "app.transaction()" in message
        assert "drop each other's locks" in message
    with django_default({"ENGINE": "django.db.backends.sqlite3", "NAME": str(file)}):
        assert "app.transaction()" in refused(django.db.connection)
    assert not file.exists(), "a second SQLite library must not even open the file"
    with engine.connect() as connection:
        assert "app.transaction()" in refused(connection)


def test_another_database_is_refused_by_name() -> None:
    engine = sqlalchemy.create_mock_engine("postgresql://", lambda *_: None)
    engine.dialect.name = "mysql"  # no driver of another database is installed
    assert "on mysql" in refused(engine)


# --- the drivers' errors, and the statements


def test_the_drivers_own_errors_come_through(url, task) -> None:
    with psycopg.connect(url) as connection:
        with pytest.raises(psycopg.errors.InvalidTextRepresentation):
            run_on_sync(connection, jobs.enqueue([(new_id(), "not json")], NewJob(task)))
    with Session(engine_of(url)) as session:
        with pytest.raises(sqlalchemy.exc.DataError):
            run_on_sync(session, jobs.enqueue([(new_id(), "not json")], NewJob(task)))


def statements_of(*operations: Operation[Any]) -> set[str]:
    named: list[str] = []

    def execute(call: Call) -> list[Any]:
        named.append(call.name)
        return [("taken",)] if call.name == "take_id" else []

    for op in operations:
        drive(op.start(), POSTGRES, execute, lambda wake: None)
    return set(named)


async def test_no_statement_of_an_enqueue_asks_the_callers_codecs(url) -> None:
    rows, new = [(new_id(), "{}")], NewJob("any")
    names = statements_of(
        jobs.enqueue(rows, new),
        jobs.enqueue_rows([NewRow(*rows[0], None, None)], new),
        jobs.enqueue_once(*rows[0], new),
        reads.get(new_id()),
    )
    assert len(names) == 5
    connection = await asyncpg.connect(url)
    for name in names:
        statement = await connection.prepare(_as_text(load("postgres")[name]))
        kinds = {kind.name.rstrip("[]") for kind in statement.get_parameters()}
        assert not kinds & {"uuid", "json", "jsonb"}, name
        assert not {column.type.name for column in statement.get_attributes()} & {"json", "jsonb"}, name
    await connection.close()


def test_no_library_is_imported_before_it_is_used() -> None:
    code = "import sys, rowlock.store.engines.foreign as f; f.is_async(object()); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"asyncpg", "psycopg", "sqlalchemy", "django"} & set(loaded)
