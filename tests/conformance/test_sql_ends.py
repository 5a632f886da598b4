"""A worker that speaks SQL alone: how its jobs end, what it is refused, and what is counted."""

import json
from collections import Counter
from contextlib import ExitStack
from uuid import uuid4

import psycopg
import pytest

from rowlock import Rowlock
from support.each import each
from support.sql.worker import Sql, leases


@pytest.fixture
def engine() -> str:
    return "postgres"


def test_a_success_has_its_result_address_and_checksum_and_a_repeat_is_a_duplicate(sql: Sql) -> None:
    job_id = sql.enqueue(owner="ana")
    (job,) = sql.claim()
    digest = "0a" * 32
    sql.end("progress", job, 10)
    assert sql.end("complete", job, '{"ok": true}', "exports/7.mp4", digest) == "applied"
    row = sql.job(job_id)
    assert (row["state"], row["result"], row["progress"]) == ("succeeded", {"ok": True}, 100)
    assert (row["result_uri"], row["result_checksum"]) == ("exports/7.mp4", f"sha256:{digest}")
    assert sql.end("complete", job, '{"ok": false}') == "duplicate"
    assert sql.end("fail", job, "late") == "duplicate"
    assert sql.job(job_id) == row
    events = sql.rows("SELECT type, state FROM rowlock.events ORDER BY id")
    assert events == [
        {"type": "job.progress", "state": "running"}, {"type": "job.completed", "state": "succeeded"},
    ]  # fmt: skip


def test_a_hundred_jobs_end_in_one_call_and_each_is_answered(sql: Sql) -> None:
    jobs = json.dumps([{"args": {"n": n}} for n in range(100)])
    sql.rows("SELECT count(*) FROM rowlock.enqueue_many('t', %s)", jobs)
    held = sql.claim(100)
    assert [job["args"]["n"] for job in held] == list(range(100))
    zombie = held[0] | {"token": uuid4()}
    answers = sql.rows("SELECT * FROM rowlock.complete_many(%s)", leases(zombie, *held[1:]))
    assert Counter(row["answer"] for row in answers) == {"applied": 99, "lost": 1}
    assert answers[0] == {"job_id": held[0]["job_id"], "answer": "lost"}
    assert sql.job(held[0]["job_id"])["state"] == "running"


def test_follow_ups_and_the_end_of_a_batch_come_with_the_last_job(sql: Sql, database: str) -> None:
    sql.rows(
        "INSERT INTO rowlock.batches (id, name, owner, on_end, created_at)"
        " VALUES (%s, 'import', 'ana', '{\"task\": \"report\"}', now()) RETURNING 1", batch := str(uuid4())
    )  # fmt: skip
    good = sql.enqueue(batch_id=batch, on_success={"task": "thanks", "queue": "mail"}, owner="ana")
    bad = sql.enqueue(batch_id=batch, on_dead="refund", max_attempts=1)
    sql.rows("UPDATE rowlock.batches SET sealed_at = now() RETURNING 1")
    one, two = sql.claim(2)
    assert sql.value("SELECT state FROM rowlock.batches") == "running"
    sql.end("complete", one, "7")
    sql.end("fail", two, "no funds", '{"code": "FUNDS"}')
    (row,) = sql.rows("SELECT state, finished_at FROM rowlock.batches")
    assert (row["state"], row["finished_at"] is not None) == ("failed", True)
    made = {row["task"]: row for row in sql.rows("SELECT task, queue, owner, args FROM rowlock.jobs_live")}
    assert (made["thanks"]["queue"], made["thanks"]["owner"]) == ("mail", "ana")
    assert made["thanks"]["args"]["finished"] == {
        "job_id": str(good), "task": "t", "owner": "ana", "state": "succeeded", "attempt": 1, "args": {}, "result": 7,
        "error_code": None, "error_message": None,
    }  # fmt: skip
    assert made["refund"]["args"]["finished"]["job_id"] == str(bad)
    assert made["refund"]["args"]["finished"]["error_code"] == "FUNDS"
    ended = made["report"]["args"]["batch"]
    assert (ended["state"], ended["total"], ended["processed"], ended["failed"], ended["last_error"]) == (
        "failed", 2, 2, 1, "FUNDS: no funds",
    )  # fmt: skip


def test_a_follow_up_that_a_python_program_stored_by_its_name_alone_has_the_options_of_its_task(sql: Sql) -> None:
    sql.rows(
        "INSERT INTO rowlock.tasks (name, source_derived, options, updated_at)"
        """ VALUES ('thanks', FALSE, '{"queue": "mail", "on_lost": "dead", "max_attempts": 1}', now()) RETURNING 1"""
    )
    sql.enqueue()
    sql.rows("""UPDATE rowlock.jobs_live SET on_success = '{"task": "thanks"}' RETURNING 1""")
    (job,) = sql.claim()
    sql.end("complete", job)
    (made,) = sql.rows("SELECT task, queue, on_lost, max_attempts FROM rowlock.jobs_live")
    assert made == {"task": "thanks", "queue": "mail", "on_lost": "dead", "max_attempts": 1}


