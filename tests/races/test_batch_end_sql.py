"""rowlock._end_batches counts a batch once more behind its lock: what it has seen before may be out of date."""

import threading
import uuid
from collections.abc import Iterator

import psycopg
import pytest

from rowlock import Rowlock

GATE = 8_321  # an advisory lock: whoever looks at the table of batches waits for it
SETUP = """
    CREATE FUNCTION public.wait_at_the_gate() RETURNS boolean LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_advisory_xact_lock_shared(8321);
        RETURN TRUE;
    END $$;
    ALTER TABLE rowlock.batches ENABLE ROW LEVEL SECURITY;
    CREATE POLICY gate ON rowlock.batches USING (public.wait_at_the_gate());
    INSERT INTO rowlock.batches (id, name, sealed_at, created_at) VALUES ('{batch}', 'b', now(), now());
    INSERT INTO rowlock.batch_counts (batch_id, shard, total, processed) VALUES ('{batch}', 0, 1, 1);
    CREATE ROLE {role};
    GRANT USAGE ON SCHEMA rowlock TO {role};
    GRANT ALL ON ALL TABLES IN SCHEMA rowlock TO {role};
    GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA rowlock TO {role};
"""


@pytest.fixture
def role(postgres_url: str) -> Iterator[str]:
    """A role for which the policies of tables hold; roles belong to the whole server."""
    name = f"tester_{uuid.uuid4().hex[:12]}"
    yield name
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP OWNED BY {name}")
        connection.execute(f"DROP ROLE {name}")


@pytest.mark.parametrize("added", [False, True], ids=["nothing comes in between", "a job is added in between"])
async def test_a_batch_ends_only_if_nothing_was_added_between_the_look_and_the_lock(
    postgres_url: str, role: str, added: bool
) -> None:
    await Rowlock(postgres_url).migrate()
    batch, answers = str(uuid.uuid4()), list[int]()
    with psycopg.connect(postgres_url, autocommit=True) as other:
        other.execute(SETUP.format(batch=batch, role=role))
        other.execute("SELECT pg_advisory_lock(%s)", [GATE])

        def end() -> None:
            with psycopg.connect(postgres_url, autocommit=True) as connection:
                connection.execute(f"SET ROLE {role}")
                found = connection.execute("SELECT rowlock._end_batches(ARRAY[%s]::uuid[])", [batch]).fetchone()
                answers.append(found[0] if found else -1)

        ending = threading.Thread(target=end)
        ending.start()
        # In this database: pg_locks shows those of the whole server, where another test may wait at its own gate.
        waiting = (
            "SELECT 1 FROM pg_locks l JOIN pg_database d ON d.oid = l.database"
            " WHERE d.datname = current_database() AND l.locktype = 'advisory' AND l.objid = %s AND NOT l.granted"
        )
        while other.execute(waiting, [GATE]).fetchone() is None:  # it has its snapshot, and waits before its lock
            assert ending.is_alive(), answers
        if added:
            other.execute("UPDATE rowlock.batch_counts SET total = total + 1")
        other.execute("SELECT pg_advisory_unlock(%s)", [GATE])
        ending.join(60)
        state = other.execute("SELECT state FROM rowlock.batches").fetchone()
    assert (answers, state) == (([0], ("queued",)) if added else ([1], ("succeeded",)))
