"""`rowlock.enqueue(…)`: a job from SQL, in the caller's transaction, as good as one from Python."""

import json
from typing import Any

import psycopg
import pytest

from rowlock import Rowlock, exponential, fixed
from rowlock.core.options import OPTIONS
from rowlock.core.policy import DEFAULT_BACKOFF, Backoff


@pytest.fixture
def engine() -> str:
    return "postgres"


def sql(url: str, text: str, *values: Any) -> Any:
    with psycopg.connect(url) as connection:
        row = connection.execute(text, values).fetchone()
    return row[0] if row else None


async def test_a_worker_that_sleeps_runs_it_at_once(database: str) -> None:
    async with Rowlock(database) as app:

        @app.task("mail", queue="out")
        async def mail(to: str) -> str:
            return f"sent to {to}"

        async with app.worker(queues=["out"], poll_interval_seconds=60):
            job_id = sql(database, "SELECT rowlock.enqueue('mail', '{\"to\": \"bo\"}', queue => 'out')")
            assert await (await app.job(str(job_id))).wait(10) == "sent to bo"


async def test_it_rings_while_a_worker_sleeps_and_not_else(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as ears:
        ears.execute("LISTEN rowlock")
        sql(database, "SELECT rowlock.enqueue('t')")
        assert list(ears.notifies(timeout=0.2)) == []
        with psycopg.connect(database) as connection:
            connection.execute(
                "INSERT INTO rowlock.workers"
                " (id, hostname, pid, version, queues, tasks, pool_size, idle, started_at, seen_at, expires_at)"
                " VALUES ('w', 'h', 1, '1', '[]', '[]', 1, TRUE, now(), now(), now() + interval '1 hour')"
            )
        sql(database, "SELECT rowlock.enqueue('t')")
        assert [heard.payload for heard in ears.notifies(timeout=10, stop_after=1)] == ["work"]


async def test_every_option_reaches_the_row(database: str) -> None:
    job_id = sql(
        database,
        """SELECT rowlock.enqueue(task => 't', args => '{"a": 1}', queue => 'q', priority => -3, source => 'api:x',
                  owner => 'ana', tags => ARRAY['x', 'y'], max_attempts => 2, timeout_seconds => 9,
                  backoff => '{"kind": "fixed", "base": 5, "cap": 5, "factor": 1}',
                  run_after => now() + interval '1 hour', expires_at => now() + interval '2 hours')""",
    )
    async with Rowlock(database) as app:
        job = (await app.job(str(job_id))).record
    assert (job.task, job.args, job.queue, job.priority, job.source) == ("t", {"a": 1}, "q", -3, "api:x")
    assert (job.owner, job.tags, job.max_attempts, job.timeout_seconds) == ("ana", ("x", "y"), 2, 9)
    assert job.backoff == {"kind": "fixed", "base": 5, "cap": 5, "factor": 1}
    assert (job.run_after - job.created_at).total_seconds() == pytest.approx(3600, abs=1)
    assert job.expires_at is not None
    assert sql(database, "SELECT ready FROM rowlock.jobs_live") is False


async def test_ids_grow_with_time_and_are_uuids_of_version_7(database: str) -> None:
    ids = [sql(database, "SELECT rowlock.enqueue('t')") for _ in range(3)]
    assert ids == sorted(ids)
    assert {job_id.version for job_id in ids} == {7}
    async with Rowlock(database) as app:

        @app.task("t")
        async def t() -> None: ...

        ours = await t.enqueue()
    assert str(ids[-1]) < ours.id


async def test_it_commits_with_the_transaction_around_it(database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("SELECT rowlock.enqueue('t')")
        connection.rollback()
    assert sql(database, "SELECT count(*) FROM rowlock.jobs") == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("NULL", "task must have 1–200 characters"),
        ("E'a\\nb'", "task must have 1–200 characters"),
        ("'t', '[1]'", "args must be a JSON object, the arguments of task t"),
        ("'t', NULL", "args must be a JSON object"),
        ("'t', jsonb_build_object('a', repeat('x', 300000))", "more than 262144; store them"),
        ("'t', queue => ''", "queue must have 1–200 characters"),
        ("'t', priority => 101", "priority must be from -100"),
        ("'t', max_attempts => 0", "max_attempts must be from 1"),
        ("'t', timeout_seconds => -1", "timeout_seconds must be above 0"),
        ("'t', backoff => '5'", "backoff must be like .*; not 5"),
        ('\'t\', backoff => \'[{"kind": "fixed", "base": 5}]\'', "backoff must be like"),
        ("'t', backoff => '{\"kind\": \"fixed\"}'", "backoff must be like"),
        ('\'t\', backoff => \'{"kind": "linear", "base": 5}\'', "backoff must be like .* not .*linear"),
        ('\'t\', backoff => \'{"kind": "fixed", "base": "5"}\'', "backoff must be like"),
        ('\'t\', backoff => \'{"kind": "fixed", "base": [5]}\'', "backoff must be like"),
        ('\'t\', backoff => \'{"kind": "fixed", "base": -1}\'', "backoff must be like"),
        ('\'t\', backoff => \'{"kind": "fixed", "base": 1e300}\'', "backoff must be like"),
        ('\'t\', backoff => \'{"kind": "exponential", "base": 5, "cap": 1e300}\'', "backoff must be like"),
        ('\'t\', backoff => \'{"kind": "exponential", "base": 5, "cap": null}\'', "backoff must be like"),
        ('\'t\', backoff => \'{"kind": "exponential", "base": 5, "factor": 1e200}\'', "a factor from 1 to 100"),
        ('\'t\', backoff => \'{"kind": "fixed", "base": 5, "step": 1}\'', "backoff must be like"),
        ("'t', source => ':x'", "a source is named like api:ebay"),
        ("'t', source => 'api:'", "a source is named like api:ebay"),
    ],
)
async def test_bad_input_is_refused_with_the_reason(database: str, call: str, message: str) -> None:
    with pytest.raises(psycopg.Error, match=message):
        sql(database, f"SELECT rowlock.enqueue({call})")
    assert sql(database, "SELECT count(*) FROM rowlock.jobs") == 0


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ('{"kind": "fixed", "base": 5}', fixed(5)),
        ('{"kind": "exponential", "base": 2}', exponential(2)),
        ('{"kind": "exponential", "base": 2, "cap": 60, "factor": 3}', exponential(2, 60, 3)),
        ("null", DEFAULT_BACKOFF),
    ],
)
async def test_a_backoff_from_sql_means_what_it_means_in_python(database: str, given: str, meant: Backoff) -> None:
    job_id = sql(database, "SELECT rowlock.enqueue('t', backoff => CAST(%s AS jsonb))", given)
    stored = sql(database, "SELECT CAST(backoff AS text) FROM rowlock.jobs WHERE id = %s", job_id)
    assert Backoff.from_json(stored) == meant


