"""Jobs in child processes: a pool of them for `runs_in="process"`, and the quarantine of jobs whose worker died.

Children are spawned (never forked) when first needed, and reused. The program that runs inside them is
`rowlock.worker.processes.child`.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any

from rowlock.client.client import Client
from rowlock.client.context import Report
from rowlock.client.tasks import Task
from rowlock.core.errors import LeaseLost
from rowlock.core.outcome import AttemptEnd, Cancelled, Failed, Lost, Released, Succeeded, TimedOut
from rowlock.signals.job_fields import job_fields
from rowlock.worker.job_lines import KeepsLines
from rowlock.worker.loops import to_the_end
from rowlock.worker.processes.output import Output
from rowlock.worker.processes.places import NotImportable, places
from rowlock.worker.processes.spawned import Child, ChildDied, NotStarted
from rowlock.worker.running import Running

log = logging.getLogger("rowlock.worker")

ENDS: dict[str, Callable[..., AttemptEnd]] = {
    kind.__name__: kind for kind in (Succeeded, Failed, TimedOut, Cancelled, Released, Lost)
}


class Children:
    """A pool of up to `size` child processes, started when needed and reused."""

    def __init__(self, app: Client, size: int, lines: KeepsLines | None = None) -> None:
        self._app, self._room, self._lines = app, asyncio.Semaphore(size), lines
        self._all: set[Child] = set()
        self._retiring: set[asyncio.Task[None]] = set()
        self._idle: list[Child] = []
        self._places: dict[str, list[tuple[str, str]]] = {}

    async def run(self, attempt: Running, task: Task[..., Any, Any], report: Report) -> AttemptEnd | None:
        """Run an attempt in a child. None when its own transaction has settled it."""
        try:
            return await self.run_or_raise(attempt, task, report)
        except NotImportable as error:
            hint = "move it to the top level of a module, or use runs_in='thread'"
            return Failed("NOT_IMPORTABLE", f"a child process cannot import task {task.name!r} ({error}); {hint}")
        except NotStarted as error:
            return Failed("CHILD_DIED", str(error))
        except ChildDied as death:
            return death.asked_for(attempt.job) or Failed("CHILD_DIED", str(death))

    async def run_or_raise(self, attempt: Running, task: Task[..., Any, Any], report: Report) -> AttemptEnd | None:
        """Like `run`, but a child that dies, does not start or cannot find the task is an exception."""
        job, name = attempt.job, f"rowlock.task.{task.name}"
        if task.name not in self._places:
            self._places[task.name] = places(task)
        if not (where := self._places[task.name]):
            raise NotImportable("neither it nor its app is a global of any module")
        levels = {logger: logging.getLogger(logger).getEffectiveLevel() for logger in ("", name)}
        # The timeout is enforced here: a child that hangs cannot do it.
        fields = list(job._replace(timeout_seconds=None))
        message = [fields, task.name, where, levels]
        keep = self._lines.keeper(job) if self._lines is not None else None
        output = Output(name, job_fields(job), keep)
        async with self._room:
            answer = await self._ask(message, job.timeout_seconds, output, report)
        match answer:
            case ["end", kind, values]:
                return ENDS[kind](*values)
            case ["unknown", reason]:
                raise NotImportable(reason)
            case ["overran"]:
                return TimedOut(job.timeout_seconds or 0.0)
            case ["stopped"]:
                return Released(random.random(), "shutdown")
            case ["lost"]:
                raise LeaseLost(f"job {job.id} is no longer held by this attempt", job.id, job.token)
        return None

    async def close(self) -> None:
        """End every child process: idle ones close their lifespans first, busy ones are killed."""
        idle, self._idle = self._idle, []
        busy = self._all - set(idle)
        self._all.clear()
        await asyncio.gather(*(child.close() for child in idle), *(child.stop() for child in busy), *self._retiring)

    async def _ask(self, message: list[Any], timeout: float | None, output: Output, report: Report) -> list[Any]:
        while True:
            child = await self._take()
            used = child.used
            try:
                async with asyncio.timeout(timeout) as limit:
                    answer = await child.run(message, output, report)
            except BaseException as error:
                stopped = child.stopped
                await self._end(child)
                match error:
                    case TimeoutError() if limit.expired():
                        return ["overran"]
                    case ChildDied() if stopped:
                        return ["stopped"]
                    case ChildDied() if used and not error.began:
                        continue  # the child died before it received the job: use another child
                raise
            if child.spent is None:
                self._idle.append(child)
            else:
                self._retire(child)
            return answer

    def _retire(self, child: Child) -> None:
        """Close a child that must run no other job, in the background: the answer of its last job does not wait."""
        closing = asyncio.create_task(child.close())
        self._retiring.add(closing)
        closing.add_done_callback(self._retiring.discard)
        closing.add_done_callback(lambda _: self._all.discard(child))

    async def _take(self) -> Child:
        while self._idle:
            child = self._idle.pop()
            if child.alive:
                return child
            await self._end(child)
        app = self._app
        child = Child(app.settings.model_copy(update={"database": app.database}).model_dump_json())
        self._all.add(child)
        try:
            await child.start()
        except BaseException:
            await self._end(child)
            raise
        return child

    async def _end(self, child: Child) -> None:
        """Kill a child and wait until it is gone, also if the caller is cancelled meanwhile: until then its slot is
        taken."""
        self._all.discard(child)
        await to_the_end(child.stop())
