"""`rowlock.enqueue(…)`: a job from SQL, in the caller's transaction, as good as one from Python."""

from typing import Any

import psycopg
import pytest

from rowlock import Rowlock, exponential, fixed
from rowlock.core.policy import DEFAULT_BACKOFF, Backoff
from support.stores import template

__all__ = ["template"]


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
