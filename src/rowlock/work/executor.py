"""Run one job: look up, unpack, call, classify, decide, settle. One step classifies how it ended, another writes it."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import random
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from rowlock.core.errors import TaskNotFound
from rowlock.core.job import Claimed
from rowlock.core.outcome import AttemptEnd, Failed
from rowlock.core.policy import Transition, decide
from rowlock.core.states import Outcome, State
from rowlock.work.classify import NotRegistered, Overran, internal
from rowlock.work.context import Context, Report
from rowlock.work.runner import Runner
from rowlock.work.running import Running
from rowlock.work.settler import Settler
from rowlock.work.threads import Threads

if TYPE_CHECKING:
    from rowlock.work.app import Rowlock
    from rowlock.work.processes import Children, Quarantine
    from rowlock.work.tasks import Task

log = logging.getLogger("rowlock.worker")


class Executor(Runner):
    """Runs attempts for one worker."""

    def __init__(
        self,
        app: Rowlock,
        settler: Settler,
        *,
        threads: Threads,
        children: Children,
        quarantine: Quarantine,
        resources: Mapping[str, Any],
        report: Callable[[Running], Report],
        settled: Callable[[Running], None],
        returned: Callable[[Running], None],
        overrun: Callable[[Running], None],
    ) -> None:
        super().__init__(app, resources=resources, report=report, settled=settled, overrun=overrun)
        self._settler, self._threads, self._returned = settler, threads, returned
        self._children, self._quarantine = children, quarantine

    async def execute(self, running: Running) -> None:
        """Run one claimed job from lookup to outcome. Never raises: whatever happens becomes an outcome."""
        running.begun = True
        try:
            end = await self._attempt(running) if running.reason is None else self.stopped(running)
        except asyncio.CancelledError:
            end = self.stopped(running)
        except BaseException as error:
            end = self.end_of(running, error)
        running.ended = True
        try:
            if end is not None and not running.abandoned:
                self.settle(running, end)
        finally:
            self._returned(running)  # not in a callback of the task, which would be one more turn of the loop per job

    def settle(self, running: Running, end: AttemptEnd) -> None:
        """Decide what follows and hand it to the settler. Something follows in any case."""
        try:
            transition = decide(running.job, end, random.random())
        except Exception as broken:
            failed = internal(running.job, "what follows the attempt could not be decided", broken)
            transition = _after(running.job, failed)
        self._settler.put(running, transition)

    def _attempt(self, running: Running) -> Coroutine[Any, Any, AttemptEnd | None]:
        job = running.job
        try:
            task = self._app.registry.get(job.task)
        except TaskNotFound as error:
            raise NotRegistered(str(error)) from None
        if job.losses > 0:
            return self._quarantine.run(running, task, self)
        return self.run_here(running, task)

    def run_here(self, running: Running, task: Task[..., Any, Any]) -> Coroutine[Any, Any, AttemptEnd | None]:
        """Run an attempt in this worker (a process task in one of its children)."""
        return self._in_child(running, task) if task.runs_in == "process" else self.call(running, task)

    async def _in_child(self, running: Running, task: Task[..., Any, Any]) -> AttemptEnd | None:
        end = await self._children.run(running, task, self.report(running))
        if end is None:
            self.settled(running)
        return end

    def blocking_call(
        self, running: Running, task: Task[..., Any, Any], ctx: Context | None, arguments: dict[str, Any]
    ) -> Callable[[], Any]:
        """A thread cannot be killed: past its timeout it is asked to stop and keeps its lease until it returns."""

        async def call() -> Any:
            loop = asyncio.get_running_loop()
            context = contextvars.copy_context()
            given = (ctx,) if task.takes_context else ()

            def work_here() -> tuple[Any, BaseException | None]:
                # Not as the future's exception: asyncio refuses StopIteration there and would wait for ever.
                try:
                    return context.run(task.function, *given, **arguments), None
                except BaseException as error:
                    return None, error

            work = self._threads.run(work_here)
            timeout, began = running.job.timeout_seconds, time.monotonic()
            alarm = loop.call_later(timeout, running.stop, "timeout") if timeout is not None else None
            try:
                while not work.done():
                    try:
                        await asyncio.shield(work)
                    except asyncio.CancelledError:
                        if work.cancelled() or running.abandoned:
                            raise
                    except BaseException:
                        break
            finally:
                if alarm is not None:
                    alarm.cancel()
            if timeout is not None and time.monotonic() - began > timeout:
                raise Overran(timeout)
            value, error = work.result()
            if error is not None:
                raise error
            return value

        return call


def _after(job: Claimed, failed: Failed) -> Transition:
    """What follows an internal failure: as usual, without the job's own backoff; dead, if no rule can be applied to its
    row at all."""
    try:
        return decide(job._replace(backoff=None), failed, random.random())
    except Exception:
        return Transition(State.DEAD, Outcome.FAILED, error_code=failed.code, error_message=failed.message)
