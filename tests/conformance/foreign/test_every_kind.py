"""The caller's own connection: the job is part of the caller's transaction, whatever the library.

PostgreSQL only, by nature. Every kind of connection passes the same tests. The tests have no event loop: async kinds
start one, sync kinds run without.
"""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rowlock.core.errors import SchemaError
from rowlock.core.job import NewJob
from rowlock.core.policy import fixed
from rowlock.core.times import FakeClock
from rowlock.store.engine.operation import Call, Steps, operation
from rowlock.store.engine.statements import Query, load
from rowlock.store.jobs import claim, enqueue
from rowlock.store.read import job_rows
from support.each import each
from support.sql.foreign import KINDS, ids_of, new_id, new_task, orders_of, use

TRICKY = {"text": "100% of :all 'single' \"double\" \\ $1 %s %(a)s ::json {} ü 時", "list": [1, None, True]}


@each("kind", KINDS.values(), ids=KINDS)
def test_the_job_commits_with_the_callers_rows(kind, url, outside) -> None:
    task = new_task()
    plain, chosen, seen = new_id(), new_id(), []
    answers = use(
        kind(url),
        f"INSERT INTO orders VALUES ('{task}')",
        enqueue.enqueue([(plain, "{}")], NewJob(task)),
        enqueue.enqueue_once(chosen, "{}", NewJob(task)),
        lambda: seen.append(ids_of(outside, task)),
    )
    assert answers == [None, [(chosen, True)]]
    assert seen == [set()], "an operation must not commit"
    assert ids_of(outside, task) == {plain, chosen}
    assert orders_of(outside, task) == 1


@each("kind", KINDS.values(), ids=KINDS)
def test_a_rollback_leaves_neither_job_nor_reserved_id(kind, url, outside) -> None:
    task = new_task()
    chosen = new_id()
    both = [enqueue.enqueue([(new_id(), "{}")], NewJob(task)), enqueue.enqueue_once(chosen, "{}", NewJob(task))]
    assert use(kind(url), f"INSERT INTO orders VALUES ('{task}')", *both, commit=False) == [None, [(chosen, True)]]
    assert ids_of(outside, task) == set()
    assert orders_of(outside, task) == 0
    again = enqueue.enqueue_once(chosen, "{}", NewJob(task))
    assert use(kind(url), again, enqueue.enqueue_once(chosen, "{}", NewJob(task))) == [
        [(chosen, True)],
        [(chosen, False)],
    ]
    assert ids_of(outside, task) == {chosen}


@each("kind", KINDS.values(), ids=KINDS)
def test_a_bulk_of_100_keeps_ids_and_arguments(kind, url, outside) -> None:
    task = new_task()
    rows = [(new_id(), json.dumps({"n": n, **TRICKY})) for n in range(100)]
    use(kind(url), enqueue.enqueue(rows, NewJob(task)))
    stored = outside.execute("SELECT id, args FROM rowlock.jobs WHERE task = %s", [task]).fetchall()
    assert {str(row[0]): row[1] for row in stored} == {job_id: json.loads(args) for job_id, args in rows}


@each("kind", KINDS.values(), ids=KINDS)
def test_every_option_is_stored_and_now_is_the_clocks(kind, url, outside) -> None:
    task = new_task()
    clock = FakeClock()
    later = datetime(2026, 3, 1, tzinfo=UTC)
    new = NewJob(
        task,
        queue="links",
        priority=-7,
        owner="ana",
        source="domain:example.com",
        tags=("a", "b%"),
        max_attempts=2,
        backoff=fixed(minutes=5).to_json(),
        timeout_seconds=30,
        run_after=later,
        expires_at=later + timedelta(hours=1),
        on_success='{"task": "next"}',
        on_dead='{"task": "alarm"}',
        on_lost="dead",
        keep_seconds=60,
    )
    use(kind(url), enqueue.enqueue([(new_id(), "{}")], new), clock=clock)
    row = outside.execute(
        "SELECT queue, priority, owner, source, tags, max_attempts, backoff, timeout_seconds, run_after,"
        " expires_at, on_success, on_dead, on_lost, keep_seconds, created_at, ready"
        " FROM rowlock.jobs_live WHERE task = %s",
        [task],
    ).fetchone()
    assert row == (
        *("links", -7, "ana", "domain:example.com", ["a", "b%"], 2, json.loads(new.backoff or ""), 30),
        *(
            later,
            later + timedelta(hours=1),
            {"task": "next"},
            {"task": "alarm"},
            "dead",
            60,
            clock.now(),
            False,
        ),
    )


