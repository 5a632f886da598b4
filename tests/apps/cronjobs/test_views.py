"""The document's tables on PostgreSQL: its reading queries as written, and its writing ones refused."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from rowlock import Rowlock
from rowlock_apps.cronjobs import cron_jobs
from rowlock_apps.cronjobs.app import make_app
from rowlock_apps.cronjobs.executor import Executor

EXECUTIONS = (
    "id, job_id, scheduled_time, status, started_at, finished_at, retry_count, error_message, result, created_at"
)
JOINED = """
    SELECT e.id, e.job_id, e.scheduled_time, e.status, e.retry_count,
           c.handler_name, c.handler_params, c.max_retry, c.timeout_seconds
    FROM job_executions e
    JOIN cron_jobs c ON c.id = e.job_id
    WHERE e.status = 'PENDING'
    ORDER BY e.scheduled_time
    LIMIT 10
"""
WRITES = [
    ("INSERT INTO job_executions (job_id, status) VALUES ('fine', 'PENDING')", "schedules run NAME"),
    # claim_execution, as the document has it
    ("UPDATE job_executions SET status = 'RUNNING' WHERE status = 'PENDING' RETURNING id", "rowlock worker --app"),
    ("UPDATE job_executions SET status = 'PENDING' WHERE status = 'nothing is like this'", "rowlock jobs retry ID"),
    ("DELETE FROM job_executions", "rowlock jobs cancel ID"),
    ("INSERT INTO cron_jobs (id, handler_name) VALUES ('new', 'sample')", "rowlock schedules add"),
    ("UPDATE cron_jobs SET enabled = false WHERE id = 'nobody'", "pause"),
    ("DELETE FROM cron_jobs", "remove"),
]


@pytest.fixture
async def filled(postgres: str) -> str:
    """One of each status, made by a pool."""
    async with make_app(postgres) as app:
        await add(app, "fine", {"result": {"n": 1}})
        await add(app, "bad", {"should_fail": True, "retry_after_seconds": 0.01}, max_retry=1)
        await add(app, "slow", {"sleep_seconds": 60}, max_retry=0, timeout_seconds=0.05)
        async with app.worker():
            for name in ("fine", "bad", "slow"):
                await Executor(app).execute(name, 20)
        await add(app, "next", {"message": "x"}, max_retry=2, timeout_seconds=9)
        await app.schedules.run("next")
    return postgres


async def add(app: Rowlock, name: str, params: dict[str, Any], **given: Any) -> None:
    await cron_jobs.add(name, "sample", params, cron="0 0 1 1 *", app=app, **given)


@pytest.fixture
def sql(filled: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(filled, autocommit=True) as connection:
        connection.execute("SET search_path = cronjobs")
        yield connection


def test_the_documents_queries_run_as_written_and_its_writes_are_refused(sql: psycopg.Connection[Any]) -> None:
    """S2.2, S2.3, S2.4, S2.5: tables, columns, status words and the JOIN of the document."""
    rows = sql.execute(f"SELECT {EXECUTIONS} FROM job_executions ORDER BY id").fetchall()
    every = sql.execute("SELECT * FROM job_executions")
    assert [column.name for column in every.description or ()] == EXECUTIONS.split(", ")
    assert [(row[1], row[3], row[6]) for row in rows] == [
        ("fine", "SUCCESS", 0), ("bad", "FAILED", 1), ("slow", "TIMEOUT", 0), ("next", "PENDING", 0)
    ]  # fmt: skip
    fine, bad, slow, waits = rows
    assert (fine[8], slow[7]) == ({"n": 1}, "timed out after 0.05 s")
    assert bad[7].startswith("asked to fail")
    assert all(row[2] is not None and row[9] <= row[4] <= row[5] for row in (fine, bad, slow))
    assert (waits[4], waits[5], waits[7], waits[8]) == (None, None, None, None)

    (pending,) = sql.execute(JOINED).fetchall()
    assert pending[1:2] + pending[3:] == ("next", "PENDING", 0, "sample", {"message": "x"}, 2, 9.0)

    for statement, advice in WRITES:
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="it is only to be read") as raised:
            sql.execute(statement)
        assert advice in f"{raised.value.diag.message_primary} {raised.value.diag.message_hint}", statement
    assert sql.execute("SELECT count(*) FROM job_executions").fetchone() == (4,)


def test_a_look_at_what_is_pending_does_not_walk_through_finished_executions(postgres: str) -> None:
    """S2.5: the question must stay quick beside a million executions that are over."""
    where = "SELECT id FROM cronjobs_job_executions WHERE state IN ('queued', 'retryable')"
    with psycopg.connect(postgres) as connection:
        plan = "\n".join(row[0] for row in connection.execute(f"EXPLAIN {where}").fetchall())
    assert "jobs_live" in plan
    assert "jobs_finished" not in plan
