"""The executor of a worker: starts claimed jobs in free slots and takes each attempt from its start to its outcome."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, cast

from rowlock.client.client import Client
from rowlock.client.tasks.task import Task
from rowlock.core.current_job import running
from rowlock.core.errors import TaskNotFound
from rowlock.core.job import Claimed
from rowlock.core.outcome import AttemptEnd, Lost
from rowlock.core.policy import suspect
from rowlock.signals.job_fields import job_fields
from rowlock.worker.attempt.attempt import LiveAttempt
from rowlock.worker.attempt.call import Invoker
from rowlock.worker.attempt.classify import NotRegistered, end_of, stopped
from rowlock.worker.attempt.job_log import JobLines
from rowlock.worker.attempt.progress import ProgressBook
from rowlock.worker.attempt.quarantine import Suspects
from rowlock.worker.attempt.slots import Slots
from rowlock.worker.attempt.stopping import Stopping
from rowlock.worker.attempt.threads import Threads
from rowlock.worker.processes.children import Children
from rowlock.worker.processes.locate import NotImportable
from rowlock.worker.processes.process import ChildDied, NotStarted
from rowlock.worker.settle.batches import BatchMarks
from rowlock.worker.settle.settler import Settler

if TYPE_CHECKING:
    from rowlock.signals.traces import Traces
    from rowlock.worker.claim.claimer import Claimer

log = logging.getLogger("rowlock.worker")

AnyTask = Task[..., Any, Any]
# How an attempt ended; None when there is nothing to settle: its own transaction has committed its success.
Run = Callable[[LiveAttempt, AnyTask], Coroutine[Any, Any, AttemptEnd | None]]
EndSpan = Callable[[AttemptEnd | None], None]

ALONE_SECONDS = 0.02  # between looks at whether all other attempts have returned


class Executor:
    """Runs the attempts of one worker."""

    def __init__(
        self,
        app: Client,
        slots: Slots,
        resources: Mapping[str, Any],
        *,
        claimer: Claimer,
        settler: Settler,
        stopping: Stopping,
        progress: ProgressBook,
        batches: BatchMarks,
        lines: JobLines | None = None,
    ) -> None:
        self._app, self._slots, self._claimer = app, slots, claimer
        self._settler, self._progress, self._batches = settler, progress, batches
        self._context = contextvars.copy_context()
        self._traces = cast("Traces | None", app.traces)  # Rowlock makes it, for enqueues and for attempts
        self._suspects = Suspects(slots, settler)
        self._threads = Threads(slots.size)
        self._children, self._quarantine = Children(app, slots.size, lines, spare=True), Children(app, 1, lines)
        self._invoker = Invoker(app, resources, progress, self._threads, lines, stopping)

    def prepare(self) -> None:
        """Start a child process before the first job that needs one."""
        self._children.prepare(task for task in self._app.registry.here().values() if task.runs_in == "process")

    def start(self, claimed: list[Claimed] | None = None, sent: float = 0.0) -> None:
        """Take over jobs that were just claimed, if any (`sent` is when their claim was sent), and start as many of the
        waiting jobs as there are free slots."""
        slots, create_task = self._slots, asyncio.get_running_loop().create_task
        if claimed:
            slots.add(claimed, sent)
        unstarted, size = slots.unstarted, slots.size
        while not slots.closed and slots.occupied < size:
            attempt = self._suspects.next() if slots.suspects else None  # None while a suspect runs
            if attempt is None:
                if not unstarted:
                    break
                attempt = unstarted.popleft()
                if attempt.ended:  # cancelled or lost while it waited
                    continue
                if attempt.job.probation and suspect(attempt.job):
                    self._suspects.add(attempt)
                    continue
            slots.occupied += 1
            attempt.started = time.monotonic()
            # Not in the context of the attempt that has just returned: the next one must not see its variables.
            attempt.task = create_task(self.execute(attempt), context=self._context.copy())
            if attempt.job.batch_id is not None:
                self._batches.started(attempt.job.batch_id)

    async def execute(self, attempt: LiveAttempt) -> None:
        """Run one claimed job, from its start to the report of how it ended. Never raises: every error becomes an
        outcome."""
        span = self._record_start(attempt)
        try:
            if attempt.reason is None:
                task, run = self._resolve(attempt)
                end = await run(attempt, task)
            else:  # it was told to stop before its first step
                end = stopped(attempt)
        except BaseException as error:
            end = end_of(self._app, attempt, error)
        self._report(attempt, end, span)

    def _record_start(self, attempt: LiveAttempt) -> EndSpan | None:
        attempt.begun = True
        running.set((self._app, attempt.job))
        return None if self._traces is None else self._begin_span(self._traces, attempt)

    def _resolve(self, attempt: LiveAttempt) -> tuple[AnyTask, Run]:
        """The job's task, and what runs it: quarantine, a child process, or this one."""
        try:
            task = self._app.registry.get(attempt.job.task)
        except TaskNotFound as error:
            raise NotRegistered(str(error)) from None
        return task, self._run_suspect if suspect(attempt.job) else self._usual_run(task)

    def _usual_run(self, task: AnyTask) -> Run:
        return self._run_in_child if task.runs_in == "process" else self._invoker.call

    def _report(self, attempt: LiveAttempt, end: AttemptEnd | None, span: EndSpan | None) -> None:
        """Have the outcome written, and give the slot to the next job."""
        attempt.ended, attempt.task = True, None  # kept until its outcome is written; its task and context are not
        if span is not None:
            span(end)
        try:
            if end is None:  # its own transaction has committed its success, or its lease was lost
                self._nothing_to_settle(attempt)
            elif not attempt.abandoned:
                self._settler.settle(attempt, end)
        finally:
            self._returned(attempt)  # not in a callback of the task, which would be one more turn of the loop per job

    def _begin_span(self, traces: Traces, attempt: LiveAttempt) -> EndSpan | None:
        """Start the attempt's span; follow-ups and a child process belong to it. Returns what ends it. Span processors
        are the user's code: one that raises costs the span and not the job."""
        try:
            span = traces.started(attempt.job)
            attempt.job = attempt.job._replace(traceparent=traces.name(span) or attempt.job.traceparent)
        except Exception:
            log.exception("Job %s runs without a span", attempt.job.id, extra=job_fields(attempt.job))
            return None

        def end_span(end: AttemptEnd | None) -> None:
            try:
                traces.ended(span, end)
            except Exception:
                log.exception("the span of job %s could not be ended", attempt.job.id, extra=job_fields(attempt.job))

        return end_span

    def _nothing_to_settle(self, attempt: LiveAttempt) -> None:
        self._slots.nothing_to_settle(attempt)
        if attempt.job.batch_id is not None and attempt.reason != "lost":
            self._batches.settled_itself(attempt.job.batch_id)

    def _run_in_child(self, attempt: LiveAttempt, task: AnyTask) -> Coroutine[Any, Any, AttemptEnd | None]:
        return self._children.run(attempt, task, self._progress.reporter(attempt))

    async def _run_suspect(self, attempt: LiveAttempt, task: AnyTask) -> AttemptEnd | None:
        """Run a suspect in the quarantine child, also if its task has another `runs_in`: if the child dies, the suspect
        is convicted. A task that no child process can import runs here, with no other attempt beside it."""
        try:
            return await self._quarantine.run_or_raise(attempt, task, self._progress.reporter(attempt))
        except ChildDied as death:
            detail = f"its quarantine process {death.told}"
            return death.asked_for(attempt.job) or Lost(convicted=True, detail=detail)
        except (NotImportable, NotStarted) as error:
            job = attempt.job
            text = "Job %s (%s) runs alone in its worker, not in quarantine: %s"
            log.warning(text, job.id, task.name, error, extra=job_fields(job))
        with self._claimer.paused():
            while self._slots.occupied > 1:  # 1: this attempt; only one suspect runs at a time
                await asyncio.sleep(ALONE_SECONDS)
            return await self._usual_run(task)(attempt, task)

    def _returned(self, attempt: LiveAttempt) -> None:
        """An attempt has returned: its slot is free, also if its outcome is not written yet."""
        slots = self._slots
        slots.occupied -= 1
        if attempt.job.probation:
            self._suspects.returned(attempt)
        if slots.unstarted or slots.suspects:
            self.start()
        self._claimer.returned(time.monotonic() - attempt.started, len(slots.unstarted))

    async def close(self) -> None:
        """End the child processes; idle threads end, busy ones end with the process."""
        self._suspects.close()
        await self._children.close()
        await self._quarantine.close()
        self._threads.close()
