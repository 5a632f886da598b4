"""Pools of child processes: for tasks with `runs_in="process"`, and for the quarantine of jobs whose worker died.

Children are spawned, never forked, and reused. A start takes a second or more, while the child imports the program.
So a job takes the first child that becomes available, whether it was starting or busy; and one spare child is started
in advance, with the tasks imported. Children other than the spare end after a minute without a job. The program that
runs inside them is `rowlock.worker.processes.child`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, get_args

from rowlock.client.client import Client
from rowlock.client.context import Report
from rowlock.client.tasks.task import Task
from rowlock.core.errors import LeaseLost
from rowlock.core.outcome import AttemptEnd, Failed, Released, TimedOut
from rowlock.signals.logs import job_fields
from rowlock.worker.attempt.attempt import LiveAttempt
from rowlock.worker.attempt.reports import Keeper
from rowlock.worker.loops import to_the_end
from rowlock.worker.processes.locate import NotImportable, places
from rowlock.worker.processes.process import Child, ChildDied, NotStarted, Output

log = logging.getLogger("rowlock.worker")

ENDS: dict[str, Callable[..., AttemptEnd]] = {kind.__name__: kind for kind in get_args(AttemptEnd)}


class Children:
    """A pool of up to `size` child processes. With `spare`, one is kept ready after `prepare` or the first job."""

    IDLE_SECONDS = 60.0  # after this idle time a child other than the spare ends
    SPARE_SECONDS = 0.5  # start a spare after this time without an idle child: a short job frees its child sooner
    IMPORT_SECONDS = 20.0  # for the spare to import the tasks
    STARTS = max(2, os.cpu_count() or 1)  # concurrent starts; more would only slow each other down

    def __init__(self, app: Client, size: int, keeper: Keeper | None = None, *, spare: bool = False) -> None:
        self._app, self._room, self._keeper = app, asyncio.Semaphore(size), keeper
        self._size, self._spare = size, spare
        self._all: set[Child] = set()
        self._starting: set[asyncio.Task[None]] = set()
        self._retiring: set[asyncio.Task[None]] = set()
        self._idle: list[Child] = []  # used last in, first out
        self._waiting: deque[asyncio.Future[Child]] = deque()
        self._places: dict[str, list[tuple[str, str]]] = {}
        self._ending_idle: asyncio.TimerHandle | None = None
        self._wanting_spare: asyncio.TimerHandle | None = None
        self._closed = False

    def prepare(self, tasks: Iterable[Task[..., Any, Any]]) -> None:
        """Start the spare before any of these tasks has a job."""
        found = {task.name: where for task in tasks if (where := places(task))}
        if found:
            self._places.update(found)
            self._start_spare()

    async def run(self, attempt: LiveAttempt, task: Task[..., Any, Any], report: Report) -> AttemptEnd | None:
        """Run an attempt in a child. None if its own transaction has settled it."""
        try:
            return await self.run_or_raise(attempt, task, report)
        except NotImportable as error:
            hint = "move it to the top level of a module, or use runs_in='thread'"
            return Failed("NOT_IMPORTABLE", f"a child process cannot import task {task.name!r} ({error}); {hint}")
        except NotStarted as error:
            return Failed("CHILD_DIED", str(error))
        except ChildDied as death:
            return death.release(attempt.job) or Failed("CHILD_DIED", str(death))

    async def run_or_raise(self, attempt: LiveAttempt, task: Task[..., Any, Any], report: Report) -> AttemptEnd | None:
        """Like `run`, but raises if the child dies, does not start or cannot find the task."""
        job, name = attempt.job, f"rowlock.task.{task.name}"
        if task.name not in self._places:
            self._places[task.name] = places(task)
        if not (where := self._places[task.name]):
            raise NotImportable("neither it nor its app is a global of any module")
        levels = {logger: logging.getLogger(logger).getEffectiveLevel() for logger in ("", name)}
        # The timeout is enforced in this process, because a child that hangs could not enforce it.
        fields = list(job._replace(timeout_seconds=None))
        message = [fields, task.name, where, levels]
        keep = self._keeper(job) if self._keeper is not None else None
        output = Output(name, job_fields(job), keep)
        async with self._room:
            answer = await self._ask(message, job.timeout_seconds, output, report)
        match answer:
            case ["end", kind, values]:
                return ENDS[kind](*values)
            case ["unknown", reason]:
                raise NotImportable(reason)
            case ["lost"]:
                raise LeaseLost(f"job {job.id} is no longer held by this attempt", job.id, job.token)
        return None

    async def close(self) -> None:
        """End every child process: idle ones close their lifespans first, busy ones are killed."""
        self._closed = True
        for timer in (self._ending_idle, self._wanting_spare):
            if timer is not None:
                timer.cancel()
        idle, self._idle = self._idle, []
        busy = self._all - set(idle)
        self._all.clear()
        await asyncio.gather(
            *(child.close() for child in idle),
            *(child.stop() for child in busy),
            *self._retiring,
            *self._starting,
        )

    async def _ask(self, message: list[Any], timeout: float | None, output: Output, report: Report) -> list[Any]:
        """Send a message to a child. Returns its answer, or a substitute if the child had to be killed."""
        while True:
            child = await self._take()
            used = child.used
            try:
                async with asyncio.timeout(timeout) as limit:
                    answer = await child.run(message, output, report)
            except BaseException as error:
                stopped = child.stopped
                self._want_spare()
                await self._end(child)
                match error:
                    case TimeoutError() if limit.expired():
                        return ["end", TimedOut.__name__, [timeout]]
                    case ChildDied() if stopped:
                        return ["end", Released.__name__, [random.random(), "shutdown", "stopped"]]
                    case ChildDied() if used and not error.began:
                        continue  # the child had died before it received the job: use another child
                raise
            if child.spent is None:
                self._free(child)
            else:
                self._retire(child)
            return answer

    def _retire(self, child: Child) -> None:
        """Close a child that must not run another job. In the background, so that its last answer isn't delayed."""
        self._all.discard(child)
        closing = asyncio.create_task(child.close())
        self._retiring.add(closing)
        closing.add_done_callback(self._retiring.discard)
        self._want_spare()

    async def _take(self) -> Child:
        """An idle child, or else the first that becomes idle or has started."""
        while self._idle:
            child = self._idle.pop()
            if child.alive:
                self._want_spare()
                return child
            await self._end(child)
        waiting: asyncio.Future[Child] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        self._start_more()
        self._want_spare()
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled() and waiting.exception() is None:
                self._free(waiting.result())  # a child was assigned in the same turn of the event loop
            raise

    def _want_spare(self) -> None:
        if self._spare and not self._idle and self._wanting_spare is None and not self._closed:
            self._wanting_spare = asyncio.get_running_loop().call_later(self.SPARE_SECONDS, self._start_spare)

    def _start_spare(self) -> None:
        self._wanting_spare = None
        self._start_more(spares=1 if self._spare else 0)

    def _start_more(self, *, spares: int = 0) -> None:
        """Start children for waiting jobs, plus spares."""
        needed = len(self._waiting) + spares - len(self._idle)
        while len(self._starting) < min(needed, self.STARTS) and len(self._all) < self._size and not self._closed:
            app = self._app
            child = Child(app.settings.model_copy(update={"database": app.database}).model_dump_json())
            self._all.add(child)
            starting = asyncio.create_task(self._start(child))
            self._starting.add(starting)
            starting.add_done_callback(self._starting.discard)
            starting.add_done_callback(lambda _: self._start_more())

    async def _start(self, child: Child) -> None:
        try:
            await child.start()
        except Exception as error:  # raised in one waiting job, so that no job waits for ever
            await self._end(child)
            if (waiting := self._next_waiting()) is not None:
                waiting.set_exception(error)
            return
        if not self._waiting and self._spare:
            try:
                async with asyncio.timeout(self.IMPORT_SECONDS):
                    await child.run(["import", self._places], Output(log.name, {}), lambda *_: None)
            except (TimeoutError, ChildDied) as error:
                # Start no further spare. The next job gets a new child, and if that dies the job is to blame.
                log.debug("a spare process could not import the tasks: %r", error)
                await self._end(child)
                return
        self._free(child)

    def _free(self, child: Child) -> None:
        """Give a child to the job that has waited longest, or let it idle if no job waits."""
        if (waiting := self._next_waiting()) is not None:
            waiting.set_result(child)
            return
        child.idle_since = time.monotonic()
        self._idle.append(child)
        if self._ending_idle is None and not self._closed:
            self._ending_idle = asyncio.get_running_loop().call_later(self.IDLE_SECONDS, self._end_idle)

    def _next_waiting(self) -> asyncio.Future[Child] | None:
        while self._waiting:
            if not (waiting := self._waiting.popleft()).done():  # done: cancelled
                return waiting
        return None

    def _end_idle(self) -> None:
        self._ending_idle = None
        until = time.monotonic() - self.IDLE_SECONDS
        while len(self._idle) > self._spare and self._idle[0].idle_since <= until:
            self._retire(self._idle.pop(0))
        if len(self._idle) > self._spare:
            left = self._idle[0].idle_since - until
            self._ending_idle = asyncio.get_running_loop().call_later(left, self._end_idle)

    async def _end(self, child: Child) -> None:
        """Kill a child and wait until it is gone, even if the caller is cancelled: until then it takes up room."""
        self._all.discard(child)
        await to_the_end(child.stop())
