"""Rows that no Rowlock wrote: put in by SQL, past the checks and triggers of today, as an older schema let them in."""

from typing import NamedTuple

import apsw
import psycopg

HUGE = '{"n": 1' + "0" * 5000 + "}"
OLD_LEASE = {
    "state": "'running'",
    "ready": "FALSE",
    "lease_token": "'00000000-0000-4000-8000-000000000001'",
    "locked_by": "'gone'",
    "locked_at": "{ago}",
    "lease_expires_at": "{ago}",
}
TIMES = {
    "sqlite": {
        "ago": "unixepoch() - 3600",
        "infinity": "9e999",
        "never": "-9e999",
        "far": "568971820800",  # the year 20000
        "bc": "-62200000000",
    },
    "postgres": {
        "ago": "now() - interval '1 hour'",
        "infinity": "'infinity'",
        "never": "'-infinity'",
        "far": "'20000-01-01Z'",
        "bc": "'0002-01-01 BC'",
    },
}


class Bad(NamedTuple):
    """What is wrong with a row of jobs_live, as SQL; `engine` if only one has such a type."""

    columns: dict[str, str]
    engine: str | None = None


# Each is otherwise a job of the task `t` that is ready.
BAD: dict[str, Bad] = {
    "a state that there is not": Bad({"state": "'paused'"}),
    "such a state, waiting": Bad({"state": "'paused'", "ready": "FALSE", "run_after": "{ago}"}),
    "due at infinity": Bad({"run_after": "{infinity}", "ready": "FALSE"}),
    "due since for ever": Bad({"run_after": "{never}", "ready": "FALSE"}),
    "due in the year 20000": Bad({"run_after": "{far}", "ready": "FALSE"}),
    "due before Christ": Bad({"run_after": "{bc}"}),
    "made in the year 20000": Bad({"created_at": "{far}", "updated_at": "{infinity}"}),
    "a latest start before Christ": Bad({"expires_at": "{bc}"}),
    "a latest start at infinity": Bad({"expires_at": "{infinity}"}),
    "a number of 5,000 digits": Bad({"args": f"'{HUGE}'"}),
    "a NUL in the arguments": Bad({"args": """'{"n": "\\u0000"}'"""}),
    "half of a surrogate pair": Bad({"args": """'{"n": "\\ud800"}'""", "tags": """'["\\u0000", "\\ud800"]'"""}),
    "arguments that are a list": Bad({"args": "'[1, 2]'"}),
    "tags that are no list": Bad({"tags": """'{"a": 1}'"""}),
    "tags that are numbers": Bad({"tags": "'[1, [2]]'"}),
    "a backoff beyond all measure": Bad({"backoff": """'{"kind": "exponential", "base": "x", "cap": []}'"""}),
    "more attempts than a number holds": Bad({"attempt": "2147483647"}, "postgres"),
    "fewer attempts than none": Bad({"attempt": "-5"}),
    "a batch that there is not": Bad({"batch_id": "'00000000-0000-7000-8000-00000000dead'"}),
    "follow-ups that are none": Bad({"on_success": "'[]'", "on_dead": """'{"no": "task"}'"""}),
    "kept for ever": Bad({"keep_seconds": "1e300"}),
    "text without end": Bad({"error_message": f"'{'x' * 300_000}'", "phase": "'p'"}),
    "a key that nobody holds": Bad({"unique_key": "'k'", "unique_mode": "'until_done'"}),
    "a lost lease, attempts below none": Bad({**OLD_LEASE, "attempt": "-5", "on_lost": "'dead'"}),
    "half a lease": Bad({"state": "'running'", "ready": "FALSE", "lease_expires_at": "{ago}"}),
    "a lease at infinity": Bad({**OLD_LEASE, "locked_at": "{never}", "heartbeat_at": "{far}"}),
    "no JSON": Bad({"args": "'{bad'", "tags": "'nor this'", "backoff": "'{'"}, "sqlite"),
    "bytes for arguments": Bad({"args": "x'00ff'"}, "sqlite"),
    "text where numbers belong": Bad({"progress": "'much'", "keep_seconds": "'long'", "run_after": "'soon'"}, "sqlite"),
    "a lost lease with text for numbers": Bad({**OLD_LEASE, "losses": "'many'"}, "sqlite"),
}


def bad_rows(engine: str) -> dict[str, Bad]:
    """Those that this engine can hold, by what is wrong."""
    return {name: bad for name, bad in BAD.items() if bad.engine in (None, engine)}


def bad_id(name: str) -> str:
    """The id of the job with this defect; below all real ones."""
    return f"00000000-0000-7000-8000-{1000 + list(BAD).index(name):012d}"


def insert_bad_rows(url: str, only: list[str] | None = None) -> None:
    """Put them in, with the table's defences switched off meanwhile."""
    engine = "sqlite" if url.startswith("sqlite") else "postgres"
    statements = [insert(engine, name, bad) for name, bad in bad_rows(engine).items() if only is None or name in only]
    undefended(url, statements)


def insert(engine: str, name: str, bad: Bad) -> str:
    table = {"sqlite": "rowlock_jobs_live", "postgres": "rowlock.jobs_live"}[engine]
    moments = TIMES[engine]
    row = {"id": f"'{bad_id(name)}'", "task": "'t'", "queue": "'default'", "state": "'queued'", "ready": "TRUE"}
    row |= {"args": "'{}'", "max_attempts": "1"}
    row |= dict.fromkeys(("run_after", "created_at", "updated_at"), "{ago}")
    row |= bad.columns
    values = [moments.get(text.strip("{}"), text) if text.startswith("{") else text for text in row.values()]
    return f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join(values)})"


def undefended(url: str, statements: list[str]) -> None:
    """Run statements on a table without checks and triggers, and give it both back."""
    if url.startswith("sqlite"):
        connection = apsw.Connection(url.removeprefix("sqlite:///"))
        connection.set_busy_timeout(10_000)
        connection.execute("PRAGMA ignore_check_constraints = ON")
        triggers = [row[0] for row in connection.execute("SELECT sql FROM sqlite_master WHERE type = 'trigger'")]
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")]
        dropped = [f"DROP TRIGGER {name}" for name in names]
        for statement in ("BEGIN IMMEDIATE", *dropped, *statements, *triggers, "COMMIT"):
            connection.execute(statement)
        connection.close()
        return
    with psycopg.connect(url) as other:
        (check,) = other.execute(
            "SELECT pg_get_constraintdef(oid) || ' NOT VALID' FROM pg_constraint WHERE conname = 'jobs_live_row'"
        ).fetchone() or ("",)
        other.execute("ALTER TABLE rowlock.jobs_live DISABLE TRIGGER USER, DROP CONSTRAINT jobs_live_row")
        for statement in statements:
            other.execute(statement)
        other.execute(f"ALTER TABLE rowlock.jobs_live ENABLE TRIGGER USER, ADD CONSTRAINT jobs_live_row {check}")
