"""The SQL of the pages on SQL functions and Supabase runs as it stands, and row-level security keeps strangers out."""

import json
import re
from pathlib import Path
from typing import Any

import psycopg
import pytest

from rowlock.core.options import OPTIONS
from rowlock.store import roles

DOCS = Path(__file__).resolve().parents[2] / "docs"
ANA, BO = "00000000-0000-4000-8000-00000000000a", "00000000-0000-4000-8000-00000000000b"
# As Supabase has it: the user of a request is in a setting of its transaction.
AUTH = """
    CREATE SCHEMA auth;
    CREATE FUNCTION auth.uid() RETURNS uuid LANGUAGE sql STABLE AS
        $$ SELECT nullif(current_setting('request.jwt.claim.sub', TRUE), '')::uuid $$;
    GRANT USAGE ON SCHEMA auth TO authenticated;
"""
ROLES = ("authenticated", "job_worker", "web_server")


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


def test_the_reference_page_runs(sql: Any) -> None:
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


def as_user(sql: Any, user: str, statement: str, *values: Any) -> list[Any]:
    with sql.transaction():
        sql.execute("SET LOCAL ROLE authenticated")
        sql.execute("SELECT set_config('request.jwt.claim.sub', %s, TRUE)", [user])
        found: list[Any] = sql.execute(statement, values).fetchall()
    return found


def test_users_make_and_see_their_own_jobs_alone(protected: Any) -> None:
    ((job_id,),) = as_user(protected, ANA, "SELECT public.export_replay(7)")
    assert as_user(protected, ANA, "SELECT public.export_replay(7)") == [(job_id,)]  # its key is held
    ((other,),) = as_user(protected, BO, "SELECT public.export_replay(7)")
    assert other != job_id
    assert as_user(protected, ANA, "SELECT id, state FROM public.my_jobs") == [(job_id, "queued")]
    assert as_user(protected, BO, "SELECT id FROM rowlock.jobs") == [(other,)]
    for statement in (
        f"SELECT rowlock.enqueue('export', '{{}}', '{json.dumps({'owner': ANA})}')",  # for somebody else
        "SELECT rowlock.enqueue('export')",  # for nobody
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
            as_user(protected, BO, statement)
    for statement in (
        "SELECT * FROM rowlock.claim('w')",
        f"SELECT rowlock.cancel('{job_id}')",
        "SELECT * FROM rowlock.tokens",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            as_user(protected, BO, statement)


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
