"""`rowlock.enqueue(…)`: a job from SQL, in the caller's transaction, as good as one from Python."""

import json
import re
from typing import Any

import psycopg
import pytest

from rowlock import Rowlock, exponential, fixed
from rowlock.core.options import OPTIONS, columns
from rowlock.core.policy import DEFAULT_BACKOFF, Backoff
from support.each import each


@pytest.fixture
def engine() -> str:
    return "postgres"


def sql(url: str, text: str, *values: Any) -> Any:
    with psycopg.connect(url) as connection:
        row = connection.execute(text, values).fetchone()
    return row[0] if row else None


async def test_a_job_enqueued_by_sql_wakes_a_sleeping_worker(database: str) -> None:
    async with Rowlock(database) as app:

        @app.task("mail", queue="out")
        async def mail(to: str) -> str:
            return f"sent to {to}"

        async with app.worker(queues=["out"], poll_interval_seconds=60):
            job_id = sql(database, 'SELECT rowlock.enqueue(\'mail\', \'{"to": "bo"}\', \'{"queue": "out"}\')')
            assert await (await app.job(str(job_id))).wait(10) == "sent to bo"


async def test_sql_enqueue_notifies_only_while_a_worker_is_idle(database: str) -> None:
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
    given = {
        "queue": "q",
        "priority": -3,
        "source": "api:x",
        "owner": "ana",
        "tags": ["x", "y"],
        "max_attempts": 2,
        "timeout_seconds": 9,
        "keep_seconds": 60,
        "on_lost": "dead",
        "backoff": {"kind": "fixed", "base": 5, "cap": 5, "factor": 1},
        "on_success": "report",
        "on_dead": {"task": "refund", "queue": "money", "on_success": {"task": "report", "bare": True}},
        "delay": 3600,
        "expires_at": "2031-05-01T12:00:00Z",
    }
    job_id = sql(database, "SELECT rowlock.enqueue('t', '{\"a\": 1}', %s)", json.dumps(given))
    async with Rowlock(database) as app:
        job = (await app.job(str(job_id))).record
    assert (job.task, job.args, job.queue, job.priority, job.source) == ("t", {"a": 1}, "q", -3, "api:x")
    assert (job.owner, job.tags, job.max_attempts, job.timeout_seconds) == ("ana", ("x", "y"), 2, 9)
    assert job.backoff == {"kind": "fixed", "base": 5, "cap": 5, "factor": 1}
    assert (job.run_after - job.created_at).total_seconds() == pytest.approx(3600, abs=1)
    assert job.expires_at is not None
    assert job.expires_at.isoformat() == "2031-05-01T12:00:00+00:00"
    row = "ready, keep_seconds, on_lost, on_success::jsonb, on_dead::jsonb"
    assert sql(database, f"SELECT to_jsonb(x) FROM (SELECT {row} FROM rowlock.jobs_live) x") == {
        "ready": False,
        "keep_seconds": 60,
        "on_lost": "dead",
        "on_success": {"task": "report"},
        "on_dead": given["on_dead"],
    }


def call(url: str, task: str, **options: Any) -> str:
    """Enqueue one job with these options; answers its id."""
    return str(sql(url, "SELECT rowlock.enqueue(%s, '{}', %s)", task, json.dumps(options)))


async def test_a_second_job_with_a_key_that_is_held_is_the_first_one(database: str) -> None:
    first = call(database, "t", key="k")
    assert call(database, "t", key="k") == first
    assert call(database, "t", key="k", owner="ana") != first
    assert call(database, "u", key="k") != first
    assert sql(database, "SELECT count(*) FROM rowlock.jobs") == 3
    async with Rowlock(database) as app:

        @app.task("t")
        async def t() -> None: ...

        assert (await t.using(key="k").enqueue()).id == first


async def test_a_window_lets_its_key_go_when_its_time_is_over(database: str) -> None:
    first = call(database, "t", key="k", unique="window", window=3600)
    assert call(database, "t", key="k", unique="window", window=3600) == first
    sql(database, "UPDATE rowlock.job_keys SET expires_at = now() RETURNING 1")
    assert call(database, "t", key="k", unique="window", window=3600) != first


