"""The kinds of connection that a caller can bring along, each as an open transaction of somebody else."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import django.db
import django.db.transaction
import psycopg
import sqlalchemy
from django.conf import settings as django_settings
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from rowlock.core.times import FakeClock
from rowlock.store.engine.callers_connection import run_on, run_on_sync
from rowlock.store.engine.operation import Operation
from rowlock.store.engine.store import StoreOptions, open_store


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


async def migrate(url: str) -> None:
    store = await open_store(url, StoreOptions(migrate=True))
    await store.close()


def new_id() -> str:
    return str(uuid.uuid4())


def new_task() -> str:
    """The name of a task that no other test has, for databases that tests share."""
    return f"task-{uuid.uuid4().hex}"


def ids_of(outside: psycopg.Connection[Any], task: str) -> set[str]:
    rows = outside.execute("SELECT id FROM rowlock.jobs WHERE task = %s", [task]).fetchall()
    return {str(row[0]) for row in rows}


def orders_of(outside: psycopg.Connection[Any], task: str) -> int:
    return len(outside.execute("SELECT 1 FROM orders WHERE task = %s", [task]).fetchall())
