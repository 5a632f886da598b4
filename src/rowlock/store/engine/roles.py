"""PostgreSQL roles with the least rights that the SQL functions need: `rowlock migrate --roles`.

The functions run with their caller's rights, so each role needs rights on tables as well; by column, if it uses only
some. The exceptions are the DEFINERS, which run with their owner's rights and each do one narrow thing. Some take a key
that the caller must name, so a role that enqueues can't read or delete other keys. One reads a lease token, so a role
that only reads never sees tokens. Roles belong to the whole cluster and creating them needs CREATEROLE; without it, an
administrator runs the SQL of `script`.
"""

from __future__ import annotations

from rowlock.core.options import columns
from rowlock.store.engine.migrate import connected

# The functions that each role may call. Names with an underscore are helpers, called with the caller's rights.
CHECKS = ("_refuse", "_shown", "_is_name", "_uuid", "_backoff", "_clock", "_check_task", "_require_read_committed")
KEYS = ("_hold_keys", "_key_holders", "_clear_keys", "_known_ids", "_take_ids", "_give_ids_back")
DEFINERS = (*KEYS, "_probes")
ENQUEUE_PARTS = (
    *CHECKS, *KEYS, "new_id", "_is_source", "_moment", "_follow_up", "_follow_up_options", "_options", "_insert",
    "_take_keys", "_join_batch", "_enqueue", "_job_row",
)  # fmt: skip
SETTLE_PARTS = (
    "_cut", "_delay", "_readable", "_decide", "_draw", "_has_long_number", "_read_follow_up",
    "_add_follow_up", "_end_batches", "_finish", "_tell_end", "_make_sources", "_tell_failures", "_tell_success",
    "_settle", "_why_not", "_lease_part", "_elements", "_seconds", "_cancelled",
)  # fmt: skip
CLAIM_PARTS = (
    "_new_token", "_seen", "_sum_up", "_check_worker", "_promote", "_ready_tasks", "_heads", "_admit", "_take",
    "_sweep_if_needed", "_probes", "_end_rows",
)  # fmt: skip
ENQUEUE = ("enqueue", "enqueue_many", *ENQUEUE_PARTS)
WORKER = (
    "claim", "claim_next_pending_job", "heartbeat", "progress", "progress_many", "complete", "complete_many", "fail",
    "fail_many", "release", "release_many", "sweep", *ENQUEUE, *SETTLE_PARTS, *CLAIM_PARTS,
)  # fmt: skip
FUNCTIONS: dict[str, tuple[str, ...]] = {
    "rowlock_enqueue": ENQUEUE,
    "rowlock_worker": WORKER,
    "rowlock_read": ("_probes",),
    "rowlock_admin": ("cancel", "cancel_many", *WORKER),
}