async def test_an_id_that_a_job_has_or_had_is_not_made_again(database: str) -> None:
    chosen = "00000000-0000-7000-8000-000000000007"
    assert call(database, "t", job_id=chosen) == chosen
    assert call(database, "t", job_id=chosen) == chosen
    assert sql(database, "SELECT count(*) FROM rowlock.jobs") == 1
    sql(database, "DELETE FROM rowlock.jobs_live RETURNING 1")
    assert call(database, "t", job_id=chosen) == chosen
    assert sql(database, "SELECT count(*) FROM rowlock.jobs") == 0
    # A job that is not made because another has its key leaves its id free.
    older, other = call(database, "t", key="k"), "00000000-0000-7000-8000-000000000008"
    assert call(database, "t", key="k", job_id=other) == older
    assert call(database, "t", job_id=other) == other


async def test_an_id_that_rowlock_gave_to_a_job_makes_no_second_job(database: str) -> None:
    """Such an id is not among the keys: the jobs themselves say that it is known."""
    made = call(database, "t")
    sql(database, "SELECT rowlock.complete(job_id, token) FROM rowlock.claim('w', ARRAY['t'])")
    assert call(database, "t", job_id=made) == made
    assert sql(database, "SELECT array_agg(state) FROM rowlock.jobs") == ["succeeded"]


async def test_a_batch_counts_jobs_until_it_is_sealed(database: str) -> None:
    async with Rowlock(database) as app:
        async with app.batch("import") as batch:
            call(database, "t", batch_id=batch.id)
            sql(database, "SELECT count(*) FROM rowlock.enqueue_many('t', %s, %s)",
                '[{"args": {}}, {"args": {}}]', json.dumps({"batch_id": batch.id}))  # fmt: skip
        assert (await batch.refresh()).total == 3
    with pytest.raises(psycopg.Error, match="is sealed") as refused:
        call(database, "t", batch_id=batch.id)
    assert refused.value.sqlstate == "RL004"
    with pytest.raises(psycopg.Error, match="there is no batch"):
        call(database, "t", batch_id="00000000-0000-7000-8000-000000000001")


async def test_a_running_job_adds_to_its_own_sealed_batch_as_long_as_it_holds_its_lease(database: str) -> None:
    async with Rowlock(database) as app:
        async with app.batch("import") as batch:
            job_id = call(database, "t", batch_id=batch.id)
    token = sql(
        database,
        "UPDATE rowlock.jobs_live SET state = 'running', ready = FALSE, lease_token = gen_random_uuid(),"
        " locked_by = 'w', locked_at = now(), lease_expires_at = now() RETURNING lease_token::text",
    )
    made = call(database, "t", batch_id=batch.id, under={"job_id": job_id, "token": token})
    assert str(sql(database, "SELECT parent_id FROM rowlock.jobs_live WHERE id = %s", made)) == job_id  # its child
    with pytest.raises(psycopg.Error, match="is sealed"):
        call(database, "t", batch_id=batch.id)
    with pytest.raises(psycopg.Error, match="no longer held") as refused:
        call(database, "t", under={"job_id": job_id, "token": batch.id})
    assert refused.value.sqlstate == "RL006"


async def test_many_jobs_are_made_in_their_order_and_those_with_a_held_key_are_not(database: str) -> None:
    older = call(database, "t", key="b")
    jobs = [{"args": {"n": n}, "key": key, "source": f"api:{key}"} for n, key in enumerate("cbac")]
    with psycopg.connect(database) as connection:
        made = connection.execute("SELECT * FROM rowlock.enqueue_many('t', %s)", [json.dumps(jobs)]).fetchall()
    assert [created for _, created in made] == [True, False, True, False]
    assert str(made[1][0]) == older
    assert made[3][0] == made[0][0]
    rows = "SELECT jsonb_agg(jsonb_build_array(args -> 'n', source) ORDER BY id) FROM rowlock.jobs_live WHERE id <> %s"
    assert sql(database, rows, older) == [[0, "api:c"], [2, "api:a"]]


