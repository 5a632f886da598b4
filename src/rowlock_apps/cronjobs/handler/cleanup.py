"""Deletes old reports. Old executions are deleted by Rowlock itself (`retention` of the config)."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field

from rowlock import Permanent
from rowlock_apps.cronjobs.handler.base import MAX_RETRY, RETRY_PAUSE, CheckedHandler, Params, handler
from rowlock_apps.cronjobs.sql import moment, query


class CleanupParams(Params):
    """What is old."""

    keep_days: float = Field(default=30, gt=0, le=36_500)  # a century


@handler("cleanup", max_attempts=1 + MAX_RETRY, backoff=RETRY_PAUSE, timeout=60)
class CleanupHandler(CheckedHandler):
    """Removes the reports of ticks that are more than `keep_days` before its own tick."""

    shape = CleanupParams

    async def run(self, params: CleanupParams) -> dict[str, int]:
        async with self.context.transaction() as tx:
            own = await tx.fetch(query("get_scheduled_time"), self.context.job_id)
            if not own:
                raise Permanent("a cleanup is of a tick: rowlock schedules run NAME", code="NOT_SCHEDULED")
            ((_, scheduled_time),) = own
            oldest = moment(scheduled_time) - timedelta(days=params.keep_days)
            removed = await tx.fetch(query("remove_reports"), oldest)
        return {"removed": len(removed)}
