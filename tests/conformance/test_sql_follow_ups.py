"""Follow-ups of jobs that end in SQL: what is stored is judged when it is read; an insert that fails fails the call."""

import json
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from rowlock.core.options import FOLLOW_UP_OPTIONS, OPTIONS
from support.each import each
from support.sql.refusals import refused
from support.sql.worker import Sql

HUGE = "1e5000"  # a whole number of more digits than Python parses


@pytest.fixture
def engine() -> str:
    return "postgres"


def make_batch(sql: Sql, on_end: str | None = None) -> str:
    return str(
        sql.value(
            "INSERT INTO rowlock.batches (id, name, on_end, created_at) VALUES (%s, 'b', %s, now()) RETURNING id",
            str(uuid4()), on_end,
        )
    )  # fmt: skip


def tasks(sql: Sql) -> list[str]:
    return sorted(row["task"] for row in sql.rows("SELECT task FROM rowlock.jobs_live WHERE state <> 'running'"))


@each("how", ["complete", "fail"])
def test_a_follow_up_that_cannot_be_inserted_fails_the_call_which_can_be_repeated(
    sql: Sql, database: str, how: str
) -> None:
    sql.empty()
    job_id = sql.enqueue(on_success="next", on_dead="next")
    (job,) = sql.claim()

    def end() -> Any:
        return sql.end(how, job) if how == "complete" else sql.end(how, job, "no", '{"permanent": true}')

    with refused(database, "jobs_live", "task", "next"), pytest.raises(psycopg.errors.RaiseException):
        end()
    assert sql.job(job_id)["state"] == "running"
    assert end() == "applied"
    assert tasks(sql) == ["next"]


def warned(sql: Sql) -> list[str]:
    """The warnings of the calls that follow."""
    warnings: list[str] = []
    sql.connection.add_notice_handler(lambda notice: warnings.append(str(notice.message_primary)))
    return warnings


@each("call", ["sweep", "claim"])
def test_a_sweep_leaves_a_job_whose_follow_up_cannot_be_inserted_and_ends_the_others(
    sql: Sql, database: str, call: str
) -> None:
    sql.empty()
    bad, good = sql.enqueue(on_dead="next", on_lost="dead"), sql.enqueue(on_lost="dead", on_dead="other")
    assert len(sql.claim(2)) == 2
    sql.rows("UPDATE rowlock.jobs_live SET lease_expires_at = now() - interval '1 s' RETURNING 1")
    waits, warnings = sql.enqueue("u"), warned(sql)
    with refused(database, "jobs_live", "task", "next"):
        if call == "sweep":
            assert sql.value("SELECT reclaimed FROM rowlock.sweep(100, 0)") == 1
        else:
            # Nothing is reclaimed before the server has been up for a lease.
            sql.rows("SELECT 1 FROM pg_sleep_until(pg_postmaster_start_time() + interval '1.1 s')")
            (job,) = sql.claim(1, "u", lease_seconds=1)
            assert job["job_id"] == waits
    assert (sql.job(bad)["state"], sql.job(good)["state"]) == ("running", "dead")
    assert warnings == [f"rowlock: the lease of job {bad} ran out and cannot be ended: a bad row"]
    assert sql.value("SELECT reclaimed FROM rowlock.sweep(100, 0)") == 1
    assert sql.job(bad)["state"] == "dead"
    assert sql.value("SELECT count(*) FROM rowlock.jobs_live WHERE task = 'next'") == 1