async def test_ids_grow_with_time_and_are_uuids_of_version_7(database: str) -> None:
    ids = [sql(database, "SELECT rowlock.enqueue('t')") for _ in range(3)]
    assert ids == sorted(ids)
    assert {job_id.version for job_id in ids} == {7}
    async with Rowlock(database) as app:

        @app.task("t")
        async def t() -> None: ...

        ours = await t.enqueue()
    assert str(ids[-1]) < ours.id


async def test_a_job_of_sql_enqueue_is_gone_when_its_transaction_is_rolled_back(database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("SELECT rowlock.enqueue('t')")
        connection.rollback()
    assert sql(database, "SELECT count(*) FROM rowlock.jobs") == 0


@each(
    "call, code, message",
    [
        ("NULL", "RL001", "task must have 1–200 characters"),
        ("E'a\\nb'", "RL001", "task must have 1–200 characters"),
        ("'t', '[1]'", "RL001", "args must be a JSON object, the arguments of task t"),
        ("'t', NULL", "RL001", "args must be a JSON object"),
        ("'t', jsonb_build_object('a', repeat('x', 300000))", "RL003", "more than 262144"),
        ("'t', '{}', '[]'", "RL001", "options must be a JSON object, not \\[\\]"),
    ],
)
async def test_bad_arguments_are_refused_with_the_reason(database: str, call: str, code: str, message: str) -> None:
    with pytest.raises(psycopg.Error, match=message) as refused:
        sql(database, f"SELECT rowlock.enqueue({call})")
    assert refused.value.sqlstate == code
    assert refused.value.diag.message_hint
    assert sql(database, "SELECT count(*) FROM rowlock.jobs") == 0


BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"colour": 1}, "no option colour"),
    ({"queue": ""}, "queue must be a string of 1–200 characters"),
    ({"queue": 5}, "queue must be a string"),
    ({"owner": "a\nb"}, "owner must be a string"),
    ({"priority": 101}, "priority must be a whole number from -100"),
    ({"priority": 1.5}, "priority must be a whole number"),
    ({"priority": True}, "priority must be a whole number"),
    ({"max_attempts": 0}, "max_attempts must be a whole number from 1"),
    ({"timeout_seconds": -1}, "timeout_seconds must be a number of seconds"),
    ({"timeout_seconds": "9"}, "timeout_seconds must be a number of seconds"),
    ({"backoff": 5}, "backoff must be like .*; not 5"),
    ({"backoff": "5 minutes"}, "backoff must be like"),
    ({"backoff": [{"kind": "fixed", "base": 5}]}, "backoff must be like"),
    ({"backoff": {"kind": "fixed"}}, "backoff must be like"),
    ({"backoff": {"kind": "linear", "base": 5}}, "backoff must be like .* not .*linear"),
    ({"backoff": {"kind": "fixed", "base": "5"}}, "backoff must be like"),
    ({"backoff": {"kind": "fixed", "base": -1}}, "backoff must be like"),
    ({"backoff": {"kind": "fixed", "base": 1e300}}, "backoff must be like"),
    ({"backoff": {"kind": "exponential", "base": 5, "cap": None}}, "backoff must be like"),
    ({"backoff": {"kind": "exponential", "base": 5, "factor": 1e200}}, "a factor from 1 to 100"),
    ({"backoff": {"kind": "fixed", "base": 5, "step": 1}}, "backoff must be like"),
    ({"source": ":x"}, "source must be named like api:ebay"),
    ({"source": "api:"}, "source must be named like api:ebay"),
    ({"on_success": 5}, "on_success must name a task"),
    ({"on_dead": {"queue": "q"}}, "on_dead must name a task"),
    ({"on_dead": {"task": "t", "colour": 1}}, "no option colour"),
    ({"on_dead": {"task": "x" * 20000}}, "on_dead must name a task"),
    ({"on_lost": "burn"}, 'on_lost must be "retry" or "dead"'),
    ({"tags": "a"}, "tags must be a list of strings"),
    ({"tags": [1]}, "tags must be a list of strings"),
    ({"batch_id": "7"}, "batch_id must be the id of a batch"),
    ({"unique": "until_done"}, "there is no key"),
    ({"unique": "sometimes", "key": "k"}, "unique must be"),
    ({"unique": "window", "key": "k"}, "belong together"),
    ({"window": 5, "key": "k"}, "belong together"),
    ({"delay": 5, "run_after": "2031-05-01T12:00:00Z"}, "delay and run_after are both given"),
    ({"run_after": "infinity"}, "run_after must be a time with its zone"),
    ({"run_after": "2031-05-01T12:00:00"}, "run_after must be a time with its zone"),
    ({"run_after": "2031-15-01T12:00:00Z"}, "run_after must be a time with its zone"),
    ({"expires_at": "1960-05-01T12:00:00Z"}, "expires_at must be a time .* from 1970 to 2199"),
    ({"key": ""}, "key must be a string of 1–512 bytes"),
    ({"key": "x" * 513}, "key must be a string of 1–512 bytes"),
    ({"job_id": "7"}, "job_id must be a UUID"),
]


