"""A worker that speaks SQL alone: `rowlock.claim`, heartbeat, progress, complete, fail, release, cancel and sweep."""

import json
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from support.each import each
from support.sql.worker import Sql, leases


@pytest.fixture
def engine() -> str:
    return "postgres"


# --- claims


def test_claim_next_pending_job_takes_the_oldest_job_of_any_task_under_a_whole_lease(sql: Sql) -> None:
    first, second = sql.enqueue("b"), sql.enqueue("a")
    (job,) = sql.rows("SELECT * FROM rowlock.claim_next_pending_job('worker-7')")
    assert (job["job_id"], job["task"], job["attempt"]) == (first, "b", 1)
    row = sql.job(first)
    assert (row["state"], row["locked_by"], row["lease_token"]) == ("running", "worker-7", job["token"])
    assert row["heartbeat_at"] == row["locked_at"]
    assert (row["lease_expires_at"] - row["locked_at"]).total_seconds() == 60
    assert [job["job_id"] for job in sql.rows("SELECT * FROM rowlock.claim_next_pending_job('worker-8')")] == [second]
    assert sql.rows("SELECT * FROM rowlock.claim_next_pending_job('worker-9')") == []


def test_a_claim_also_takes_a_job_whose_worker_stopped_beating(sql: Sql) -> None:
    job_id = sql.enqueue(backoff={"kind": "fixed", "base": 0})
    (stuck,) = sql.claim(worker="dead", lease_seconds=60)
    assert sql.claim(worker="alive") == []
    sql.rows("UPDATE rowlock.jobs_live SET lease_expires_at = now() - interval '1 second' RETURNING 1")
    # The server of the tests has just started; a claim waits until it has been up for one lease.
    assert sql.claim(worker="alive", lease_seconds=86400) == []
    assert sql.job(job_id)["state"] == "running"
    taken: list[dict[str, Any]] = []
    for _ in range(100):  # its jitter is up to a second
        taken = sql.claim(worker="alive", lease_seconds=1)
        if taken:
            break
        sql.rows("SELECT pg_sleep(0.1)")
    assert [(job["job_id"], job["attempt"], job["losses"]) for job in taken] == [(job_id, 2, 1)]
    assert sql.end("complete", stuck) == "lost"
    assert sql.end("complete", taken[0]) == "applied"
    ended = sql.rows("SELECT outcome, worker, error_code FROM rowlock.attempts")
    assert ended == [{"outcome": "lost", "worker": "dead", "error_code": "WORKER_LOST"}]


def test_a_claim_makes_due_jobs_claimable_and_leaves_paused_queues_and_other_tasks(sql: Sql) -> None:
    due, other = sql.enqueue(delay=1000), sql.enqueue("u")
    paused = sql.enqueue(queue="slow")
    sql.rows("INSERT INTO rowlock.queues VALUES ('slow', now()) RETURNING 1")
    assert sql.claim(10, queues=["default", "slow"]) == []
    sql.rows("UPDATE rowlock.jobs_live SET run_after = now() WHERE id = %s RETURNING 1", due)
    assert sql.claim(10, sweep=False) == []
    assert [job["job_id"] for job in sql.claim(10, queues=["default", "slow"])] == [due]
    assert {sql.job(job_id)["state"] for job_id in (other, paused)} == {"queued"}


def test_priority_first_then_one_job_of_each_source_in_turn(sql: Sql) -> None:
    for source in ("api:a", "api:a", "api:a", "api:b", "api:b", None):
        sql.enqueue(priority=1, source=source)
    urgent = sql.enqueue(priority=-5, source="api:a")
    claimed = sql.claim(1)
    assert [job["job_id"] for job in claimed] == [urgent]
    assert Counter(job["source"] for job in sql.claim(3)) == {"api:a": 1, "api:b": 1, None: 1}
    assert Counter(job["source"] for job in sql.claim(2)) == {"api:a": 1, "api:b": 1}


def test_jobs_behind_more_sources_than_one_page_are_reached(sql: Sql) -> None:
    jobs = json.dumps([{"args": {}, "source": f"api:{n:04}"} for n in range(450)])
    sql.rows("SELECT count(*) FROM rowlock.enqueue_many('t', %s)", jobs)
    sql.rows("UPDATE rowlock.sources SET total = 1000 WHERE name = 'api' RETURNING 1")
    claimed = [job["source"] for job in sql.claim(1000)]
    assert sorted(claimed) == [f"api:{n:04}" for n in range(450)]


