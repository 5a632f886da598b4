"""Roles of PostgreSQL with the least rights that the SQL functions need: `rowlock migrate --roles`.

The functions run with the rights of their caller, so each role has rights on tables too, by column where it writes or
reads only some of them. Roles belong to the whole cluster and need CREATEROLE; without it, an administrator runs the
SQL of `script`.
"""

from __future__ import annotations

from rowlock.store.engines.schema import connected

# What each role may call. Names with an underscore are parts of the others, called with the caller's rights too.
CHECKS = ("_refuse", "_shown", "_is_name", "_uuid", "_backoff", "_clock")
ENQUEUE_PARTS = (
    *CHECKS, "new_id", "_is_source", "_moment", "_follow_up", "_options", "_insert", "_take_keys", "_join_batch",
    "_enqueue", "_job_row",
)  # fmt: skip
SETTLE_PARTS = (
    "_cut", "_delay", "_readable", "_decide", "_draw", "_add_follow_up", "_end_batches", "_finish", "_tell_end",
    "_make_sources",
    "_tell_sources", "_settle", "_lease_part", "_elements", "_seconds", "_plain_end",
)  # fmt: skip
CLAIM_PARTS = (
    "_new_token", "_seen", "_sum_up", "_check_worker", "_promote", "_ready_tasks", "_heads", "_admit", "_take",
    "_sweep_if_needed",
)  # fmt: skip
ENQUEUE = ("enqueue", "enqueue_many", *ENQUEUE_PARTS)
WORKER = (
    "claim", "claim_next_pending_job", "heartbeat", "progress", "progress_many", "complete", "complete_many", "fail",
    "fail_many", "release", "release_many", "sweep", *ENQUEUE, *SETTLE_PARTS, *CLAIM_PARTS,
)  # fmt: skip
FUNCTIONS: dict[str, tuple[str, ...]] = {
    "rowlock_enqueue": ENQUEUE,
    "rowlock_worker": WORKER,
    "rowlock_read": (),
    "rowlock_admin": ("cancel", "cancel_many", *WORKER),
}

VIEWS = ("jobs", "recent_jobs", "source_health", "stuck_jobs", "backlog")
READABLE = (
    *VIEWS, "jobs_live", "jobs_finished", "attempts", "batches", "batch_counts", "queues", "workers", "dispatchers",
    "schedules", "ticks", "sources", "tasks", "events", "set_aside", "alerts", "migrations",
    "tallies", "rollups", "counters", "queue_samples", "job_logs",
)  # fmt: skip
SECRET = ("tokens", "tickets", "login_links", "requests", "webhook_secrets")
UNREADABLE = (
    "job_keys", "event_listeners", "app_migrations", "webhooks", "webhook_deliveries", "outbox", "alert_lease",
    "alert_messages", "audit", "previews",
)  # fmt: skip
CHANGE = "SELECT, INSERT, UPDATE, DELETE"
# What each role may do with a table: a privilege, with columns where it is about some of them only.
TABLES: dict[str, dict[str, str]] = {
    "rowlock_enqueue": {
        "jobs_live": "SELECT (id), INSERT",
        "jobs_finished": "SELECT (id)",
        "job_keys": "SELECT, INSERT, DELETE",
        "tasks": "SELECT",
        "workers": "SELECT (idle, expires_at)",
        # Adding jobs locks the row of their batch, for which PostgreSQL needs the right to update some column.
        "batches": "SELECT (id, name, sealed_at, finished_at, cancelled_at, reopened_at), UPDATE (name)",
        "batch_counts": "SELECT, INSERT, UPDATE (total)",
    },
    "rowlock_worker": {
        "jobs_live": CHANGE,
        "jobs_finished": "SELECT, INSERT",
        "attempts": "SELECT, INSERT",
        "job_keys": "SELECT, INSERT, DELETE",
        "tasks": "SELECT",
        "queues": "SELECT",
        "set_aside": "SELECT",
        "workers": "SELECT, INSERT, UPDATE",
        "batches": "SELECT, UPDATE",
        "batch_counts": "SELECT, INSERT, UPDATE",
        "sources": "SELECT, INSERT, UPDATE",
        # Triggers write them, with the rights of the caller.
        "events": "INSERT",
        "event_listeners": "SELECT",
        "webhooks": "SELECT, UPDATE (drop_on)",
        "webhook_deliveries": "INSERT",
        # Written by triggers and summed up by workers.
        "tallies": CHANGE,
        "rollups": CHANGE,
        "counters": "SELECT, INSERT, UPDATE",
    },
    "rowlock_read": dict.fromkeys(READABLE, "SELECT"),
    "rowlock_admin": {
        **dict.fromkeys((*READABLE, *SECRET, *UNREADABLE), CHANGE),
        **dict.fromkeys(VIEWS, "SELECT"),
        "migrations": "SELECT",
        "app_migrations": "SELECT",
    },
}


def script() -> str:
    """SQL that makes the roles and gives them their rights; it may be run again."""
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
    for role, rights in TABLES.items():
        parts += [f"GRANT {right} ON rowlock.{table} TO {role};" for table, right in rights.items()]
    return "\n".join(parts) + "\n"


async def make(url: str) -> bool:
    """Make the roles with their rights; False when this role may not, and nothing was changed."""
    import asyncpg

    async with connected(url, "cannot make roles in") as connection:
        try:
            async with connection.transaction():
                await connection.execute(script())
            return True
        except asyncpg.InsufficientPrivilegeError:
            return False