VIEWS = ("jobs", "recent_jobs", "source_health", "stuck_jobs", "backlog")
READABLE = (
    *VIEWS, "jobs_live", "jobs_finished", "attempts", "batches", "batch_counts", "queues", "workers", "dispatchers",
    "schedules", "ticks", "sources", "tasks", "events", "set_aside", "alerts", "migrations", "schema_files",
    "tallies", "rollups", "counters", "queue_samples", "job_logs",
)  # fmt: skip
SECRET = ("tokens", "requests", "webhook_secrets")
UNREADABLE = (
    "job_keys", "event_listeners", "deleted_events", "app_migrations", "webhooks", "webhook_deliveries", "outbox",
    "alert_lease", "alert_messages", "audit", "previews",
)  # fmt: skip
CHANGE = "SELECT, INSERT, UPDATE, DELETE"
# With a lease token a role could end a job in its worker's place. `probe_token` is that of a source's probe.
TOKENS = ("lease_token", "settled_token", "probe_token")
WITH_TOKENS = ("jobs_live", "jobs_finished", "sources")
READ_BUT_TOKENS = "SELECT (all but tokens)"
NEW_JOB = (
    *("id", "args", "source", "unique_key", "task", "ready", "run_after", "created_at", "updated_at"),
    *(column for column, _ in columns("new job")),
)
# The rights of each role on tables; with column names if a right covers only some columns.
TABLES: dict[str, dict[str, str]] = {
    "rowlock_enqueue": {
        "jobs_live": f"INSERT ({', '.join(NEW_JOB)})",
        "tasks": "SELECT",
        "workers": "SELECT (idle, expires_at)",
        # Adding jobs locks their batch's row, for which PostgreSQL demands the right to update at least one column.
        "batches": "SELECT (id, name, sealed_at, finished_at, cancelled_at, reopened_at), UPDATE (name)",
        "batch_counts": "SELECT, INSERT, UPDATE (total)",
        "audit": "SELECT (id), INSERT",  # `rowlock enqueue` writes who ran it
    },
    "rowlock_worker": {
        "jobs_live": CHANGE,
        "jobs_finished": "SELECT, INSERT",
        "attempts": "SELECT, INSERT",
        "job_keys": "SELECT, DELETE",
        "tasks": "SELECT",
        "queues": "SELECT",
        "set_aside": "SELECT",
        "workers": "SELECT, INSERT, UPDATE",
        "batches": "SELECT, UPDATE",
        "batch_counts": "SELECT, INSERT, UPDATE",
        "sources": "SELECT, INSERT, UPDATE",
        # Triggers write these with the caller's rights.
        "events": "INSERT",
        "event_listeners": "SELECT",
        "webhooks": "SELECT, UPDATE (drop_on)",
        "webhook_deliveries": "INSERT",
        # Triggers write these, and workers sum them up.
        "tallies": CHANGE,
        "rollups": CHANGE,
        "counters": "SELECT, INSERT, UPDATE",
    },
    # The view `jobs` shows it NULL instead of tokens.
    "rowlock_read": dict.fromkeys(READABLE, "SELECT") | dict.fromkeys(WITH_TOKENS, READ_BUT_TOKENS),
    "rowlock_admin": {
        **dict.fromkeys((*READABLE, *SECRET, *UNREADABLE), CHANGE),
        **dict.fromkeys(VIEWS, "SELECT"),
        "migrations": "SELECT",
        "schema_files": "SELECT",
        "app_migrations": "SELECT",
    },
}


def script() -> str:
    """SQL that creates the roles and grants their rights. Running it again is harmless."""
    parts = ["-- Roles belong to the whole cluster: run this as a role with CREATEROLE that owns the schema rowlock."]
    for role in FUNCTIONS:
        parts.append(
            f"DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{role}')"
            f" THEN CREATE ROLE {role} NOLOGIN; END IF;"
            " EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$;"
        )
    parts.append(f"GRANT USAGE ON SCHEMA rowlock TO {', '.join(FUNCTIONS)};")
    parts.append("REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA rowlock FROM PUBLIC;")
    for role, names in FUNCTIONS.items():
        if names:
            called = ", ".join(f"rowlock.{name}" for name in names)
            parts.append(f"GRANT EXECUTE ON FUNCTION {called} TO {role};")
    # First revoke what an older version granted.
    parts.append(f"REVOKE ALL ON ALL TABLES IN SCHEMA rowlock FROM {', '.join(TABLES)};")
    for role, rights in TABLES.items():
        for table, right in rights.items():
            parts.append(
                _grant_but_tokens(table, role)
                if right == READ_BUT_TOKENS
                else f"GRANT {right} ON rowlock.{table} TO {role};"
            )
    return "\n".join(parts) + "\n"


def _grant_but_tokens(table: str, role: str) -> str:
    """Let a role read every column that the table has in this database, except tokens."""
    hidden = ", ".join(f"'{name}'" for name in TOKENS)
    return (
        "DO $$ BEGIN EXECUTE (SELECT format("
        f"'GRANT SELECT (%s) ON rowlock.{table} TO {role}', string_agg(quote_ident(attname), ', '))"
        f" FROM pg_attribute WHERE attrelid = 'rowlock.{table}'::regclass AND attnum > 0 AND NOT attisdropped"
        f" AND attname NOT IN ({hidden})); END $$;"
    )


async def make(url: str) -> bool:
    """Create the roles with their rights. False if this connection's role may not do so; then nothing is changed."""
    import asyncpg

    async with connected(url, "cannot make roles in") as connection:
        try:
            async with connection.transaction():
                await connection.execute(script())
            return True
        except asyncpg.InsufficientPrivilegeError:
            return False
