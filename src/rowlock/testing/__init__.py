"""Helpers for your tests: run a task inline, run all due jobs, assert what was enqueued, move the clock.

    async with testing(app) as t:
        await sign_up(email="a@example.com")          # your code, which enqueues
        t_job = await t.assert_enqueued(send_mail, to="a@example.com")
        await t.drain()                                # a real worker runs everything that is due
        await t.travel(minutes=5)                      # delayed jobs and retries become due
        await t.drain()

The database is a real SQLite file in a temporary folder (or the database whose URL you give), the worker is the one
that runs in production, and the clock only moves when you move it.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from rowlock.app import Rowlock
from rowlock.client.context import Context
from rowlock.client.handles.job import JobHandle
from rowlock.client.open_stores import Stores
from rowlock.client.tasks.task import Task
from rowlock.core.job import Claimed, Job
from rowlock.core.states import FINAL
from rowlock.core.times import FakeClock
from rowlock.store.engine.ids import new_id, new_token
from rowlock.store.jobs import claim
from rowlock.store.read import search
from rowlock.store.read.filter import JobFilter

__all__ = ["Ran", "Testing", "run", "testing"]

CLOSED_SECONDS = 0.5  # drain ends when all sources were closed for this long; a worker finds due jobs sooner


@dataclass
class Ran:
    """What `run` returns: the task's value, and every (percent, phase, message) that it reported as progress."""

    value: Any = None
    progress: list[tuple[int | None, str | None, str | None]] = field(default_factory=list)


async def run(
    task: Task[..., Any, Any], /, *, attempt: int = 1, resources: dict[str, Any] | None = None, **arguments: Any
) -> Ran:
    """Run a task in this process, without a database or worker. The arguments pass through JSON, as in production.

    An exception of the task is raised to the caller; `attempt` is what `ctx.attempt` shows.
    """
    ran = Ran()
    text = task.arguments.pack((), arguments)
    queue = task.options.queue
    job = Claimed(new_id(), task.name, queue, args=text, attempt=attempt, token=new_token(), worker="testing")
    ctx = Context(task.app, job, report=lambda *progress: ran.progress.append(progress), resources=resources)
    given = (ctx,) if task.takes_context else ()
    own = ctx.own_transaction
    with own.inside():
        try:
            value = task.function(*given, **task.arguments.unpack(text))
            ran.value = await value if asyncio.iscoroutine(value) else value
            if own.close():
                await own.check()
                await own.commit()
        except BaseException as error:
            await own.roll_back(error)
            raise
    return ran


@asynccontextmanager
async def testing(
    app: Rowlock, *, database: str | None = None, start: datetime | None = None
) -> AsyncIterator[Testing]:
    """While the block runs, `app` uses its own database and a clock that moves only with `travel`."""
    before = (app._settings, app._given, app.clock, app._stores)
    with tempfile.TemporaryDirectory(prefix="rowlock-test-") as folder:
        url = database or f"sqlite:///{Path(folder) / 'jobs.db'}"
        app.configure(app.settings.model_copy(update={"database": url}))
        app.clock, app._stores = FakeClock(start), Stores(app._open)
        try:
            if database is not None:
                await app.migrate()
            yield Testing(app, app.clock)
        finally:
            await app._stores.close_everywhere()
            app._settings, app._given, app.clock, app._stores = before


testing.__test__ = False  # type: ignore[attr-defined]  # pytest collects functions that begin with "test"


class Testing:
    """What a `testing` block gives you: move the clock, run due jobs, look at enqueued jobs."""

    __test__ = False  # pytest would take it for a test class because of its name

    def __init__(self, app: Rowlock, clock: FakeClock) -> None:
        self.app, self.clock = app, clock

    async def travel(
        self, by: float | timedelta = 0, *, seconds: float = 0, minutes: float = 0, hours: float = 0
    ) -> None:
        """Move the clock forward."""
        step = by if isinstance(by, timedelta) else timedelta(seconds=by)
        self.clock.move(step + timedelta(seconds=seconds, minutes=minutes, hours=hours))

    async def drain(self, *, queues: list[str] | None = None, timeout: float = 30) -> list[Job]:
        """Run all due jobs, and the jobs that they enqueue, with a real worker. Returns the jobs that finished.

        Jobs whose source is closed (by a limit, a rate or a pause) stay queued: move the clock or resume the source,
        and drain again. Raises TimeoutError if jobs still run after `timeout` seconds.
        """
        names = sorted(self.app.registry.all())
        served = queues or sorted({task.options.queue for task in self.app.registry.all().values()} | {"default"})
        lanes = [claim.Range(queue, name) for queue in served for name in names]
        store = await self.app.store()
        finished = JobFilter(states=tuple(FINAL))
        seen = {job.id for job in await self._jobs(finished)}
        deadline = time.monotonic() + timeout
        settings = {"queues": served, "pool_size": 1, "poll_interval_seconds": 0.05, "shutdown_timeout_seconds": 5}
        async with self.app.worker(**settings) as pool:
            closed_since = time.monotonic()
            while await store.run(claim.work_left(lanes)):
                closed_since = closed_since if pool.held_up else time.monotonic()
                if time.monotonic() > closed_since + CLOSED_SECONDS:
                    break
                if time.monotonic() > deadline:
                    raise TimeoutError(f"drain(): jobs were still due or running after {timeout:g} s")
                await asyncio.sleep(0.005)
        return [job for job in await self._jobs(finished) if job.id not in seen]

    async def _jobs(self, wanted: JobFilter) -> list[Job]:
        """The newest jobs that fit, oldest first."""
        return (await (await self.app.store()).run(search.list_jobs(wanted, 10_000)))[::-1]

    async def enqueued(self, task: Task[..., Any, Any] | str | None = None, **arguments: Any) -> list[Job]:
        """Jobs in any state, oldest first, of `task` (None: of all) whose arguments include the given ones."""
        name = task.name if isinstance(task, Task) else task
        found = await self._jobs(JobFilter(task=name))
        return [job for job in found if all(job.args.get(key) == value for key, value in arguments.items())]

    async def assert_enqueued(self, task: Task[..., Any, Any] | str, **arguments: Any) -> JobHandle[Any]:
        """The newest job of `task` with these arguments. Raises AssertionError, listing all jobs, if there is none."""
        found = await self.enqueued(task, **arguments)
        if not found:
            name = task.name if isinstance(task, Task) else task
            others = [f"{job.task}({job.args})" for job in await self.enqueued()]
            raise AssertionError(f"no job {name}({arguments}) was enqueued; enqueued: {others or 'nothing'}")
        return await self.app.job(found[-1].id)

    async def refute_enqueued(self, task: Task[..., Any, Any] | str, **arguments: Any) -> None:
        """Raise AssertionError if a job of `task` with these arguments was enqueued."""
        if found := await self.enqueued(task, **arguments):
            raise AssertionError(f"{len(found)} matching jobs enqueued, the first: {found[0].task}({found[0].args})")
