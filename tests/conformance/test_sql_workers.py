"""A worker that speaks SQL alone: `rowlock.claim`, heartbeat, progress, complete, fail, release, cancel and sweep."""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.rows import dict_row

from rowlock import Rowlock
from rowlock.core.remote import REMOTE


@pytest.fixture
def engine() -> str:
    return "postgres"


class Sql:
    """One connection and short words for what a worker calls."""

    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(url, autocommit=True, row_factory=dict_row)

    def rows(self, text: str, *values: Any) -> list[dict[str, Any]]:
        return self.connection.execute(text, values).fetchall()

    def value(self, text: str, *values: Any) -> Any:
        (row,) = self.rows(text, *values)
        return next(iter(row.values()))

    def enqueue(self, task: str = "t", **options: Any) -> UUID:
        made: UUID = self.value("SELECT rowlock.enqueue(%s, '{}', %s)", task, json.dumps(options))
        return made

    def claim(self, n: int = 1, *tasks: str, worker: str = "w", **options: Any) -> list[dict[str, Any]]:
        wanted = list(tasks) or ["t"]
        return self.rows("SELECT * FROM rowlock.claim(%s, %s, %s, %s)", worker, wanted, n, json.dumps(options))

    def end(self, verb: str, job: dict[str, Any], *more: Any) -> str:
        places = ", %s" * len(more)
        answer: str = self.value(f"SELECT rowlock.{verb}(%s, %s{places})", job["job_id"], job["token"], *more)
        return answer

    def job(self, job_id: UUID) -> dict[str, Any]:
        (row,) = self.rows("SELECT * FROM rowlock.jobs WHERE id = %s", job_id)
        return row


@pytest.fixture
def sql(database: str) -> Iterator[Sql]:
    opened = Sql(database)
    yield opened
    opened.connection.close()


def leases(*jobs: dict[str, Any]) -> str:
    return json.dumps([{"job_id": str(job["job_id"]), "token": str(job["token"])} for job in jobs])


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


@pytest.mark.parametrize("holder", REMOTE)
def test_cancel_ends_a_job_behind_redis_at_once_and_leaves_word_for_its_worker(sql: Sql, holder: str) -> None:
    job_id = sql.enqueue()
    sql.claim(worker=holder)
    insert = "INSERT INTO rowlock.outbox (kind, job_id, token, take_at) VALUES ('request', %s, %s, now()) RETURNING 1"
    sql.rows(insert, job_id, uuid4())
    assert sql.value("SELECT rowlock.cancel(%s)", job_id) == "cancelled"
    assert sql.job(job_id)["state"] == "cancelled"
    assert sql.rows("SELECT kind, job_id FROM rowlock.outbox") == [{"kind": "cancel", "job_id": job_id}]
    assert sql.rows("SELECT outcome FROM rowlock.attempts") == [{"outcome": "cancelled"}]


# --- ends


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


def test_two_last_jobs_of_a_batch_that_end_at_the_same_moment_leave_its_end_to_the_sweep(
    sql: Sql, database: str
) -> None:
    batch = str(uuid4())
    sql.rows("INSERT INTO rowlock.batches (id, name, created_at) VALUES (%s, 'b', now()) RETURNING 1", batch)
    sql.enqueue(batch_id=batch), sql.enqueue(batch_id=batch)
    sql.rows("UPDATE rowlock.batches SET sealed_at = now() RETURNING 1")
    one, two = sql.claim(2)
    with psycopg.connect(database) as other:
        other.execute("SELECT rowlock.complete(%s, %s)", [one["job_id"], one["token"]])
        sql.end("complete", two)
    assert sql.value("SELECT state FROM rowlock.batches") == "running"
    (swept,) = sql.rows("SELECT * FROM rowlock.sweep()")
    assert swept["ended"] == 1
    assert sql.value("SELECT state FROM rowlock.batches") == "succeeded"


def test_the_sweep_is_what_a_scheduled_statement_in_the_database_can_run(sql: Sql) -> None:
    """The clean-up of stuck jobs as SQL: by missed beats and not by age, so that a long job is not run twice."""
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