async def test_bad_options_are_refused_by_their_name_and_change_nothing(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        for options, message in BAD_OPTIONS:
            with pytest.raises(psycopg.Error, match=message) as refused:
                connection.execute("SELECT rowlock.enqueue('t', '{}', %s)", [json.dumps(options)])
            assert (refused.value.sqlstate or "")[:2] == "RL", options
            assert refused.value.diag.message_hint, options
    assert sql(database, "SELECT count(*) FROM rowlock.jobs") == 0
    assert sql(database, "SELECT count(*) FROM rowlock.job_keys") == 0


@each(
    "given, meant",
    [
        ({"kind": "fixed", "base": 5}, fixed(5)),
        ({"kind": "exponential", "base": 2}, exponential(2)),
        ({"kind": "exponential", "base": 2, "cap": 60, "factor": 3}, exponential(2, 60, 3)),
        (exponential(2, 60, 3).to_json(), exponential(2, 60, 3)),
        (None, DEFAULT_BACKOFF),
    ],
)
async def test_a_backoff_from_sql_means_what_it_means_in_python(database: str, given: Any, meant: Backoff) -> None:
    job_id = call(database, "t", backoff=given)
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
        job = await app.job(call(database, "pay", queue="q", priority=0, max_attempts=3))
        assert (job.queue, job.priority, job.max_attempts, job.timeout_seconds) == ("q", 0, 3, 9)


async def test_the_function_knows_every_option_of_the_list_and_no_other(database: str) -> None:
    with pytest.raises(psycopg.Error, match="no option colour") as refused:
        call(database, "t", colour=1)
    hint = refused.value.diag.message_hint or ""
    named = hint.removeprefix("There are ").partition(";")[0].split(", ")
    assert named == list(OPTIONS)
    for name in named:
        sql(database, "SELECT rowlock.enqueue('t', '{}', %s)", json.dumps({name: None}))


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
        connection.execute("SELECT rowlock.enqueue('t', '{}', '{\"source\": \"api:x\"}')")
        assert told == []
        connection.execute("SELECT rowlock.enqueue('t')")
    assert ["derives its source from its arguments" in line for line in told] == [True]


async def test_functions_that_insert_or_end_jobs_keep_every_option(database: str) -> None:
    """A function that forgets a column drops an option in silence, as `complete_many` once did with `traceparent`."""
    copied = {column for column, _ in columns("new job")}
    with psycopg.connect(database) as connection:
        functions = connection.execute(
            "SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'rowlock'::regnamespace"
        ).fetchall()
    written = re.compile(r"INSERT INTO rowlock\.(jobs_live|jobs_finished) \(([^)]*)\)")
    found = {
        (name, table): set(re.findall(r"\w+", listed))
        for name, text in functions
        if name != "tell_webhook"  # the jobs that deliver webhooks have no other options than those that it names
        for table, listed in written.findall(text)
    }
    assert {name for name, _ in found} >= {"_insert", "_finish", "complete_many"}
    assert {place: copied - listed for place, listed in found.items() if copied - listed} == {}


ONE, TWO = "00000000-0000-7000-8000-000000000001", "00000000-0000-7000-8000-000000000002"
OLD = "00000000-0000-7000-8000-000000000009"


def many(url: str, *jobs: dict[str, Any], **options: Any) -> list[tuple[str, bool]]:
    """Enqueue jobs together; answers the id of each and whether it is new."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT * FROM rowlock.enqueue_many('t', %s, %s)",
            [json.dumps([{"args": {"n": n}, **job} for n, job in enumerate(jobs)]), json.dumps(options)],
        ).fetchall()
    return [(str(job_id), created) for job_id, created in rows]


def made(url: str) -> dict[str, int]:
    """The jobs there are: id -> the number of the element that it was made of."""
    with psycopg.connect(url) as connection:
        return {str(job_id): args["n"] for job_id, args in connection.execute("SELECT id, args FROM rowlock.jobs")}


def reserved(url: str) -> list[str]:
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT key FROM rowlock.job_keys WHERE scope = 'id' ORDER BY key").fetchall()
    return [key for (key,) in rows]


async def test_a_job_id_that_is_given_twice_in_one_call_makes_one_job_of_the_first(database: str) -> None:
    assert many(database, {"job_id": ONE}, {"job_id": ONE}, {"job_id": TWO}) == [(ONE, True), (ONE, False), (TWO, True)]
    assert made(database) == {ONE: 0, TWO: 2}
    keyed = ({"job_id": OLD, "key": "k"}, {"job_id": OLD, "key": "k"})
    assert many(database, *keyed) == [(OLD, True), (OLD, False)]


async def test_one_job_id_with_two_keys_is_refused_and_reserves_nothing(database: str) -> None:
    with pytest.raises(psycopg.Error, match=f"job_id {ONE} is given to jobs with different keys") as refused:
        many(database, {"job_id": ONE, "key": "a"}, {"job_id": ONE, "key": "b"})
    assert refused.value.sqlstate == "RL001"
    assert (made(database), reserved(database)) == ({}, [])


async def test_of_two_jobs_with_one_key_and_ids_the_first_is_made_and_the_other_id_stays_free(database: str) -> None:
    assert many(database, {"job_id": TWO, "key": "k"}, {"job_id": ONE, "key": "k"}) == [(TWO, True), (TWO, False)]
    assert made(database) == {TWO: 0}
    assert reserved(database) == [TWO]
    assert many(database, {"job_id": ONE}) == [(ONE, True)]


async def test_a_job_whose_key_an_older_job_holds_does_not_reserve_its_id(database: str) -> None:
    ((older, _),) = many(database, {"key": "k"})
    assert many(database, {"job_id": ONE, "key": "k"}, {"job_id": TWO, "key": "l"}) == [(older, False), (TWO, True)]
    assert reserved(database) == [TWO]


async def test_an_id_that_is_known_takes_no_key(database: str) -> None:
    many(database, {"job_id": ONE})
    assert many(database, {"job_id": ONE, "key": "k"}, {"job_id": TWO, "key": "k"}) == [(ONE, False), (TWO, True)]


@each("task", ["rowlock.webhook", "rowlock.", "rowlock.x"])
async def test_tasks_of_rowlock_itself_cannot_be_enqueued(database: str, task: str) -> None:
    with pytest.raises(psycopg.Error, match="are for the tasks of Rowlock itself") as refused:
        call(database, task)
    assert refused.value.sqlstate == "RL001"
    with pytest.raises(psycopg.Error, match="on_success: task rowlock"):
        call(database, "t", on_success=task)


@each("source", [7, [], {}, True, "", ":", "a:", "s" * 201], ids=str)
async def test_the_source_of_one_job_is_a_text_of_its_form(database: str, source: Any) -> None:
    with pytest.raises(psycopg.Error, match="source must be named like") as refused:
        many(database, {}, {"source": source})
    assert refused.value.sqlstate == "RL001"
    assert made(database) == {}


async def test_one_job_of_many_may_have_a_source_of_200_characters_or_none(database: str) -> None:
    many(database, {"source": "s" * 200}, {"source": None})
    assert len(made(database)) == 2
