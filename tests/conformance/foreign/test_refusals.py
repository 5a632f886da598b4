"""The caller's own connection: sync and async code, what is refused, and the drivers' own errors."""

import asyncio
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import django.db
import django.db.transaction
import psycopg
import pytest
import sqlalchemy
from django.core.exceptions import SynchronousOnlyOperation
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from rowlock.core.errors import InvalidArguments
from rowlock.core.job import NewJob
from rowlock.store.engine.callers_connection import _as_text, is_async, run_on, run_on_sync
from rowlock.store.engine.dialects import POSTGRES
from rowlock.store.engine.operation import Call, Operation, drive
from rowlock.store.engine.statements import load
from rowlock.store.jobs import enqueue
from rowlock.store.jobs.enqueue import NewRow
from rowlock.store.read import job_rows
from support.sql.foreign import django_default, django_postgres, engine_of, ids_of, new_id, sqlalchemy_url

# --- sync and async


async def test_a_sync_connection_may_be_given_to_async_code(url, outside, task) -> None:
    job_id = new_id()
    with psycopg.connect(url) as connection, Session(engine_of(url)) as session:
        assert not is_async(connection)
        assert not is_async(session)
        await run_on(connection, enqueue.enqueue([(job_id, "{}")], NewJob(task)))
        connection.commit()
        await run_on(session, enqueue.enqueue([(new_id(), "{}")], NewJob(task)))
    assert ids_of(outside, task) == {job_id}


def test_django_itself_forbids_its_connection_in_async_code(url, outside, task) -> None:
    with django_default(django_postgres(url)):
        with pytest.raises(SynchronousOnlyOperation):
            asyncio.run(run_on(django.db.connection, enqueue.enqueue([(new_id(), "{}")], NewJob(task))))
    assert ids_of(outside, task) == set()


async def test_an_async_connection_in_sync_code_says_to_await(url) -> None:
    connection = await asyncpg.connect(url)
    engine = create_async_engine(sqlalchemy_url(url, "asyncpg"), poolclass=NullPool)
    async with await psycopg.AsyncConnection.connect(url) as second, AsyncSession(engine) as third:
        for given in (connection, second, third):
            assert is_async(given)
            with pytest.raises(InvalidArguments, match=f"{type(given).__name__}.*await"):
                run_on_sync(given, enqueue.enqueue([(new_id(), "{}")], NewJob("any")))
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
        run_on_sync(Traced(connection), enqueue.enqueue([(new_id(), "{}")], NewJob(task)))
        connection.commit()
    assert len(ids_of(outside, task)) == 1


# --- what is refused


def refused(connection: Any) -> str:
    for run in (run_on_sync, lambda *given: asyncio.run(run_on(*given))):
        with pytest.raises(InvalidArguments) as failure:
            run(connection, enqueue.enqueue([(new_id(), "{}")], NewJob("any")))
    return str(failure.value)


def test_an_unknown_kind_of_connection_is_refused_with_the_kinds_that_are_accepted(url) -> None:
    for given in ("postgresql://localhost/app", None, object(), engine_of(url), django):
        message = refused(given)
        assert type(given).__qualname__ in message
        for accepted in ("asyncpg", "psycopg", "SQLAlchemy", "Django"):
            assert accepted in message


def test_a_pool_is_not_a_connection(url) -> None:
    async def pool_refused() -> None:
        async with asyncpg.create_pool(url, min_size=0) as pool:
            with pytest.raises(InvalidArguments, match=r"asyncpg\.pool\.Pool"):
                await run_on(pool, enqueue.enqueue([(new_id(), "{}")], NewJob("any")))

    asyncio.run(pool_refused())


def test_a_foreign_sqlite_connection_is_refused_and_app_transaction_is_named(tmp_path: Path) -> None:
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
            run_on_sync(connection, enqueue.enqueue([(new_id(), "not json")], NewJob(task)))
    with Session(engine_of(url)) as session:
        with pytest.raises(sqlalchemy.exc.DataError):
            run_on_sync(session, enqueue.enqueue([(new_id(), "not json")], NewJob(task)))


def statements_of(*operations: Operation[Any]) -> set[str]:
    named: set[str] = set()

    class Notes:
        def execute(self, call: Call) -> list[Any]:
            named.add(call.name)
            return [("taken",)] if call.name == "take_id" else []

    for op in operations:
        drive(op, POSTGRES, Notes(), [])
    return named


async def test_no_statement_of_an_enqueue_asks_the_callers_codecs(url) -> None:
    rows, new = [(new_id(), "{}")], NewJob("any")
    names = statements_of(
        enqueue.enqueue(rows, new),
        enqueue.enqueue_rows([NewRow(*rows[0], None, None)], new),
        enqueue.enqueue_once(*rows[0], new),
        job_rows.get(new_id()),
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
    code = "import sys, rowlock.store.engine.callers_connection as f; f.is_async(object()); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"asyncpg", "psycopg", "sqlalchemy", "django"} & set(loaded)