def test_a_claim_in_a_snapshot_that_does_not_move_is_refused(sql: Sql) -> None:
    with sql.connection.transaction():
        sql.connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        with pytest.raises(psycopg.Error, match="the transaction is repeatable read") as refused:
            sql.claim()
    assert refused.value.sqlstate == "RL001"


def test_a_worker_is_listed_from_its_first_claim_on(sql: Sql) -> None:
    sql.claim(worker="node-1", queues=["q"])
    (row,) = sql.rows("SELECT id, version, queues, tasks, idle FROM rowlock.workers WHERE expires_at > now()")
    assert row == {"id": "node-1", "version": "sql", "queues": ["q"], "tasks": ["t"], "idle": False}


# --- sources


def in_threads(database: str, count: int, claims: int, n: int) -> tuple[list[dict[str, Any]], list[Exception]]:
    """All that connections which claim at the same moment got."""
    start, taken, failed = threading.Barrier(count), list[dict[str, Any]](), list[Exception]()

    def work(number: int) -> None:
        mine = Sql(database)
        start.wait(30)
        try:
            for _ in range(claims):
                taken.extend(mine.claim(n, worker=f"w-{number}"))
        except Exception as error:
            failed.append(error)
        finally:
            mine.connection.close()

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(work, range(count)))
    return taken, failed


@pytest.mark.parametrize(
    ("limit", "most"),
    [
        ("concurrency = 2 WHERE name IN ('api:a', 'api:b')", {"api:a": 2, "api:b": 2}),
        ("total = 3 WHERE name = 'api'", None),
        ("rate_limit_per_minute = 0.001, burst = 4 WHERE name IN ('api:a', 'api:b')", {"api:a": 4, "api:b": 4}),
    ],
)
def test_limits_of_sources_are_exact_under_claims_at_the_same_moment(
    sql: Sql, database: str, limit: str, most: dict[str, int] | None
) -> None:
    sql.rows("INSERT INTO rowlock.sources (name) VALUES ('api:a'), ('api:b') RETURNING 1")
    sql.rows(f"UPDATE rowlock.sources SET {limit} RETURNING 1")
    for _ in range(40):
        sql.enqueue(source="api:a")
        sql.enqueue(source="api:b")
    for _ in range(5):
        taken, failed = in_threads(database, 4, 3, 3)
        assert failed == []
        if most is None:
            assert sql.value("SELECT count(*) FROM rowlock.jobs_live WHERE state = 'running'") == 3
        elif "rate" not in limit:
            running = sql.rows("SELECT source, count(*) AS n FROM rowlock.jobs_live WHERE state = 'running' GROUP BY 1")
            assert {row["source"]: row["n"] for row in running} == most
        sql.rows("SELECT * FROM rowlock.complete_many(%s)", leases(*taken)) if taken else None
    if "rate" in limit:
        assert sql.value("SELECT count(*) FROM rowlock.jobs_finished") == 8


def test_a_claim_of_one_source_waits_for_that_of_another_source_of_a_class_with_a_total(
    sql: Sql, database: str
) -> None:
    sql.rows("UPDATE rowlock.sources SET total = 3 WHERE name = 'api' RETURNING 1")
    for _ in range(3):
        sql.enqueue("t", source="api:a")
        sql.enqueue("u", source="api:b")
    other = Sql(database)
    with ThreadPoolExecutor(1) as pool, sql.connection.transaction():
        assert len(sql.claim(3, "t")) == 3
        second = pool.submit(other.claim, 3, "u", worker="v")  # not "w": it would wait for the row of that worker
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        deadline = time.monotonic() + 60
        with psycopg.connect(database, autocommit=True) as watcher:
            while not second.done() and watcher.execute(waiting).fetchone() == (0,):
                assert time.monotonic() < deadline
        assert not second.done(), "it did not wait"
    assert second.result(60) == []
    other.connection.close()


