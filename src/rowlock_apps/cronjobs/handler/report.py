"""Counts the executions that ended in the hours before the tick, and stores the counts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from pydantic import Field

from rowlock import Permanent
from rowlock_apps.cronjobs.handler.base import MAX_RETRY, RETRY_PAUSE, CheckedHandler, Params, handler
from rowlock_apps.cronjobs.sql import moment, query


class ReportParams(Params):
    """Which time a report is about."""

    hours: float = Field(default=24, gt=0, le=24 * 366)  # before the tick


@handler("report", max_attempts=1 + MAX_RETRY, backoff=RETRY_PAUSE, timeout=60)
class ReportHandler(CheckedHandler):
    """Writes one row for each tick; a retry, or a second run after a crash, overwrites that row."""

    shape = ReportParams

    async def run(self, params: ReportParams) -> dict[str, Any]:
        async with self.context.transaction() as tx:  # commits with the execution's SUCCESS
            own = await tx.fetch(query("get_scheduled_time"), self.context.job_id)
            if not own:
                raise Permanent("a report is about a tick: rowlock schedules run NAME", code="NOT_SCHEDULED")
            ((job_id, scheduled_time),) = own
            # By the tick and not by the clock: a report that runs late is still about its own tick.
            end = moment(scheduled_time)
            begin = end - timedelta(hours=params.hours)
            counted = await tx.fetch(query("count_ended"), begin, end)
            body = _body(begin, end, counted)
            await tx.execute(query("save_report"), job_id, end, json.dumps(body))
        return body


def _body(begin: datetime, end: datetime, counted: Iterable[Any]) -> dict[str, Any]:
    jobs: dict[str, dict[str, int]] = {}
    for job_id, status, number in counted:
        jobs.setdefault(job_id, {})[status] = number
    return {"from": begin.isoformat(), "to": end.isoformat(), "executions": jobs}