@each("expiring", [True, False])
def test_a_sweep_leaves_a_batch_whose_on_end_cannot_be_inserted_and_ends_the_others(
    sql: Sql, database: str, expiring: bool
) -> None:
    sql.empty()
    bad, good = make_batch(sql, '{"task": "report"}'), make_batch(sql, '{"task": "other"}')
    if expiring:
        for batch in (bad, good):
            sql.enqueue(batch_id=batch, expires_at="2001-01-01T00:00:00Z")
    sql.rows("UPDATE rowlock.batches SET sealed_at = now() RETURNING 1")
    warnings = warned(sql)
    swept = "SELECT expired, ended FROM rowlock.sweep(100, 0)"
    with refused(database, "jobs_live", "task", "report"):
        assert sql.rows(swept) == [{"expired": 1, "ended": 0} if expiring else {"expired": 0, "ended": 1}]
    ended = "SELECT CAST(id AS text) FROM rowlock.batches WHERE finished_at IS NOT NULL"
    assert [row["id"] for row in sql.rows(ended)] == [good]
    assert len(warnings) == 1
    assert warnings[0].endswith("a bad row")
    sql.rows(swept)
    assert len(sql.rows(ended)) == 2
    assert tasks(sql) == ["other", "report"]


def test_a_sweep_by_a_role_that_may_not_insert_the_follow_up_fails(sql: Sql) -> None:
    """That is about no row: it must be seen."""
    sql.enqueue(on_dead="next", on_lost="dead")
    sql.claim()
    sql.rows("UPDATE rowlock.jobs_live SET lease_expires_at = now() - interval '1 s' RETURNING 1")
    role = f"rowlock_test_{uuid4().hex[:8]}"
    sql.connection.execute(f"CREATE ROLE {role}")
    try:
        sql.connection.execute(
            f"GRANT USAGE ON SCHEMA rowlock TO {role}; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA rowlock TO {role};"
            f" GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA rowlock TO {role};"
            f" REVOKE INSERT ON rowlock.jobs_live FROM {role}; SET ROLE {role}"
        )
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            sql.value("SELECT reclaimed FROM rowlock.sweep(100, 0)")
    finally:
        sql.connection.execute(f"RESET ROLE; DROP OWNED BY {role}; DROP ROLE {role}")


def test_an_on_end_that_cannot_be_inserted_fails_the_call_which_can_be_repeated(sql: Sql, database: str) -> None:
    batch = make_batch(sql, '{"task": "report"}')
    job_id = sql.enqueue(batch_id=batch)
    sql.rows("UPDATE rowlock.batches SET sealed_at = now() RETURNING 1")
    (job,) = sql.claim()
    with refused(database, "jobs_live", "task", "report"), pytest.raises(psycopg.errors.RaiseException):
        sql.end("complete", job)
    assert sql.job(job_id)["state"] == "running"
    assert sql.value("SELECT state FROM rowlock.batches") == "running"
    assert sql.end("complete", job) == "applied"
    assert tasks(sql) == ["report"]


@each("follow_up", [{}, {"on_success": "next"}], ids=["alone", "with a follow-up"])
def test_a_result_with_a_number_that_python_cannot_read_is_refused(sql: Sql, follow_up: dict[str, Any]) -> None:
    job_id = sql.enqueue(**follow_up)
    (job,) = sql.claim()
    with pytest.raises(psycopg.Error, match="number of more than 4300 digits") as error:
        sql.end("complete", job, f'{{"n": [{HUGE}]}}')
    assert error.value.sqlstate == "RL001"
    assert sql.job(job_id)["state"] == "running"
    assert sql.end("complete", job, json.dumps({"n": "1" * 5000})) == "applied"  # a text is none


@each(
    "stored",
    ["[]", '{"no": "task"}', '{"task": 7}', '{"task": "next", "colour": "red"}', '{"task": "next", "queue": ""}',
     '{"task": "next", "priority": 1000}', '{"task": "next", "backoff": {"kind": "none"}}',
     '{"task": "next", "on_success": {"task": ""}}', '{"task": "rowlock.webhook"}',
     '{"task": "next", "on_dead": ' * 2000 + "{}" + "}" * 2000],
    ids=lambda text: text[:40],
)  # fmt: skip
def test_a_stored_follow_up_that_cannot_be_understood_is_none_and_the_job_ends(sql: Sql, stored: str) -> None:
    job_id = sql.enqueue()
    sql.rows("UPDATE rowlock.jobs_live SET on_success = %s RETURNING 1", stored)
    (job,) = sql.claim()
    warnings = warned(sql)
    assert sql.end("complete", job) == "applied"
    assert tasks(sql) == []
    assert len(warnings) == 1
    assert f"job {job_id} has a follow-up that cannot be understood" in warnings[0]


