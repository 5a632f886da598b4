"""Cron jobs in the document's words: list them, and add one while workers run.

To pause, resume, run or remove one, use `app.schedules` or `rowlock schedules`: a cron job is a schedule."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rowlock import InvalidArguments, Rowlock, ScheduleNotFound
from rowlock_apps.cronjobs.app import app as default_app
from rowlock_apps.cronjobs.handler.base import MAX_RETRY, check_params
from rowlock_apps.cronjobs.sql import moment, query


@dataclass(frozen=True, slots=True)
class CronJob:
    """A row of `cron_jobs`."""

    id: str
    cron_expression: str
    timezone: str
    handler_name: str
    handler_params: dict[str, Any]
    max_retry: int
    timeout_seconds: float | None
    enabled: bool
    origin: str  # config: of the YAML; runtime: added by hand
    next_run_at: datetime | None
    last_run_at: datetime | None


async def add(
    name: str,
    handler_name: str,
    handler_params: Mapping[str, Any] | None = None,
    *,
    max_retry: int = MAX_RETRY,
    timeout_seconds: float | None = None,
    app: Rowlock = default_app,
    **rule: Any,
) -> CronJob:
    """Add a cron job, or change one that was added by this function. `rule` is one of `cron`, `every` and `at`, with
    the options of a schedule (`zone`, `overlap`, `missed`, …). An unknown handler, params that do not fit it, a rule
    that never fires and a negative max_retry are refused here, and nothing is changed."""
    params = dict(handler_params or {})
    try:
        check_params(handler_name, params)
    except InvalidArguments as error:
        raise InvalidArguments(f"cron job {name!r}: {error}") from None
    limits: dict[str, Any] = {"max_retry": max_retry}
    if timeout_seconds is not None:
        limits["timeout_seconds"] = timeout_seconds
    await app.schedules.add(name, handler_name, handler_params=params, **limits, **rule)
    return await get(name, app=app)


async def get_cron_jobs(*, app: Rowlock = default_app) -> list[CronJob]:
    """Every cron job, by name: those of the YAML and those added by hand."""
    return [_cron_job(*row) for row in await app.fetch(query("get_cron_jobs"))]


async def get(name: str, *, app: Rowlock = default_app) -> CronJob:
    """One cron job; ScheduleNotFound when there is none."""
    for found in await get_cron_jobs(app=app):
        if found.id == name:
            return found
    raise ScheduleNotFound(name)


def _cron_job(*row: Any) -> CronJob:
    values = dict(zip(CronJob.__slots__, row, strict=True))
    for name in ("next_run_at", "last_run_at"):
        values[name] = None if values[name] is None else moment(values[name])
    values["handler_params"] = json.loads(values["handler_params"])
    values["enabled"] = bool(values["enabled"])
    return CronJob(**values)
