"""The SQL of the pages on SQL functions and Supabase runs as it stands, and row-level security keeps strangers out."""

import json
import re
from pathlib import Path
from typing import Any

import psycopg
import pytest

from rowlock.core.options import OPTIONS
from rowlock.store.engine import roles
from support.each import each

DOCS = Path(__file__).resolve().parents[2] / "docs"
ANA, BO = "00000000-0000-4000-8000-00000000000a", "00000000-0000-4000-8000-00000000000b"
# As Supabase has it: the user of a request is in a setting of its transaction.
AUTH = """
    CREATE SCHEMA auth;
    CREATE FUNCTION auth.uid() RETURNS uuid LANGUAGE sql STABLE AS
        $$ SELECT nullif(current_setting('request.jwt.claim.sub', TRUE), '')::uuid $$;
    GRANT USAGE ON SCHEMA auth TO authenticated;
"""
ROLES = ("anon", "authenticated", "service_role", "job_worker", "web_server")


@pytest.fixture
def engine() -> str:
    return "postgres"


@pytest.fixture
async def sql(database: str) -> Any:
    assert await roles.make(database)
    with psycopg.connect(database, autocommit=True) as connection:
        for role in ROLES:
            connection.execute(
                f"DO $$ BEGIN CREATE ROLE {role}; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$"
            )
        yield connection
        connection.execute("CREATE TABLE rowlock.used (x integer)")  # this database is not used again


