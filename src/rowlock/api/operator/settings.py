"""What the server runs with, for people: versions, limits, retention, tokens. Read only, and without a secret.

Everything here is named one by one: a new setting is not shown until somebody has decided that it is no secret.
"""

from __future__ import annotations

import platform
from typing import Any
from urllib.parse import urlsplit

from rowlock.api.operator.common import operator_router, plain
from rowlock.api.service import Serving
from rowlock.client.version import VERSION
from rowlock.core.config import Settings
from rowlock.core.job import MAX_ARGS_BYTES, MAX_PRIORITY, MAX_RESULT_BYTES, MIN_PRIORITY
from rowlock.store import tokens, webhooks
from rowlock.store.about import about
from rowlock.store.migrate import migrations
from rowlock.store.tokens import Token
from rowlock.store.webhooks import Secret

MOST_TOKENS = 100
WORKER = (
    *("pool_size", "processes", "queues", "poll_interval_seconds", "claim_batch_size", "heartbeat_seconds"),
    *("lease_seconds", "sweep_seconds", "shutdown_timeout_seconds"),
)
LIMITS = (
    *("body_bytes", "argument_depth", "jobs_per_owner", "connections_per_owner", "requests_per_minute"),
    *("address_requests_per_minute", "stranger_requests_per_minute", "session_seconds"),
)

router = operator_router()


@router.get("/settings")
async def settings(service: Serving) -> dict[str, Any]:
    """What this server runs with. Workers may have other settings: each process reads its own."""
    given, found = service.client.settings, await service.look(about())
    engine = "sqlite" if given.database.startswith("sqlite") else "postgresql"
    code = max(one.number for one in migrations("sqlite" if engine == "sqlite" else "postgres"))
    known = await service.look(tokens.tokens(MOST_TOKENS + 1))
    secrets = await service.look(webhooks.secrets())
    shown = {
        "version": VERSION,
        "python": platform.python_version(),
        "engine": engine,
        "server": found.server,
        "database": shown_address(given.database),
        "schema": {"version": found.schema, "code": code},
        "zone": given.api.zone,
        "retention": {"succeededDays": given.retention.succeeded_days, "deadDays": given.retention.dead_days},
        "limits": {"argsBytes": MAX_ARGS_BYTES, "resultBytes": MAX_RESULT_BYTES, "priority": PRIORITY}
        | {camel(name): getattr(given.api, name) for name in LIMITS},
        "worker": {camel(name): getattr(given.worker, name) for name in WORKER},
        "parts": _parts(given),
        "tokens": [_token(one) for one in known[:MOST_TOKENS]],
        "tokensExact": len(known) <= MOST_TOKENS,
        "webhookSecrets": [_secret(one) for one in secrets[:MOST_TOKENS]],
    }
    return plain(shown, service.zone)  # type: ignore[no-any-return]


PRIORITY = (MIN_PRIORITY, MAX_PRIORITY)


def shown_address(url: str) -> str:
    """A database's address without its password and without parameters, which may hold one."""
    parts = urlsplit(url)
    if parts.scheme.startswith("sqlite"):
        return url.partition("?")[0]
    user, at, place = parts.netloc.rpartition("@")
    return f"{parts.scheme}://{user.partition(':')[0]}{at}{place}{parts.path}"


def camel(name: str) -> str:
    """A setting's name as JSON has it."""
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


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


def _token(one: Token) -> dict[str, Any]:
    return {
        "id": one.id,
        "kind": one.kind,
        "hint": one.hint,  # the first characters, as `rowlock tokens list` shows them
        "owner": one.owner,
        "scope": one.scope,
        "jobId": one.job_id,
        "createdAt": one.created_at,
        "expiresAt": one.expires_at,
        "revokedAt": one.revoked_at,
    }


def _secret(one: Secret) -> dict[str, Any]:
    return {"id": one.id, "owner": one.owner, "createdAt": one.created_at, "expiresAt": one.expires_at}
