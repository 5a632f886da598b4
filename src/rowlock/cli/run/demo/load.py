"""The mixed load of `rowlock demo`: which jobs it enqueues, how each must end, and what happened to them so far."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rowlock.app import Rowlock
from rowlock.cli.inspect.job_story import brief_error
from rowlock.cli.run.demo import tasks
from rowlock.client.tasks.task import Task
from rowlock.core.job import Job
from rowlock.core.states import State
from rowlock.store.read.filter import JobFilter
from rowlock.store.read.search import list_jobs

FAST_JOBS = 40
IMPORTS = ("orders.csv", "photos.zip", "bookmarks.html", "mails.mbox", "notes.md")
CANCEL_AT = 10  # percent


class Load:
    """The jobs of one demo, found again by their tag, and how each must end."""

    def __init__(self) -> None:
        self.expected: dict[str, State] = {}
        self._tag = f"demo-{secrets.token_hex(4)}"
        self._seen: dict[str, Job] = {}
        self._retried: Counter[str] = Counter()  # by job id: how many failed attempts were already printed
        self._to_cancel = ""

    async def enqueue(self) -> None:
        """Enqueue everything, the slow ones first."""
        (self._to_cancel,) = await self._add(tasks.mirror, State.CANCELLED, [{}])
        await self._add(tasks.primes, State.SUCCEEDED, [{"below": 20_000_000}])
        await self._add(tasks.charge, State.SUCCEEDED, [{"amount": 42}])
        await self._add(tasks.fetch, State.DEAD, [{"url": "https://example.com/gone"}])
        await self._add(tasks.report, State.DEAD, [{}])
        await self._add(tasks.import_file, State.SUCCEEDED, [{"name": name} for name in IMPORTS])
        await self._add(tasks.resize, State.SUCCEEDED, [{"number": number} for number in range(FAST_JOBS)])

    async def _add(self, task: Task[..., Any, Any], end: State, arguments: Sequence[Mapping[str, Any]]) -> list[str]:
        ids = [job.id for job in await task.using(tags=[self._tag]).enqueue_many(arguments)]
        self.expected |= dict.fromkeys(ids, end)
        return ids

    async def look(self, app: Rowlock) -> tuple[list[Job], list[str]]:
        """All jobs as they are now, oldest first, and what happened since the last look."""
        rows = await (await app.store()).run(list_jobs(JobFilter(tag=self._tag), len(self.expected)))
        rows.reverse()
        events: list[str] = []
        for row in rows:
            events += [*await self._retries(app, row), *_happened(self._seen.get(row.id), row)]
        self._seen = {row.id: row for row in rows}
        return rows, events + await self._cancel_running(app)

    async def _retries(self, app: Rowlock, row: Job) -> list[str]:
        """Attempts that failed since the last look, from the table of attempts: the job may already run again."""
        failed = row.attempt if row.state is State.RETRYABLE else row.attempt - 1
        if failed <= self._retried[row.id]:
            return []
        news = (await app.attempts(row.id))[self._retried[row.id] : failed]
        self._retried[row.id] += len(news)
        return [
            f"{row.task}: attempt {one.attempt} failed ({brief_error(one.error_code, one.error_message)}), "
            "will be tried again"
            for one in news
        ]

    async def _cancel_running(self, app: Rowlock) -> list[str]:
        job = self._seen.get(self._to_cancel)
        if job is None or job.state is not State.RUNNING or (job.progress or 0) < CANCEL_AT:
            return []
        self._to_cancel = ""
        await app.cancel(job.id)
        return [f"{job.task}: cancel asked for"]

    def mistakes(self, rows: Sequence[Job]) -> list[str]:
        """One line for each job that did not end as expected."""
        ends = {row.id: row for row in rows}
        return [
            f"{job_id} ({ends[job_id].task}) is {ends[job_id].state}, expected {state}"
            if job_id in ends
            else f"{job_id} is missing, expected {state}"
            for job_id, state in self.expected.items()
            if job_id not in ends or ends[job_id].state is not state
        ]


def _happened(before: Job | None, now: Job) -> Iterator[str]:
    """A line for a job that changed its state; none for demo.resize, of which there are many."""
    if now.task == tasks.resize.name or (before is not None and before.state is now.state):
        return
    error = brief_error(now.error_code, now.error_message)
    match now.state:
        case State.RUNNING:
            yield f"{now.task}: attempt {now.attempt} started"
        case State.SUCCEEDED:
            yield f"{now.task}: succeeded on attempt {now.attempt}"
        case State.DEAD:
            yield f"{now.task}: dead ({error})"
        case State.CANCELLED:
            yield f"{now.task}: cancelled"
