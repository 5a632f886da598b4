"""An enqueue in a transaction of two phases (PREPARE TRANSACTION), while a worker is idle and wants to be woken."""

import asyncio
import uuid
from collections.abc import Iterator

import psycopg
import pytest

from rowlock import Rowlock
from rowlock.store import open_store, workers
from rowlock.store.engine.store import StoreOptions
from support.each import each
from support.servers.postgres import PostgresServer

OFF = "SET LOCAL rowlock.wakeups = off"
BY_SQL = "SELECT rowlock.enqueue('work', '{\"n\": 1}')"


async def prepare(url: str) -> None:
    store = await open_store(url, StoreOptions(migrate=True))
    await store.run(workers.register("idle", "h", 1, "1", ["default"], ["work"], 5, None, 600))
    await store.run(workers.set_idle("idle", True, 600))
    await store.close()


@pytest.fixture(scope="module")
def two_phase_url() -> Iterator[str]:
    """A database with an idle worker, on a server that permits prepared transactions."""
    with PostgresServer(fsync="off", max_prepared_transactions=10) as server:
        asyncio.run(prepare(server.url))
        yield server.url


def count(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as outside:
        row = outside.execute("SELECT count(*) FROM rowlock.jobs_live WHERE task = 'work'").fetchone()
    assert row is not None
    return int(row[0])


def enqueue(url: str, connection: psycopg.Connection, how: str) -> None:
    if how == "sql":
        connection.execute(BY_SQL)
        return
    app = Rowlock(url)

    @app.task
    async def work(n: int) -> None: ...

    given = work.using(connection=connection)
    match how:
        case "one":
            given.enqueue_sync(n=1)
        case "key":
            given.using(key=uuid.uuid4().hex, unique="until_done").enqueue_sync(n=1)
        case "id":
            given.using(job_id=str(uuid.uuid4())).enqueue_sync(n=1)


WAYS = ["one", "key", "id", "sql"]


@each("how", WAYS)
def test_without_wake_ups_a_transaction_with_an_enqueue_can_be_prepared(two_phase_url: str, how: str) -> None:
    before = count(two_phase_url)
    for ends in ("COMMIT", "ROLLBACK"):
        name = uuid.uuid4().hex
        with psycopg.connect(two_phase_url) as connection:
            connection.execute(OFF)
            enqueue(two_phase_url, connection, how)
            connection.execute(f"PREPARE TRANSACTION '{name}'")
        with psycopg.connect(two_phase_url, autocommit=True) as other:
            other.execute(f"{ends} PREPARED '{name}'")
    assert count(two_phase_url) == before + 1


@each("how", WAYS)
def test_with_wake_ups_the_server_says_why_it_cannot_be_prepared(two_phase_url: str, how: str) -> None:
    """What the docs say, and what makes the test above worth something."""
    before = count(two_phase_url)
    with psycopg.connect(two_phase_url) as connection:
        enqueue(two_phase_url, connection, how)
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="NOTIFY"):
            connection.execute(f"PREPARE TRANSACTION '{uuid.uuid4().hex}'")
    assert count(two_phase_url) == before