def test_two_last_jobs_of_a_batch_that_end_at_the_same_moment_leave_its_end_to_the_sweep(
    sql: Sql, database: str
) -> None:
    batch = str(uuid4())
    sql.rows("INSERT INTO rowlock.batches (id, name, created_at) VALUES (%s, 'b', now()) RETURNING 1", batch)
    sql.enqueue(batch_id=batch), sql.enqueue(batch_id=batch)
    sql.rows("UPDATE rowlock.batches SET sealed_at = now() RETURNING 1")
    one, two = sql.claim(2)
    mine = sql.connection.info.backend_pid
    with ExitStack() as opened:
        others = (opened.enter_context(psycopg.connect(database)) for _ in range(17))
        # One of the sixteen rows that count a batch, by the process id; a second writer of one row waits for the first.
        other = next(each for each in others if each.info.backend_pid % 16 != mine % 16)
        other.execute("SELECT rowlock.complete(%s, %s)", [one["job_id"], one["token"]])
        sql.end("complete", two)
    assert sql.value("SELECT state FROM rowlock.batches") == "running"
    (swept,) = sql.rows("SELECT * FROM rowlock.sweep()")
    assert swept["ended"] == 1
    assert sql.value("SELECT state FROM rowlock.batches") == "succeeded"


def test_the_sweep_is_what_a_scheduled_statement_in_the_database_can_run(sql: Sql) -> None:
    """The clean-up of stuck jobs as SQL: by missed beats and not by age, so that a long job is not run twice."""
    # A lost job comes back after up to a second of jitter: none at all would let the same sweep promote it.
    sql.connection.execute("CREATE OR REPLACE FUNCTION rowlock._draw() RETURNS float8 LANGUAGE sql AS 'SELECT 1.0'")
    stuck, long_, late, due = sql.enqueue(), sql.enqueue(), sql.enqueue("u"), sql.enqueue("u", delay=1000)
    sql.claim(2)
    sql.rows("UPDATE rowlock.jobs_live SET locked_at = now() - interval '1 hour' WHERE state = 'running' RETURNING 1")
    sql.rows("UPDATE rowlock.jobs_live SET lease_expires_at = now() WHERE id = %s RETURNING 1", stuck)
    sql.rows("UPDATE rowlock.jobs_live SET expires_at = now() WHERE id = %s RETURNING 1", late)
    sql.rows("UPDATE rowlock.jobs_live SET run_after = now() WHERE id = %s RETURNING 1", due)
    assert sql.rows("SELECT * FROM rowlock.sweep(100, 86400 * 365)") == [
        {"reclaimed": 0, "expired": 1, "promoted": 1, "ended": 0}
    ]
    assert sql.rows("SELECT * FROM rowlock.sweep(100, 0)") == [
        {"reclaimed": 1, "expired": 0, "promoted": 0, "ended": 0}
    ]
    states = [sql.job(job_id)["state"] for job_id in (stuck, long_, late, due)]
    assert states == ["retryable", "running", "cancelled", "queued"]
    assert sql.job(late)["error_code"] == "EXPIRED"


def test_an_error_text_of_any_length_is_cut_and_the_outcome_stored(sql: Sql) -> None:
    sql.enqueue()
    (job,) = sql.claim()
    assert sql.end("fail", job, "é" * 10_000, json.dumps({"code": "C" * 500, "permanent": True})) == "applied"
    row = sql.job(job["job_id"])
    assert row["state"] == "dead"
    assert len(row["error_message"].encode()) <= 8192
    assert row["error_message"].endswith("…(cut)")
    assert len(row["error_code"].encode()) <= 100


# --- bad arguments

ID, TOKEN = str(uuid4()), str(uuid4())


PAIR = f'{{"job_id": "{ID}", "token": "{TOKEN}"'