def test_a_breaker_opens_after_failures_in_a_row_lets_one_probe_in_and_closes_by_its_success(
    sql: Sql, database: str
) -> None:
    sql.rows(
        "INSERT INTO rowlock.sources (name, failure_threshold, cooldown_seconds) VALUES ('api:a', 2, 600) RETURNING 1"
    )
    for _ in range(8):
        sql.enqueue(source="api:a")
    for job in sql.claim(2):
        sql.end("fail", job, "down", '{"fault": "source", "code": "HTTP_500"}')
    (row,) = sql.rows("SELECT * FROM rowlock.sources WHERE name = 'api:a'")
    assert (row["failure_streak"], row["opened_at"] is not None, row["last_error"]) == (2, True, "HTTP_500: down")
    assert sql.claim(5) == []
    sql.rows("UPDATE rowlock.sources SET paused_until = now() WHERE name = 'api:a' RETURNING 1")
    taken, failed = in_threads(database, 4, 2, 3)
    assert (len(taken), failed) == (1, [])
    assert sql.end("complete", taken[0]) == "applied"
    assert sql.value("SELECT opened_at FROM rowlock.sources WHERE name = 'api:a'") is None
    assert len(sql.claim(5)) == 5


# --- beats, progress, cancel


def test_a_heartbeat_says_which_leases_hold_which_are_to_stop_and_which_are_lost(sql: Sql) -> None:
    for _ in range(3):
        sql.enqueue()
    held, stopped, lost = sql.claim(3)
    assert sql.value("SELECT rowlock.cancel(%s)", stopped["job_id"]) == "cancelling"
    sql.end("release", lost)
    answers = sql.rows("SELECT * FROM rowlock.heartbeat('w', %s, 600)", leases(held, stopped, lost))
    assert [row["answer"] for row in answers] == ["held", "cancel", "lost"]
    assert sql.job(held["job_id"])["lease_expires_at"] > held["lease_expires_at"]
    assert sql.end("progress", held, 40, "fetch", "reading") == "held"
    assert sql.end("progress", stopped, 50) == "cancel"
    assert sql.end("progress", lost, 60) == "lost"
    row = sql.job(held["job_id"])
    assert (row["progress"], row["phase"], row["message"]) == (40, "fetch", "reading")
    assert sql.end("release", stopped) == "applied"
    assert sql.job(stopped["job_id"])["state"] == "cancelled"


def test_a_heartbeat_does_not_wait_for_a_row_that_somebody_has_locked(sql: Sql, database: str) -> None:
    sql.enqueue()
    (job,) = sql.claim()
    with psycopg.connect(database) as other:
        other.execute("SELECT 1 FROM rowlock.jobs_live FOR UPDATE")
        sql.connection.execute("SET statement_timeout = '20s'")
        (answer,) = sql.rows("SELECT * FROM rowlock.heartbeat('w', %s, 600)", leases(job))
    assert (answer["answer"], answer["lease_expires_at"]) == ("held", job["lease_expires_at"])


def test_sql_cancel_answers_for_each_job_what_became_of_it(sql: Sql) -> None:
    waiting, done, running = sql.enqueue(), sql.enqueue("u"), sql.enqueue("v")
    sql.end("complete", sql.claim(1, "u")[0])
    sql.claim(1, "v")
    ids = [waiting, done, running, uuid4()]
    answers = sql.rows("SELECT * FROM rowlock.cancel_many(%s)", ids)
    assert [{row["job_id"]: row["answer"] for row in answers}[job_id] for job_id in ids] == [
        "cancelled", "final", "cancelling", "missing",
    ]  # fmt: skip


@each("published", ["unread", "read"])
def test_cancel_ends_a_job_behind_redis_at_once_and_leaves_word_for_its_worker(sql: Sql, published: str) -> None:
    sql.empty()
    job_id = sql.enqueue()
    sql.claim()
    sql.rows("UPDATE rowlock.jobs_live SET published = %s RETURNING 1", published)
    insert = "INSERT INTO rowlock.outbox (kind, job_id, token, take_at) VALUES ('request', %s, %s, now()) RETURNING 1"
    sql.rows(insert, job_id, uuid4())
    assert sql.value("SELECT rowlock.cancel(%s)", job_id) == "cancelled"
    assert sql.job(job_id)["state"] == "cancelled"
    assert sql.rows("SELECT kind, job_id FROM rowlock.outbox") == [{"kind": "cancel", "job_id": job_id}]
    assert sql.rows("SELECT outcome FROM rowlock.attempts") == [{"outcome": "cancelled"}]