async def test_what_is_not_given_is_what_the_tasks_worker_registered(database: str) -> None:
    async with Rowlock(database) as app:

        @app.task
        async def report(finished: dict[str, Any]) -> None: ...

        @app.task(
            queue="money", max_attempts=1, on_lost="dead", timeout=9, keep=60, backoff=fixed(3), priority=4,
            source="api:bank", on_success=report, on_dead="elsewhere",
        )  # fmt: skip
        async def pay(to: str) -> None: ...

        async with app.worker(queues=["none"]):
            pass
        sql(database, "SELECT rowlock.enqueue('pay', '{\"to\": \"bo\"}')")
        await pay.enqueue(to="bo")
        columns = "queue, max_attempts, on_lost, timeout_seconds, keep_seconds, priority, source"
        texts = ", ".join(f"CAST(CAST({name} AS jsonb) AS text)" for name in ("backoff", "on_success", "on_dead"))
        by_sql, by_python = await app.fetch(f"SELECT {columns}, {texts} FROM rowlock.jobs_live ORDER BY id")
        assert tuple(by_sql) == tuple(by_python)
        job_id = sql(database, "SELECT rowlock.enqueue('pay', queue => 'q', priority => 0, max_attempts => 3)")
        job = await app.job(str(job_id))
        assert (job.queue, job.priority, job.max_attempts, job.timeout_seconds) == ("q", 0, 3, 9)


async def test_every_option_that_a_task_can_give_its_jobs_is_known_to_the_function(database: str) -> None:
    given = [option.name for option in OPTIONS.values() if "task" in option.places]
    for name in [*given, "colour"]:
        sql(database, "DELETE FROM rowlock.tasks RETURNING 1")
        options = json.dumps({name: None})
        sql(
            database,
            "INSERT INTO rowlock.tasks (name, options, source_derived, updated_at) VALUES ('t', %s, FALSE, now())"
            " RETURNING 1",
            options,
        )
        if name != "colour":
            sql(database, "SELECT rowlock.enqueue('t')")
    with pytest.raises(psycopg.Error, match="task t has the option colour, which this function cannot give to a job"):
        sql(database, "SELECT rowlock.enqueue('t')")


async def test_a_source_that_python_derives_is_warned_of(database: str) -> None:
    insert = "INSERT INTO rowlock.tasks (name, options, source_derived, updated_at) VALUES ('t', '{}', TRUE, now())"
    sql(database, f"{insert} RETURNING 1")
    told: list[str] = []
    with psycopg.connect(database) as connection:
        connection.add_notice_handler(lambda notice: told.append(str(notice.message_primary)))
        connection.execute("SELECT rowlock.enqueue('t', source => 'api:x')")
        assert told == []
        connection.execute("SELECT rowlock.enqueue('t')")
    assert ["derives its source from its arguments" in line for line in told] == [True]
