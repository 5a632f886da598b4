"""The caller's own connection without a transaction to join: whole or nothing, or refused."""

import asyncio
from typing import Any

import asyncpg
import django.db
import django.db.transaction
import psycopg
import pytest
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from rowlock.core.errors import InvalidArguments
from rowlock.core.job import NewJob
from rowlock.store.engine.callers_connection import run_on, run_on_sync
from rowlock.store.engine.operation import Call, Operation, Steps, operation
from rowlock.store.jobs import enqueue
from support.each import each
from support.sql.foreign import django_default, django_postgres, ids_of, new_id, new_task, sqlalchemy_url


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


@each("alone", ALONE.values(), ids=ALONE)
def test_in_autocommit_an_operation_is_whole_or_nothing(alone, url, outside) -> None:
    task = new_task()
    chosen, single = new_id(), new_id()
    with pytest.raises(RuntimeError, match="half way"):
        alone(url, half(chosen))
    assert alone(url, enqueue.enqueue_once(chosen, "{}", NewJob(task))) == [(chosen, True)]
    alone(url, enqueue.enqueue([(single, "{}")], NewJob(task)))
    assert ids_of(outside, task) == {chosen, single}


LEVEL = """CREATE FUNCTION rowlock.need_level() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
IF current_setting('transaction_isolation') <> 'read committed' THEN RAISE 'the level is not ours'; END IF;
RETURN NEW; END $$;
CREATE TRIGGER level BEFORE INSERT ON rowlock.jobs_live FOR EACH ROW EXECUTE FUNCTION rowlock.need_level()"""


@each("alone", ALONE.values(), ids=ALONE)
def test_in_autocommit_the_isolation_level_of_our_transaction_is_not_the_roles(alone, url) -> None:
    task = new_task()
    with psycopg.connect(url, autocommit=True) as admin:
        database = f'ALTER DATABASE "{admin.info.dbname}"'
        admin.execute(LEVEL)
        admin.execute(f"{database} SET default_transaction_isolation = 'repeatable read'")
        try:
            chosen = new_id()
            assert alone(url, enqueue.enqueue_once(chosen, "{}", NewJob(task))) == [(chosen, True)]
        finally:
            admin.execute(f"{database} RESET default_transaction_isolation")
            admin.execute("DROP FUNCTION rowlock.need_level CASCADE")


def test_psycopgs_own_block_on_an_autocommit_connection_is_joined(url, outside, task) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        with connection.transaction():
            run_on_sync(connection, enqueue.enqueue_once(new_id(), "{}", NewJob(task)))
            raise psycopg.Rollback
    assert ids_of(outside, task) == set()


@each("driver", ["psycopg", "asyncpg"])
def test_sqlalchemys_autocommit_is_refused(driver, url, outside) -> None:
    task = new_task()

    async def refused() -> None:
        engine = create_async_engine(sqlalchemy_url(url, driver), poolclass=NullPool, isolation_level="AUTOCOMMIT")
        async with engine.connect() as connection:
            with pytest.raises(InvalidArguments, match="AUTOCOMMIT"):
                await run_on(connection, enqueue.enqueue([(new_id(), "{}")], NewJob(task)))

    asyncio.run(refused())
    assert ids_of(outside, task) == set()
