"""The roles of `rowlock migrate --roles`: the whole matrix of role, function and table, and what each role can do."""

import json
import re
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import psycopg
import pytest

from rowlock import Rowlock
from rowlock.store import open_store
from rowlock.store.engine import roles
from rowlock.store.engine.store import StoreOptions
from support.servers.databases import owner_url, take_a_table_away

__all__ = ["owner_url"]  # a fixture

PRIVILEGES = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER")
# Inlined into the statements that call them, which a search_path of their own would prevent; all names are qualified.
WITHOUT_PATH = {"_uuid", "_clock", "_draw", "_new_token", "_shown", "_refuse", "refuse_unreadable"}


@pytest.fixture
def engine() -> str:
    return "postgres"


@pytest.fixture
async def sql(database: str) -> Any:
    assert await roles.make(database)
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection
        connection.execute("RESET ROLE")
        connection.execute(
            f"DROP OWNED BY {', '.join(roles.FUNCTIONS)}"
        )  # rights in this database, which is used again


def test_each_role_may_call_its_functions_and_no_other(sql: Any) -> None:
    """PUBLIC may call none. A new function that no list names is found here."""
    found = sql.execute(
        "SELECT p.proname, r.role FROM pg_proc p CROSS JOIN unnest(%s::text[]) AS r (role)"
        " WHERE p.pronamespace = 'rowlock'::regnamespace AND has_function_privilege(r.role, p.oid, 'EXECUTE')",
        [["public", *roles.FUNCTIONS]],
    ).fetchall()
    assert sorted(found) == sorted((name, role) for role, names in roles.FUNCTIONS.items() for name in names)
    triggers = ("tell_", "refuse_")
    all_names = [name for (name,) in sql.execute(
        "SELECT proname FROM pg_proc WHERE pronamespace = 'rowlock'::regnamespace").fetchall()]  # fmt: skip
    called = [name for name in all_names if not name.startswith(triggers)]
    assert sorted(called) == sorted(roles.FUNCTIONS["rowlock_admin"]), (
        "a function that nobody may call, or two of one name"
    )


def columns_of(sql: Any, table: str) -> list[str]:
    """The columns of a table, apart from those with tokens."""
    found = sql.execute(
        "SELECT attname FROM pg_attribute"
        " WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attname",
        [f"rowlock.{table}"],
    ).fetchall()
    return [name for (name,) in found if name not in roles.TOKENS]


def test_each_role_has_its_rights_on_tables_and_no_other(sql: Any) -> None:
    found = sql.execute(
        """SELECT r.role, c.relname, p.privilege,
                  has_table_privilege(r.role, c.oid, p.privilege),
                  CASE WHEN p.privilege IN ('SELECT', 'INSERT', 'UPDATE', 'REFERENCES') THEN
                      ARRAY(SELECT a.attname::text FROM pg_attribute a
                            WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
                              AND has_column_privilege(r.role, c.oid, a.attnum, p.privilege) ORDER BY 1) END
           FROM pg_class c CROSS JOIN unnest(%s::text[]) AS r (role) CROSS JOIN unnest(%s::text[]) AS p (privilege)
           WHERE c.relnamespace = 'rowlock'::regnamespace AND c.relkind IN ('r', 'p', 'v')""",
        [["public", *roles.TABLES], list(PRIVILEGES)],
    ).fetchall()
    given: dict[tuple[str, str, str], bool | list[str]] = {}
    for role, table, privilege, whole, columns in found:
        if whole or columns:
            given[role, table, privilege] = True if whole else columns
    wanted: dict[tuple[str, str, str], bool | list[str]] = {}
    for role, rights in roles.TABLES.items():
        for table, text in rights.items():
            if text == roles.READ_BUT_TOKENS:
                wanted[role, table, "SELECT"] = columns_of(sql, table)
                continue
            for privilege, columns in re.findall(r"(SELECT|INSERT|UPDATE|DELETE)(?: \(([^)]*)\))?", text):
                wanted[role, table, privilege] = sorted(columns.split(", ")) if columns else True
    assert given == wanted
    secrets = [key for key in given if key[1] in roles.SECRET and key[0] != "rowlock_admin"]
    assert secrets == []


def test_functions_run_with_the_rights_of_their_caller_and_a_fixed_path(sql: Any) -> None:
    rows = sql.execute(
        "SELECT proname, prosecdef, proconfig FROM pg_proc WHERE pronamespace = 'rowlock'::regnamespace"
    ).fetchall()
    assert sorted(name for name, definer, _ in rows if definer) == sorted([*roles.DEFINERS, "refuse_loose_key"])
    free = {name for name, _, config in rows if not any("search_path=pg_catalog" in text for text in config or [])}
    assert free == WITHOUT_PATH


def denied(sql: Any, statement: str, *values: Any) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        sql.execute(statement, values)