@each("kind", KINDS.values(), ids=KINDS)
def test_a_delay_counts_from_the_databases_clock(kind, url, outside) -> None:
    task = new_task()
    use(kind(url), enqueue.enqueue([(new_id(), "{}")], NewJob(task, delay=90)))
    row = outside.execute(
        "SELECT run_after - created_at, now() - created_at, ready FROM rowlock.jobs_live WHERE task = %s",
        [task],
    ).fetchone()
    assert row is not None
    assert row[0] == timedelta(seconds=90)
    assert abs(row[1]) < timedelta(minutes=1)
    assert row[2] is False


@each("kind", KINDS.values(), ids=KINDS)
def test_a_repeatable_read_transaction_may_enqueue(kind, url, outside) -> None:
    task = new_task()
    chosen = new_id()
    answers = use(
        kind(url),
        "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
        "SELECT count(*) FROM orders",
        enqueue.enqueue_once(chosen, "{}", NewJob(task)),
        enqueue.enqueue_once(chosen, "{}", NewJob(task)),
    )
    assert answers == [[(chosen, True)], [(chosen, False)]]
    assert ids_of(outside, task) == {chosen}


@each("kind", KINDS.values(), ids=KINDS)
def test_rows_come_back_as_from_our_own_connections(kind, url, outside) -> None:
    task = new_task()
    job_id, token = new_id(), new_id()
    claiming = claim.claim("worker-1", token, [claim.Range("default", task)], 10, 60)
    new = NewJob(task, backoff=fixed(minutes=5).to_json())
    _, claimed = use(kind(url), enqueue.enqueue([(job_id, json.dumps(TRICKY))], new), claiming)
    assert [(job.id, job.token, job.attempt) for job in claimed] == [(job_id, token, 1)]
    assert json.loads(claimed[0].args) == TRICKY
    assert json.loads(claimed[0].backoff) == json.loads(new.backoff or "")


@each("kind", KINDS.values(), ids=KINDS)
def test_the_job_that_has_the_id_already_can_be_read(kind, url, outside) -> None:
    task = new_task()
    chosen = new_id()
    new = NewJob(task, tags=("a", "b"), backoff=fixed(minutes=5).to_json())
    _, met = use(kind(url), enqueue.enqueue_once(chosen, json.dumps(TRICKY), new), job_rows.get(chosen))
    assert (met.id, met.args, met.tags, met.state) == (chosen, TRICKY, ("a", "b"), "queued")
    assert abs(datetime.now(UTC) - met.created_at) < timedelta(minutes=1)


@each("kind", KINDS.values(), ids=KINDS)
def test_percent_signs_and_repeated_parameters_survive(kind, url, monkeypatch) -> None:
    odd = Query("odd", "SELECT $2::text || '%' || $1::text || '%s' || $2::text", (("a", None), ("b", None)))
    bare = Query("bare", "SELECT '100%'", ())
    monkeypatch.setitem(load("postgres"), "odd", odd)
    monkeypatch.setitem(load("postgres"), "bare", bare)

    @operation()
    def both() -> Steps[list[Any]]:
        first = yield Call("odd", a="A%", b="B")
        second = yield Call("bare")
        return [*first, *second]

    assert use(kind(url), both()) == [[("B%A%%sB",), ("100%",)]]


@each("kind", KINDS.values(), ids=KINDS)
def test_a_missing_schema_says_what_to_run(kind, postgres_url) -> None:
    with pytest.raises(SchemaError, match="rowlock migrate") as failure:
        use(kind(postgres_url), enqueue.enqueue([(new_id(), "{}")], NewJob("any")))
    assert "\n" not in str(failure.value)
