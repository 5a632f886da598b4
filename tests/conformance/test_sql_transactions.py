"""Enqueues in SQL inside the transactions of their callers: savepoints that roll back, ids and keys in two transactions
at once, and two-phase commit."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from rowlock.store import open_store
from rowlock.store.engine.store import StoreOptions
from support.each import each
from support.servers.postgres import PostgresServer
from support.sql.worker import Sql

ONE = "00000000-0000-7000-8000-000000000001"


@pytest.fixture
def engine() -> str:
    return "postgres"


def enqueue(connection: Any, **options: Any) -> str:
    return str(
        connection.execute("SELECT rowlock.enqueue('t', '{}', %s)", [json.dumps(options)]).fetchone()[0]
    )  # fmt: skip


@each("options", [{"job_id": ONE}, {"key": "k"}, {"job_id": ONE, "key": "k"}], ids=str)
def test_a_savepoint_that_rolls_back_frees_what_was_taken_since(
    sql: Sql, database: str, options: dict[str, Any]
) -> None:
    sql.empty()
    with psycopg.connect(database) as connection:
        with pytest.raises(ZeroDivisionError), connection.transaction():
            enqueue(connection, **options)
            raise ZeroDivisionError
        with connection.transaction():  # another savepoint
            made = enqueue(connection, **options)
        assert enqueue(connection, **options) == made
    assert [str(row["id"]) for row in sql.rows("SELECT id FROM rowlock.jobs_live")] == [made]
    assert len(sql.rows("SELECT 1 FROM rowlock.job_keys")) == len(options)


def test_an_id_is_given_back_in_a_savepoint_as_well(sql: Sql, database: str) -> None:
    """The key is held by an older job, so the id that was reserved for the new one is free again."""
    older = str(sql.enqueue(key="k"))
    with psycopg.connect(database) as connection, connection.transaction():
        connection.execute("SELECT rowlock.enqueue('u')")
        with connection.transaction():
            assert enqueue(connection, job_id=ONE, key="k") == older
    assert str(sql.enqueue(job_id=ONE)) == ONE
    assert str(sql.job(ONE)["id"]) == ONE  # type: ignore[arg-type]


@each("commits", [True, False])
@each("options", [{"job_id": ONE}, {"key": "k"}], ids=str)
def test_a_twin_in_another_transaction_waits_and_makes_a_job_only_if_there_is_none(
    sql: Sql, database: str, options: dict[str, Any], commits: bool
) -> None:
    sql.empty()
    answers: list[str] = []

    def second() -> None:
        with psycopg.connect(database) as connection:
            answers.append(enqueue(connection, **options))

    with psycopg.connect(database) as first:
        made = enqueue(first, **options)
        thread = threading.Thread(target=second)
        thread.start()
        blocked = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        while not sql.value(blocked):
            assert thread.is_alive(), "the twin did not wait"
        first.commit() if commits else first.rollback()
        thread.join(30)
    (row,) = sql.rows("SELECT id FROM rowlock.jobs_live")
    assert answers == [str(row["id"])]
    assert (answers == [made]) is (commits or "job_id" in options)


# --- two-phase commit


@pytest.fixture
def prepares() -> Iterator[str]:
    """A database of a server with prepared transactions."""
    with PostgresServer(fsync="off", max_prepared_transactions=10) as server:
        yield server.create_database("prepares")


async def test_an_enqueue_in_a_prepared_transaction_is_a_job_after_its_second_phase(prepares: str) -> None:
    await (await open_store(prepares, StoreOptions(migrate=True))).close()
    with psycopg.connect(prepares, autocommit=True) as other:
        for name, second in (("a", "COMMIT"), ("b", "ROLLBACK")):
            with psycopg.connect(prepares, autocommit=True) as connection:
                connection.execute("BEGIN")
                enqueue(connection, key=name, job_id=f"{ONE[:-1]}{name}")
                connection.execute(f"PREPARE TRANSACTION '{name}'")
            assert other.execute("SELECT 1 FROM rowlock.jobs_live WHERE unique_key = %s", [name]).fetchall() == []
            other.execute("SET lock_timeout = '50ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                enqueue(other, key=name)
            other.execute(f"{second} PREPARED '{name}'")
        assert other.execute("SELECT unique_key FROM rowlock.jobs_live").fetchall() == [("a",)]
        assert enqueue(other, key="a") == f"{ONE[:-1]}a"
        assert enqueue(other, key="b") != f"{ONE[:-1]}b"
        # PostgreSQL prepares no transaction that has notified, and an enqueue notifies idle workers. Nothing is made.
        other.execute("SELECT * FROM rowlock.claim('w', '{nothing}')")
        other.execute("UPDATE rowlock.workers SET idle = TRUE, expires_at = now() + interval '1 hour'")
        other.execute("BEGIN")
        enqueue(other, key="c")
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="NOTIFY"):
            other.execute("PREPARE TRANSACTION 'c'")
        assert other.execute("SELECT 1 FROM rowlock.jobs_live WHERE unique_key = 'c'").fetchall() == []