def enqueue(sql: Any, task: str = "t", **options: Any) -> Any:
    return sql.execute("SELECT rowlock.enqueue(%s, '{}', %s)", [task, json.dumps(options)]).fetchone()[0]


def make_batch(sql: Any) -> str:
    batch = str(uuid4())
    sql.execute(
        "INSERT INTO rowlock.batches (id, name, on_end, created_at) VALUES (%s, 'b', '{\"task\": \"end\"}', now())",
        [batch],
    )
    return batch


def test_an_enqueuer_makes_jobs_with_all_options_and_is_given_the_job_that_has_the_key(sql: Any) -> None:
    batch = make_batch(sql)
    sql.execute("SET ROLE rowlock_enqueue")
    job_id = enqueue(sql, key="k", batch_id=batch, source="api:x", owner="ana", on_success="u", tags=["a"])
    assert enqueue(sql, key="k") != job_id  # no owner: another scope
    assert enqueue(sql, key="k", owner="ana") == job_id
    enqueue(sql, job_id=str(uuid4()), delay=60, unique="window", window=60, key="w")


def test_an_enqueuer_may_neither_read_nor_change_jobs_nor_enqueue_tasks_of_rowlock_itself(sql: Any) -> None:
    sql.execute("SET ROLE rowlock_enqueue")
    for statement in (
        "SELECT * FROM rowlock.claim('w')",
        "SELECT rowlock.cancel(gen_random_uuid())",
        "SELECT rowlock.sweep()",
        "SELECT state FROM rowlock.jobs",
        "SELECT args FROM rowlock.jobs_live",
        "UPDATE rowlock.jobs_live SET priority = 1",
        "DELETE FROM rowlock.jobs_live",
        "INSERT INTO rowlock.jobs_live (id, task, lease_token) VALUES (gen_random_uuid(), 't', gen_random_uuid())",
        "INSERT INTO rowlock.jobs_live (id, task, state) VALUES (gen_random_uuid(), 't', 'running')",
        "SELECT key FROM rowlock.job_keys",
        "DELETE FROM rowlock.job_keys",
        "INSERT INTO rowlock.job_keys (scope, key, job_id, mode) VALUES ('id', 'k', gen_random_uuid(), 'id')",
        "SELECT * FROM rowlock.tokens",
    ):
        denied(sql, statement)
    with pytest.raises(psycopg.Error, match="tasks of Rowlock itself"):
        enqueue(sql, "rowlock.webhook")


def test_a_reader_reads_the_state_of_jobs_sees_no_token_and_changes_nothing(sql: Any) -> None:
    job_id = enqueue(sql)
    sql.execute("SET ROLE rowlock_read")
    assert sql.execute("SELECT state FROM rowlock.jobs WHERE id = %s", [job_id]).fetchall() == [("queued",)]
    for statement in (
        "SELECT lease_token FROM rowlock.jobs_live",
        "SELECT settled_token FROM rowlock.jobs_live",
        "SELECT settled_token FROM rowlock.jobs_finished",
        "SELECT probe_token FROM rowlock.sources",
        "SELECT rowlock.enqueue('t')",
        "SELECT * FROM rowlock.claim('w')",
        "INSERT INTO rowlock.queues (name) VALUES ('q')",
        "SELECT * FROM rowlock.tokens",
    ):
        denied(sql, statement)


def test_a_worker_ends_a_job_that_has_a_webhook(sql: Any) -> None:
    """The trigger that enqueues the delivery runs with the rights of the worker."""
    job_id = enqueue(sql, owner="ana")
    sql.execute(
        "INSERT INTO rowlock.webhooks (job_id, owner, url, source, queue, max_attempts, backoff, timeout_seconds)"
        " VALUES (%s, 'ana', 'https://shop.example/', 'webhook:shop.example', 'default', 3, '{}', 5)",
        [job_id],
    )
    sql.execute("SET ROLE rowlock_worker")
    (job,) = sql.execute("SELECT job_id, token FROM rowlock.claim('w', '{t}', 1)").fetchall()
    assert sql.execute("SELECT rowlock.complete(%s, %s)", job).fetchone() == ("applied",)
    tasks = "SELECT task FROM rowlock.jobs_live"
    assert sql.execute(tasks).fetchall() == [("rowlock.webhook",)]
    denied(sql, "SELECT * FROM rowlock.webhook_secrets")
    denied(sql, "UPDATE rowlock.webhooks SET url = ''")


