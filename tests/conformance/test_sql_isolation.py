"""SQL functions in a transaction whose isolation level is above READ COMMITTED count nothing under an old snapshot."""

from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import IsolationLevel

from support.each import each
from support.sql.worker import Sql

ABOVE = [IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE]


@pytest.fixture
def engine() -> str:
    return "postgres"


@pytest.fixture(params=ABOVE, ids=lambda level: level.name)
def old(request: pytest.FixtureRequest, database: str) -> Any:
    """A connection whose transactions see what there was when they began."""
    with psycopg.connect(database) as connection:
        connection.isolation_level = request.param
        yield connection
        connection.rollback()


def make_batch(sql: Sql) -> str:
    text = "INSERT INTO rowlock.batches (id, name, on_end, created_at) VALUES (%s, 'b', %s, now()) RETURNING id"
    return str(sql.value(text, str(uuid4()), '{"task": "report"}'))


def seal(sql: Sql) -> None:
    sql.rows("UPDATE rowlock.batches SET sealed_at = now() RETURNING 1")


ENDS = {
    "complete": "SELECT rowlock.complete(%(job_id)s, %(token)s)",
    "fail": "SELECT rowlock.fail(%(job_id)s, %(token)s, 'no', '{\"permanent\": true}')",
    "release": "SELECT rowlock.release(%(job_id)s, %(token)s)",  # of a job that is to be cancelled
}


@each("end", ENDS)
def test_a_job_that_was_added_after_the_snapshot_keeps_its_batch_open(sql: Sql, old: Any, end: str) -> None:
    old.rollback()
    sql.empty()
    batch = make_batch(sql)
    sql.enqueue(batch_id=batch)
    (job,) = sql.claim()
    seal(sql)
    if end == "release":
        sql.rows("SELECT rowlock.cancel(%s)", job["job_id"])
    old.execute("SELECT 1 FROM rowlock.batch_counts")  # the snapshot: one job, which runs
    sql.enqueue("added", batch_id=batch, under={"job_id": str(job["job_id"]), "token": str(job["token"])})
    assert old.execute(ENDS[end], job).fetchone() == ("applied",)
    old.commit()
    assert sql.value("SELECT finished_at FROM rowlock.batches") is None
    (added,) = sql.claim(1, "added")
    sql.end("complete", added)
    assert sql.value("SELECT finished_at FROM rowlock.batches") is not None


def test_a_batch_whose_last_job_ends_above_read_committed_is_ended_by_the_next_sweep(sql: Sql, old: Any) -> None:
    batch = make_batch(sql)
    sql.enqueue(batch_id=batch)
    seal(sql)
    (job,) = sql.claim()
    assert old.execute(ENDS["complete"], job).fetchone() == ("applied",)
    old.commit()
    assert sql.value("SELECT state FROM rowlock.batches") == "running"
    assert sql.value("SELECT ended FROM rowlock.sweep()") == 1
    assert [row["task"] for row in sql.rows("SELECT task FROM rowlock.jobs_live")] == ["report"]


def test_a_batch_that_was_sealed_after_the_snapshot_takes_no_job(sql: Sql, old: Any) -> None:
    batch = make_batch(sql)
    old.execute("SELECT 1 FROM rowlock.batches")
    seal(sql)
    with pytest.raises(psycopg.Error, match="enqueue: batch_id: the transaction is") as refused:
        old.execute("SELECT rowlock.enqueue('t', '{}', %s)", [f'{{"batch_id": "{batch}"}}'])
    assert refused.value.sqlstate == "RL001"


def test_a_job_without_a_batch_is_made_with_the_callers_rows_at_every_level(sql: Sql, old: Any) -> None:
    old.execute("SELECT rowlock.enqueue('t', '{}', '{\"key\": \"k\"}')")
    old.commit()
    assert sql.value("SELECT count(*) FROM rowlock.jobs_live") == 1


@each("call", ["claim('w')", "claim_next_pending_job('w')"])
def test_a_claim_above_read_committed_is_refused(old: Any, call: str) -> None:
    old.rollback()
    with pytest.raises(psycopg.Error, match="claim: the transaction is"):
        old.execute(f"SELECT * FROM rowlock.{call}")