def blocks(page: str) -> list[str]:
    return re.findall(r"```sql\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def test_the_sql_of_the_reference_page_runs(sql: Any) -> None:
    for block in blocks("reference/sql-functions.md"):
        sql.execute(block)
    states = dict(sql.execute("SELECT task, state FROM rowlock.jobs").fetchall())
    assert states == {"resize": "succeeded", "fetch": "retryable"}


def test_the_reference_page_names_every_function_role_and_option() -> None:
    text = (DOCS / "reference/sql-functions.md").read_text()
    public = [name for name in roles.FUNCTIONS["rowlock_admin"] if not name.startswith("_") and name != "new_id"]
    assert [name for name in public if f"`{name}(" not in text] == []
    assert [role for role in roles.FUNCTIONS if f"`{role}`" not in text] == []
    assert [name for name in OPTIONS if f"`{name}`" not in text] == []


@pytest.fixture
def protected(sql: Any) -> Any:
    sql.execute(AUTH)
    for block in blocks("how-to/supabase.md"):
        sql.execute(block)
    return sql


def as_user(sql: Any, user: str, statement: str, *values: Any, role: str = "authenticated") -> list[Any]:
    with sql.transaction():
        sql.execute(f"SET LOCAL ROLE {role}")
        sql.execute("SELECT set_config('request.jwt.claim.sub', %s, TRUE)", [user])
        found: list[Any] = sql.execute(statement, values).fetchall()
    return found


def options(**given: Any) -> str:
    return json.dumps(given)


def test_users_make_and_see_their_own_jobs_alone(protected: Any) -> None:
    ((job_id,),) = as_user(protected, ANA, "SELECT public.export_replay(7)")
    assert as_user(protected, ANA, "SELECT public.export_replay(7)") == [(job_id,)]  # its key is held
    ((other,),) = as_user(protected, BO, "SELECT public.export_replay(7)")
    assert other != job_id
    assert as_user(protected, ANA, "SELECT id, state FROM public.my_jobs") == [(job_id, "queued")]
    assert as_user(protected, BO, "SELECT id FROM rowlock.jobs_live") == [(other,)]
    for statement in (
        "SELECT * FROM rowlock.claim('w')",
        f"SELECT rowlock.cancel('{job_id}')",
        "SELECT * FROM rowlock.tokens",
        "SELECT id FROM rowlock.jobs",
        "SELECT lease_token FROM rowlock.jobs_live",
        "SELECT args FROM rowlock.jobs_finished",
        "SELECT * FROM public.claim_export('w')",
        "UPDATE rowlock.jobs_live SET owner = owner RETURNING 1",
        "SELECT scope FROM rowlock.job_keys",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            as_user(protected, BO, statement)
    for statement in ("SELECT public.export_replay(7)", "SELECT * FROM public.my_jobs", "SELECT rowlock.enqueue('t')"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            as_user(protected, ANA, statement, role="anon")


NEW_ROW = "ARRAY[CAST(ROW(gen_random_uuid(), '{}', NULL, NULL) AS rowlock._new_row)]"
# Every way to a row of jobs_live that `rowlock_enqueue` has. `%s` are the options.
WAYS = {
    "enqueue": "SELECT rowlock.enqueue('export', '{}', %s)",
    "enqueue_many": "SELECT * FROM rowlock.enqueue_many('export', '[{\"args\": {}}, {\"args\": {}}]', %s)",
    "_enqueue": "SELECT * FROM rowlock._enqueue('x', 'export', '[{\"args\": {}}]', %s)",
    "_insert": f"SELECT rowlock._insert('export', %s, {NEW_ROW})",
    "insert": (
        "INSERT INTO rowlock.jobs_live (id, task, args, queue, priority, max_attempts, ready, owner, on_success,"
        " batch_id, created_at, updated_at, run_after)"
        " SELECT gen_random_uuid(), 'export', '{}', 'default', 0, 5, TRUE, o ->> 'owner',"
        " CAST(o -> 'on_success' AS json),"
        " CAST(o ->> 'batch_id' AS uuid), now(), now(), now() FROM CAST(%s AS jsonb) o RETURNING id"
    ),
}


@each("way", WAYS)
def test_a_caller_enqueues_only_what_its_policies_admit(protected: Any, way: str) -> None:
    ((batch,),) = protected.execute(
        "INSERT INTO rowlock.batches (id, name, owner, created_at) VALUES (gen_random_uuid(), 'b', %s, now())"
        " RETURNING CAST(id AS text)",
        [ANA],
    ).fetchall()
    foreign: list[dict[str, Any]] = [
        {"owner": ANA},
        {},
        {"owner": BO, "batch_id": batch},
        {"owner": BO, "on_success": {"task": "export", "owner": ANA}},
        {"owner": BO, "on_success": {"task": "export", "on_dead": {"task": "export", "owner": ANA}}},
    ]
    for given in foreign:
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
            as_user(protected, BO, WAYS[way], json.dumps(given))
    assert protected.execute("SELECT 1 FROM rowlock.jobs_live").fetchall() == []
    as_user(protected, BO, WAYS[way], json.dumps({"owner": BO, "on_success": {"task": "mail"}}))
    owners = protected.execute("SELECT DISTINCT owner FROM rowlock.jobs_live").fetchall()
    assert owners == [(BO,)]
    protected.execute("DELETE FROM rowlock.jobs_live")


def test_no_function_that_users_can_call_makes_a_job_for_somebody_else(protected: Any) -> None:
    """The functions with the rights of their owner never write to the tables of jobs."""
    called = protected.execute(
        "SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'rowlock'::regnamespace AND prosecdef"
    ).fetchall()
    writes = re.compile(r"(INSERT INTO|UPDATE|DELETE FROM)\s+rowlock\.(\w+)")
    assert {name: {table for _, table in writes.findall(text)} for name, text in called} == {
        "_hold_keys": {"job_keys"}, "_clear_keys": {"job_keys"}, "_take_ids": {"job_keys"},
        "_give_ids_back": {"job_keys"}, "_key_holders": set(), "_known_ids": set(), "refuse_loose_key": set(),
        "_probes": set(),
    }  # fmt: skip


def test_a_user_cannot_hold_a_key_or_an_id_for_which_the_policies_admit_no_job(protected: Any) -> None:
    ((mine,),) = as_user(protected, BO, "SELECT public.export_replay(1)")
    scope, hold = f"export\x1f{ANA}", "SELECT rowlock._hold_keys(%s, '{8}', ARRAY[CAST(%s AS uuid)], 'forever', NULL)"
    chosen = "00000000-0000-7000-8000-00000000000c"
    for statement, values in (
        (hold, [scope, chosen]),  # for no job
        (hold, [scope, str(mine)]),  # for a job of another owner
        ("SELECT rowlock._take_ids(ARRAY[CAST(%s AS uuid)])", [chosen]),
    ):
        with pytest.raises(psycopg.Error, match="which there is not or which has another key") as refused:
            as_user(protected, BO, statement, *values)
        assert refused.value.sqlstate == "RL001"
    ((made,),) = as_user(protected, ANA, "SELECT public.export_replay(8)")
    assert as_user(protected, ANA, "SELECT id FROM public.my_jobs") == [(made,)]
    again = options(owner=ANA, job_id=chosen, key="c", unique="window", window=3600)
    for _ in range(2):
        assert as_user(protected, ANA, "SELECT CAST(rowlock.enqueue('export', '{}', %s) AS text)", again) == [(chosen,)]


def test_a_key_may_be_taken_and_let_go_in_one_transaction(protected: Any) -> None:
    with protected.transaction():
        protected.execute("SET LOCAL ROLE job_worker")
        for unique in ("while_queued", "until_done", "forever"):
            protected.execute("SELECT rowlock.enqueue('export', '{}', %s)", [options(key=unique, unique=unique)])
            (job,) = protected.execute("SELECT job_id, token FROM rowlock.claim('w', '{export}', 1)").fetchall()
            protected.execute("SELECT rowlock.complete(%s, %s)", job)
    keys = protected.execute("SELECT key FROM rowlock.job_keys").fetchall()
    assert keys == [("forever",)]


def test_an_enqueue_for_another_owner_whose_key_is_held_answers_that_job_and_makes_none(protected: Any) -> None:
    ((job_id,),) = as_user(protected, ANA, "SELECT public.export_replay(7)")
    given = options(owner=ANA, key="7")
    assert as_user(protected, BO, "SELECT rowlock.enqueue('export', '{}', %s)", given) == [(job_id,)]
    assert protected.execute("SELECT count(*) FROM rowlock.jobs_live").fetchone() == (1,)


def test_a_service_role_claims_and_ends_jobs_by_functions_of_its_own(protected: Any) -> None:
    as_user(protected, ANA, "SELECT public.export_replay(1)")
    ((job_id, token, args, attempt),) = as_user(
        protected, "", "SELECT * FROM public.claim_export('w')", role="service_role"
    )
    assert (args, attempt) == ({"replayId": 1}, 1)
    ended = 'SELECT public.complete_export(%s, %s, \'{"file": "a.mp4"}\')'
    assert as_user(protected, "", ended, job_id, token, role="service_role") == [("applied",)]
    assert as_user(protected, ANA, "SELECT state, result FROM public.my_jobs") == [("succeeded", {"file": "a.mp4"})]


def test_a_reader_of_the_staff_still_reads_the_view(protected: Any) -> None:
    as_user(protected, ANA, "SELECT public.export_replay(1)")
    protected.execute("SET ROLE rowlock_read")
    found = protected.execute("SELECT state, lease_token FROM rowlock.jobs").fetchall()
    protected.execute("RESET ROLE")
    assert found == [("queued", None)]


def test_a_worker_runs_the_jobs_of_all_owners_and_each_owner_sees_the_end_of_theirs(protected: Any) -> None:
    as_user(protected, ANA, "SELECT public.export_replay(1)")
    as_user(protected, BO, "SELECT public.export_replay(1)")
    with protected.transaction():
        protected.execute("SET LOCAL ROLE job_worker")
        held = protected.execute(
            "SELECT job_id, token FROM rowlock.claim('w', '{export}', 10, '{\"queues\": [\"exports\"]}')"
        ).fetchall()
        assert len(held) == 2
        for job_id, token in held:
            answer = protected.execute("SELECT rowlock.complete(%s, %s, '1')", [job_id, token]).fetchone()
            assert answer == ("applied",)
    assert as_user(protected, ANA, "SELECT state FROM public.my_jobs") == [("succeeded",)]
    assert as_user(protected, BO, "SELECT count(*) FROM rowlock.jobs_finished") == [(1,)]