def test_the_options_of_a_follow_up_are_those_of_pythons_list(sql: Sql) -> None:
    assert set(sql.value("SELECT rowlock._follow_up_options()")) == set(FOLLOW_UP_OPTIONS)


GIVEN: dict[str, Any] = {
    "batch_id": str(uuid4()), "unique": "until_done", "window": 60, "parent_id": str(uuid4()),
}  # fmt: skip


@each("option", sorted(GIVEN))
@each("depth", [1, 2])
def test_a_job_ends_without_a_stored_follow_up_that_has_an_option_of_no_follow_up(
    sql: Sql, option: str, depth: int
) -> None:
    """A job of a batch, for one, would not be counted in it. Only a program that writes to the table can store this."""
    stored: dict[str, Any] = {"task": "next", option: GIVEN[option]}
    if depth == 2:
        stored = {"task": "first", "on_dead": stored}
    sql.enqueue()
    sql.rows("UPDATE rowlock.jobs_live SET on_success = %s RETURNING 1", json.dumps(stored))
    (job,) = sql.claim()
    assert sql.end("complete", job) == "applied"
    assert sql.rows("SELECT 1 FROM rowlock.jobs_live") == []


@each("option", sorted(GIVEN))
@each("depth", [1, 2])
def test_an_option_that_no_follow_up_has_is_refused_by_its_name(sql: Sql, option: str, depth: int) -> None:
    assert option not in FOLLOW_UP_OPTIONS
    follow_up: dict[str, Any] = {"task": "next", option: GIVEN[option]}
    if depth == 2:
        follow_up = {"task": "first", "on_dead": follow_up}
    with pytest.raises(psycopg.Error, match=f'a follow-up has no option "?{option}') as error:
        sql.enqueue(on_success=follow_up)
    assert error.value.sqlstate == "RL002"
    assert sql.rows("SELECT 1 FROM rowlock.jobs_live") == []


def test_every_option_that_a_follow_up_has_can_be_given_in_sql_and_reaches_its_row(sql: Sql) -> None:
    given: dict[str, Any] = {
        "queue": "q", "priority": 3, "max_attempts": 2, "backoff": {"kind": "fixed", "base": 5, "cap": 5, "factor": 1},
        "timeout_seconds": 9, "source": "api:x", "on_success": {"task": "u"}, "on_dead": {"task": "v"},
        "on_lost": "dead", "keep_seconds": 60, "owner": "bo", "tags": ["a"], "delay": 7,
        "expires_at": "2150-01-01T00:00:00+00:00",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    }  # fmt: skip
    assert given.keys() | {"run_after"} == set(FOLLOW_UP_OPTIONS)
    sql.enqueue(on_success={"task": "next", **given}, owner="ana")
    (job,) = sql.claim()
    assert sql.end("complete", job) == "applied"
    (made,) = sql.rows("SELECT * FROM rowlock.jobs_live")
    for name in given.keys() - {"delay", "expires_at"}:
        assert made[OPTIONS[name].column] == given[name], name
    assert (made["run_after"] - made["created_at"]).total_seconds() == 7
    assert made["expires_at"].year == 2150


def test_a_follow_up_belongs_to_the_trace_of_the_job_before_it_and_gets_its_arguments_as_they_are_stored(
    sql: Sql,
) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    sql.enqueue(on_success="next", traceparent=trace)
    sql.rows("""UPDATE rowlock.jobs_live SET args = '{"text": "a\\u0000b", "n": 1e2}' RETURNING 1""")
    (job,) = sql.claim()
    assert sql.end("complete", job) == "applied"
    (made,) = sql.rows("SELECT traceparent, args FROM rowlock.jobs_live")
    assert made["traceparent"] == trace
    assert made["args"]["finished"]["args"] == {"text": "a\0b", "n": 100.0}
