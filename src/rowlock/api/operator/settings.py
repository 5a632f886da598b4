"""The settings that the server runs with: versions, limits, retention, tokens; read only, and without a secret. And the
audit of what operators did.

Every setting here is named one by one: a new setting is not shown until somebody has decided that it isn't a secret.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Query
from pydantic.alias_generators import to_camel

from rowlock.api.access import tokens
from rowlock.api.context import Serving
from rowlock.api.jobs import webhooks
from rowlock.api.operator.route import Rows, operator_router
from rowlock.client.settings import VERSION
from rowlock.core.config import Settings
from rowlock.core.job import MAX_ARGS_BYTES, MAX_PRIORITY, MAX_RESULT_BYTES, MIN_PRIORITY
from rowlock.store import audit
from rowlock.store.engine.migrate import schema
from rowlock.store.engine.operation import Call, Row, Steps, operation
from rowlock.store.engine.store import dialect_of, redact

MOST_TOKENS = 100
WORKER = (
    *("pool_size", "processes", "queues", "poll_interval_seconds", "claim_batch_size", "heartbeat_seconds"),
    *("lease_seconds", "sweep_seconds", "shutdown_timeout_seconds"),
)
LIMITS = (
    *("body_bytes", "argument_depth", "jobs_per_owner", "connections_per_owner", "requests_per_minute"),
    *("address_requests_per_minute", "stranger_requests_per_minute", "session_seconds"),
)
SECRET = ("id", "owner", "created_at", "expires_at")

router = operator_router()


@operation(read=True)
def about() -> Steps[Row]:
    """The database: the program that keeps it (`server`), and the number of its newest migration (`schema`)."""
    (row,) = yield Call("about")
    return row


@router.get("/settings")
async def settings(service: Serving) -> dict[str, Any]:
    """What this server runs with. Workers may have other settings: each process reads its own."""
    given, found = service.client.settings, await service.look(about())
    dialect = dialect_of(given.database)
    code = schema(dialect.name).migrations[-1].number
    known = await service.look(tokens.tokens(MOST_TOKENS + 1))
    secrets = await service.look(webhooks.secrets())
    shown = {
        "version": VERSION,
        "python": platform.python_version(),
        "engine": "sqlite" if dialect.is_file else "postgresql",
        "server": found.server,
        "database": shown_address(given.database),
        "schema": {"version": found.schema or 0, "code": code},
        "zone": given.api.zone,
        "retention": {"succeededDays": given.retention.succeeded_days, "deadDays": given.retention.dead_days},
        "limits": {
            "argsBytes": MAX_ARGS_BYTES,
            "resultBytes": MAX_RESULT_BYTES,
            "priority": (MIN_PRIORITY, MAX_PRIORITY),
            **_named(given.api, LIMITS),
        },
        "worker": _named(given.worker, WORKER),
        "parts": _parts(given),
        "tokens": known[:MOST_TOKENS],
        "tokensExact": len(known) <= MOST_TOKENS,
        "webhookSecrets": [_named(one, SECRET) for one in secrets[:MOST_TOKENS]],
    }
    return service.record(shown)


@router.get("/audit")
async def list_audit(
    service: Serving,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    before: Annotated[int, Query(ge=1, le=audit.NEWEST)] = audit.NEWEST,
) -> Rows:
    """What was done by the command line and through the API, newest first."""
    found = await service.look(audit.entries(limit, before))
    return Rows(items=[service.record(entry) for entry in found])


def shown_address(url: str) -> str:
    """A database's address without its password and without parameters, which may hold one."""
    place = url.partition("?")[0]
    return place if dialect_of(url).is_file else redact(place)


def _parts(given: Settings) -> dict[str, bool]:
    """Which optional parts are set up; where they are and how they log in is not shown."""
    return {
        "redis": given.redis.url is not None,
        "objectStorage": given.results.url is not None,
        "jwt": given.api.jwt is not None,
        "webhooks": given.api.webhooks.enabled,
        "alerts": bool(given.alerts.rules),
        "sentry": given.sentry.enabled or given.sentry.dsn is not None,
        "traces": given.traces.enabled,
        "openMetrics": given.api.metrics_open,
    }


def _named(one: object, names: Sequence[str]) -> dict[str, Any]:
    return {to_camel(name): getattr(one, name) for name in names}