def test_a_worker_claims_keeps_ends_and_sweeps_jobs(sql: Any) -> None:
    batch = make_batch(sql)
    for n in range(3):
        enqueue(
            sql, source="domain:x", batch_id=batch, owner="ana", key=str(n), on_success="u", on_dead="u", max_attempts=1
        )
    enqueue(sql, "v", delay=0.01, expires_at="2031-01-01T00:00:00Z")
    enqueue(sql, "v", expires_at="2001-01-01T00:00:00Z")
    sql.execute("UPDATE rowlock.batches SET sealed_at = now()")
    sql.execute("SELECT pg_sleep_until((SELECT max(run_after) FROM rowlock.jobs_live))")
    sql.execute("SET ROLE rowlock_worker")

    def ends(verb: str, job: Any, *more: Any) -> str:
        answer: str = sql.execute(f"SELECT rowlock.{verb}(%s, %s{', %s' * len(more)})", [*job, *more]).fetchone()[0]
        return answer

    jobs = sql.execute("SELECT job_id, token FROM rowlock.claim('w', '{t,v}', 10)").fetchall()
    assert len(jobs) == 3  # two of the source, and one whose latest start has not passed
    sourced = [job for job in jobs if sql.execute(
        "SELECT source FROM rowlock.jobs_live WHERE id = %s", [job[0]]).fetchone()[0]]  # fmt: skip
    leases = json.dumps([{"job_id": str(job_id), "token": str(token)} for job_id, token in jobs])
    beaten = sql.execute("SELECT answer FROM rowlock.heartbeat('w', %s)", [leases]).fetchall()
    assert beaten == [("held",)] * 3
    assert ends("progress", sourced[0], 50) == "held"
    assert ends("complete", sourced[0], "1") == "applied"
    assert ends("fail", sourced[1], "no", '{"fault": "source"}') == "applied"
    (last,) = sql.execute("SELECT job_id, token FROM rowlock.claim_next_pending_job('w')").fetchall()
    assert ends("release", last) == "applied"
    sql.execute("SELECT * FROM rowlock.sweep()")


def test_a_worker_may_neither_cancel_jobs_nor_change_finished_ones(sql: Any) -> None:
    sql.execute("SET ROLE rowlock_worker")
    for statement in (
        "SELECT rowlock.cancel(gen_random_uuid())",
        "DELETE FROM rowlock.jobs_finished",
        "UPDATE rowlock.jobs_finished SET result = '1'",
        "SELECT * FROM rowlock.tokens",
        "SELECT * FROM rowlock.events",
        "DELETE FROM rowlock.sources",
    ):
        denied(sql, statement)


def test_an_admin_cancels_jobs_and_may_not_drop_or_empty_tables(sql: Any) -> None:
    sql.execute("SET ROLE rowlock_admin")
    waiting = enqueue(sql)
    assert sql.execute("SELECT rowlock.cancel(%s)", [waiting]).fetchone() == ("cancelled",)
    denied(sql, "TRUNCATE rowlock.jobs_live")
    denied(sql, "DROP TABLE rowlock.jobs_live")


@pytest.mark.parametrize("lacking", [None, "TABLE rowlock.counters", "FUNCTION rowlock._sum_up"])
def test_a_worker_sums_up_what_was_counted_and_one_that_may_not_works_all_the_same(
    sql: Any, lacking: str | None
) -> None:
    enqueue(sql)
    enqueue(sql)
    if lacking is not None:
        sql.execute(f"REVOKE ALL ON {lacking} FROM rowlock_worker")
    sql.execute("SET ROLE rowlock_worker")
    (job,) = sql.execute("SELECT job_id, token FROM rowlock.claim('w', '{t}', 1)").fetchall()
    assert sql.execute("SELECT rowlock.complete(%s, %s)", job).fetchone() == ("applied",)
    assert len(sql.execute("SELECT * FROM rowlock.claim('another', '{t}', 1)").fetchall()) == 1
    assert sql.execute("SELECT count(*) FROM rowlock.tallies").fetchone() == (0 if lacking is None else 1,)


async def test_a_database_owner_without_createrole_can_migrate(owner_url: str) -> None:
    store = await open_store(owner_url, StoreOptions(migrate=True))
    await store.close()
    take_a_table_away(owner_url)
    assert await roles.make(owner_url) is False
    with psycopg.connect(owner_url) as connection:
        assert connection.execute("SELECT rowlock.enqueue('t')").fetchone() is not None
        # Without the roles, too, nobody but the owner may call a function; those of triggers cannot be called.
        callable_by_all = connection.execute(
            "SELECT proname FROM pg_proc WHERE pronamespace = 'rowlock'::regnamespace"
            " AND prorettype <> 'trigger'::regtype AND has_function_privilege('public', oid, 'EXECUTE')"
        ).fetchall()
        assert callable_by_all == []


