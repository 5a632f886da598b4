"""One execution, run to its end: the document's `Executor.execute(job_info)`, with or without a pool beside it.

Its six steps (mark RUNNING, make the handler, run it under its timeout; then complete, fail or time out, and decide
about a retry) are those of a worker, under a lease: `Lease.run()`. If a pool has claimed the execution already, this
waits for the pool: only one of them runs it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from rowlock import JobCancelled, JobDead, JobHandle, LeaseLost, NotAllowed, Rowlock, TaskNotFound
from rowlock_apps.cronjobs.app import app as default_app
from rowlock_apps.cronjobs.by_hand import claim_execution
from rowlock_apps.cronjobs.cron_jobs import CronJob
from rowlock_apps.cronjobs.executions import Execution, get_execution

LOOK_SECONDS = 0.5  # between reads of an execution that another worker runs, or that waits for its retry


class Executor:
    """Runs executions to their end."""

    def __init__(self, app: Rowlock = default_app) -> None:
        self._app = app

    async def execute(self, job_info: Execution | CronJob | str, timeout: float | None = None) -> Execution:
        """Run an execution to its end, retries included; with a cron job (or its name), one that is created now, beside
        its ticks. How it ended is its status: a handler that fails raises nothing here. TimeoutError when all of it
        takes longer than `timeout`: the execution is PENDING again, or goes on in the pool that has it."""
        if isinstance(job_info, Execution):
            job = await self._app.job(job_info.id)
        else:
            job = await self._app.schedules.run(job_info.id if isinstance(job_info, CronJob) else job_info)
        async with asyncio.timeout(timeout):
            await self._see_through(job, known=self._knows(job.record.task))
        return await get_execution(job.id, app=self._app)

    def _knows(self, handler_name: str) -> bool:
        try:
            self._app.get_task(handler_name)
        except TaskNotFound:
            return False
        return True

    async def _see_through(self, job: JobHandle[object], *, known: bool) -> None:
        """Claim and run until it has ended, here or elsewhere. A handler not known here is left to a pool."""
        while not (await job.refresh()).record.final:
            lease = None
            with suppress(NotAllowed):  # it has a source, whose limits only workers keep: a pool must run it
                lease = await claim_execution(job.id, app=self._app) if known else None
            if lease is not None:
                with suppress(LeaseLost):  # another worker has it now
                    await lease.run()
            else:
                with suppress(TimeoutError, JobDead, JobCancelled):
                    await job.wait(LOOK_SECONDS)