BAD_CALLS = [
    ("claim('')", "RL001", "worker must have 1–200 characters"),
    ("claim('w', '{t}', 0)", "RL001", "n must be from 1 to 1000, not 0"),
    ("claim('w', '{t}', 1, '[]')", "RL001", "options must be a JSON object"),
    ("claim('w', '{t}', 1, '{\"queue\": \"q\"}')", "RL002", "no option queue"),
    ("claim('w', '{t}', 1, '{\"queues\": \"q\"}')", "RL001", "queues must be a list of names"),
    ("claim('w', '{t}', 1, '{\"lease_seconds\": 0}')", "RL001", "lease_seconds must be from 1 to 86400"),
    ("claim('w', '{t}', 1, '{\"lease_seconds\": \"60\"}')", "RL001", "lease_seconds must be a number of seconds"),
    ("heartbeat('w', '7')", "RL001", "a JSON array is needed, not 7"),
    ("heartbeat('w', '[{\"job_id\": \"7\"}]')", "RL001", "needs job_id, a UUID"),
    ("heartbeat('w', '[]', 0)", "RL001", "lease_seconds must be from 1"),
    (f"progress('{ID}', '{TOKEN}', 101)", "RL001", "progress must be a number from 0 to 100, not 101"),
    (f'progress_many(\'[{PAIR}, "progress": "7"}}]\')', "RL001", "progress must be a number from 0 to 100"),
    (f"complete('{ID}', NULL)", "RL001", "needs token, a UUID"),
    (f"complete('{ID}', '{TOKEN}', to_jsonb(repeat('x', 70000)))", "RL003", "more than 65536"),
    (f"complete('{ID}', '{TOKEN}', NULL, 'a.mp4')", "RL001", "needs an address and a checksum"),
    (f"complete('{ID}', '{TOKEN}', NULL, 'a.mp4', 'md5:7')", "RL001", "needs an address and a checksum"),
    (f"complete_many('[{PAIR}, \"reslt\": 7}}]')", "RL002", "no option reslt"),
    (f"fail('{ID}', '{TOKEN}', 'no', '{{\"colour\": 1}}')", "RL002", "no option colour"),
    (f"fail('{ID}', '{TOKEN}', 'no', '{{\"outcome\": \"succeeded\"}}')", "RL001", "outcome must be failed"),
    (f"fail('{ID}', '{TOKEN}', 'no', '{{\"fault\": \"mine\"}}')", "RL001", "fault must be source or refusal"),
    (f"fail('{ID}', '{TOKEN}', 'no', '{{\"permanent\": 1}}')", "RL001", "permanent must be true or false"),
    (f"fail('{ID}', '{TOKEN}', 'no', '{{\"after\": -1}}')", "RL001", "after must be a number of seconds"),
    (f"fail('{ID}', '{TOKEN}', 'no', '{{\"backoff\": 7}}')", "RL001", "backoff must be like"),
    (f"release('{ID}', '{TOKEN}', -1)", "RL001", "delay must be a number of seconds"),
    ("sweep(0)", "RL001", "n must be from 1"),
]


def test_bad_arguments_are_refused_with_a_state_a_message_and_a_hint(sql: Sql) -> None:
    for call, code, message in BAD_CALLS:
        with pytest.raises(psycopg.Error, match=message) as refused:
            sql.rows(f"SELECT rowlock.{call}")
        assert refused.value.sqlstate == code, call
        assert refused.value.diag.message_hint, call


async def test_python_reads_waits_for_and_explains_what_a_sql_worker_does(database: str, sql: Sql) -> None:
    async with Rowlock(database) as app:

        @app.task("t")
        async def t(n: int) -> int:
            return n

        handle = await t.enqueue(n=5)
        (job,) = sql.claim()
        assert job["args"] == {"n": 5}
        sql.end("complete", job, "25")
        assert await handle.wait(10) == 25


# --- counters


def counted(sql: Sql) -> tuple[int, int, int]:
    """How many successes are summed up in all, in minutes and in hours."""
    total = "SELECT coalesce(sum(number), 0)::int FROM rowlock.{} WHERE what = 'succeeded'"
    return (
        sql.value(total.format("counters")),
        sql.value(total.format("rollups") + " AND seconds = 60"),
        sql.value(total.format("rollups") + " AND seconds = 3600"),
    )


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
def test_sql_workers_sum_up_what_was_counted_when_they_tell_that_they_live(sql: Sql, isolation: str) -> None:
    for _ in range(3):
        sql.enqueue()
    for job in sql.claim(3):
        assert sql.end("complete", job) == "applied"
    waiting = "SELECT count(*) FROM rowlock.tallies"
    assert (sql.value(waiting), counted(sql)) == (3, (0, 0, 0))
    beat = "SELECT * FROM rowlock.heartbeat('w', '[]')"
    sql.rows(beat)  # the worker has told so a moment ago
    assert sql.value(waiting) == 3
    sql.connection.execute("UPDATE rowlock.workers SET seen_at = seen_at - interval '11 seconds'")
    sql.connection.execute(
        "INSERT INTO rowlock.rollups VALUES (60, now() - interval '27 hours', 'q', 't', 'dead', 0, 0, 1, 1, 1)"
    )
    sql.connection.execute(f"SET default_transaction_isolation = '{isolation}'")
    sql.rows(beat)
    if isolation == "read committed":
        assert (sql.value(waiting), counted(sql)) == (0, (3, 3, 3))
        assert sql.value("SELECT count(*) FROM rowlock.rollups WHERE what = 'dead'") == 0  # forgotten
    else:  # counters that another worker has changed would fail the call
        assert (sql.value(waiting), counted(sql)) == (3, (0, 0, 0))


@each("guard", ["NaN", "Infinity", "-1", "1e300"])
def test_a_guard_that_no_clock_can_add_is_refused(sql: Sql, guard: str) -> None:
    with pytest.raises(psycopg.Error, match="guard_seconds from 0 to 1e9") as refused:
        sql.rows("SELECT * FROM rowlock.sweep(100, %s)", guard)
    assert refused.value.sqlstate == "RL001"