def test_a_reader_sees_no_token_in_the_view_and_others_do(sql: Any) -> None:
    enqueue(sql), enqueue(sql)
    one, _ = sql.execute("SELECT job_id, token FROM rowlock.claim('w', '{t}', 2)").fetchall()
    sql.execute("SELECT rowlock.complete(%s, %s)", one)
    tokens = "SELECT state, lease_token IS NULL, settled_token IS NULL FROM rowlock.jobs ORDER BY state"
    assert sql.execute(tokens).fetchall() == [("running", False, True), ("succeeded", True, False)]
    sql.execute("SET ROLE rowlock_admin")
    assert sql.execute(tokens).fetchall() == [("running", False, True), ("succeeded", True, False)]
    sql.execute("SET ROLE rowlock_read")
    assert sql.execute(tokens).fetchall() == [("running", True, True), ("succeeded", True, True)]
    assert len(sql.execute("SELECT * FROM rowlock.jobs").fetchall()) == 2


def test_what_an_enqueuer_can_call_frees_no_key_and_no_id_of_others(sql: Any) -> None:
    held, windowed, chosen = enqueue(sql, key="k"), enqueue(sql, key="w", unique="window", window=3600), str(uuid4())
    enqueue(sql, job_id=chosen)
    pruned = str(uuid4())
    enqueue(sql, job_id=pruned)
    sql.execute("DELETE FROM rowlock.jobs_live WHERE id = %s", [pruned])
    sql.execute("SET ROLE rowlock_enqueue")
    sql.execute("SELECT rowlock._clear_keys(%s, '{k,w}', 'infinity')", ["t\x1f"])
    sql.execute("SELECT rowlock._give_ids_back(ARRAY[%s, %s]::uuid[])", [chosen, pruned])
    for scope, mode in (("id", "id"), ("id", "forever"), ("t\x1f", "id")):
        with pytest.raises(psycopg.Error, match="cannot be held in mode"):
            sql.execute("SELECT rowlock._hold_keys(%s, '{x}', ARRAY[gen_random_uuid()], %s, NULL)", [scope, mode])
    assert (enqueue(sql, key="k"), enqueue(sql, key="w", unique="window", window=3600)) == (held, windowed)
    assert str(enqueue(sql, job_id=chosen)) == chosen
    assert str(enqueue(sql, job_id=pruned)) == pruned  # and makes no job
    sql.execute("RESET ROLE")
    assert sql.execute("SELECT count(*) FROM rowlock.jobs").fetchone() == (3,)


async def test_a_python_program_makes_jobs_with_the_rights_to_enqueue_and_to_read(sql: Any, database: str) -> None:
    """Keys, windows and ids as well."""
    sql.execute("DROP ROLE IF EXISTS rowlock_test_web")
    sql.execute("CREATE ROLE rowlock_test_web LOGIN; GRANT rowlock_enqueue, rowlock_read TO rowlock_test_web")
    try:
        url = urlsplit(database)
        async with Rowlock(urlunsplit(url._replace(netloc=f"rowlock_test_web@{url.hostname}:{url.port}"))) as app:

            @app.task("t")
            async def t(n: int = 0) -> None: ...

            assert (await t.enqueue()).created
            assert len(await t.enqueue_many([{"n": 1}, {"n": 2}])) == 2
            for options in ({"key": "k"}, {"job_id": str(uuid4())}, {"key": "w", "unique": timedelta(hours=1)}):
                using = t.using(**options)  # type: ignore[arg-type]
                first, second = await using.enqueue(), await using.enqueue()
                assert (first.created, second.created, second.id) == (True, False, first.id)
            sql.execute("UPDATE rowlock.job_keys SET expires_at = now() WHERE mode = 'window'")
            assert (await using.enqueue()).created
    finally:
        sql.execute("DROP OWNED BY rowlock_test_web; DROP ROLE rowlock_test_web")


async def test_a_python_program_with_the_right_to_read_explains_jobs_and_sees_no_token(sql: Any, database: str) -> None:
    """Also while a job tries out a source whose breaker is open."""
    sql.execute("INSERT INTO rowlock.sources (name, opened_at, opens) VALUES ('api:x', now() - interval '1 day', 1)")
    running, waiting = enqueue(sql, source="api:x"), enqueue(sql, source="api:x")
    ((claimed,),) = sql.execute("SELECT job_id FROM rowlock.claim('w', '{t}', 9)").fetchall()
    assert claimed == running
    sql.execute("DROP ROLE IF EXISTS rowlock_test_reader")
    sql.execute("CREATE ROLE rowlock_test_reader LOGIN; GRANT rowlock_read TO rowlock_test_reader")
    try:
        url = urlsplit(database)
        async with Rowlock(urlunsplit(url._replace(netloc=f"rowlock_test_reader@{url.hostname}:{url.port}"))) as app:
            assert [job.state for job in await app.jobs()] == ["queued", "running"]
            assert (await app.explain(str(waiting))).reason == "probe"
            assert (await app.explain(str(running))).state == "running"
            assert "api:x" in [source.name for source in await app.sources.list()]
    finally:
        sql.execute("DROP OWNED BY rowlock_test_reader; DROP ROLE rowlock_test_reader")
