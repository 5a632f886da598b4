"""One execution, run to its end: the document's `Executor.execute(job_info)`.

Its six steps (mark RUNNING, make the handler, run it under its timeout; then complete, fail or time out, and decide
about a retry) are those of every worker's executor, under a lease. So this one leaves the execution to the pool,
wherever a worker runs, and waits until it has ended. `by_hand.py` is for those who take the steps themselves."""

from __future__ import annotations

from contextlib import suppress

from rowlock import JobCancelled, JobDead, Rowlock
from rowlock_apps.cronjobs.app import app as default_app
from rowlock_apps.cronjobs.cron_jobs import CronJob
from rowlock_apps.cronjobs.executions import Execution, get_execution


class Executor:
    """Sees executions through."""

    def __init__(self, app: Rowlock = default_app) -> None:
        self._app = app

    async def execute(self, job_info: Execution | CronJob | str, timeout: float | None = None) -> Execution:
        """See an execution through, retries included; of a cron job (or its name) one that is made now, beside its
        ticks. How it ended is its status: a handler that fails raises nothing here. TimeoutError when it takes longer
        than `timeout`: the execution goes on."""
        if isinstance(job_info, Execution):
            job = await self._app.job(job_info.id)
        else:
            job = await self._app.schedules.run(job_info.id if isinstance(job_info, CronJob) else job_info)
        with suppress(JobDead, JobCancelled):  # its status says so
            await job.wait(timeout)
        return await get_execution(job.id, app=self._app)
