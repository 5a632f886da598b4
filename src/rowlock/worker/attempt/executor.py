"""Runs jobs. `Executor` starts claimed jobs in free slots and takes each attempt from its start to its outcome.
`Invoker` calls the task's function, in a worker or in one of its child processes. Whatever the function raises passes
through `Invoker`, and classify.py decides how the attempt ended."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from rowlock.client.client import Client
from rowlock.client.context import Context, Report
from rowlock.client.tasks.arguments import to_json
from rowlock.client.tasks.task import Task
from rowlock.client.transactions import UNDONE, AttemptTransaction, given_back, leave
from rowlock.core.error_text import said
from rowlock.core.errors import (
    InvalidArguments,
    LeaseLost,
    ResultsUnavailable,
    StorageFull,
    StoreUnavailable,
    TaskNotFound,
    TransactionConflict,
)
from rowlock.core.job import MAX_RESULT_BYTES, Claimed, Settlement, running
from rowlock.core.outcome import AttemptEnd, Succeeded
from rowlock.core.policy import decide, suspect
from rowlock.signals.logs import job_fields
from rowlock.store.jobs import leases, settle
from rowlock.worker.attempt.attempt import LiveAttempt, Stopping
from rowlock.worker.attempt.classify import ArgumentsMisfit, InvalidResult, NotRegistered, Overran, end_of, stopped
from rowlock.worker.attempt.reports import Keeper, ProgressBook
from rowlock.worker.attempt.slots import Slots
from rowlock.worker.attempt.threads import SlotThreads
from rowlock.worker.settler import BatchMarks, Settler

if TYPE_CHECKING:  # these modules import the child process's program, which imports `Invoker`
    from rowlock.signals.traces import Traces
    from rowlock.worker.attempt.quarantine import Suspects
    from rowlock.worker.claimer import Claimer
    from rowlock.worker.processes.children import Children

log = logging.getLogger("rowlock.worker")

AnyTask = Task[..., Any, Any]
# Returns how the attempt ended; None if its own transaction has committed its success and nothing is left to settle.
Run = Callable[[LiveAttempt, AnyTask], Coroutine[Any, Any, AttemptEnd | None]]
EndSpan = Callable[[AttemptEnd | None], None]
NOTHING = Succeeded(None)  # shared: most handlers return None
SWALLOW_SECONDS = 0.5  # how long a handler may clean up after its timeout before it is cancelled again
ASK_AGAIN_SECONDS = 0.5  # between requests to a database that does not answer
Function = Callable[[], Any]  # a task's function, its arguments bound


class Executor:
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
        children: Children,
        suspects: Suspects,
        keeper: Keeper | None = None,
    ) -> None:
        self._app, self._slots, self._claimer = app, slots, claimer
        self._settler, self._progress, self._batches = settler, progress, batches
        self._context = contextvars.copy_context()
        self._traces = cast("Traces | None", app.traces)
        self._children, self._suspects, self._threads = children, suspects, SlotThreads(slots.size)
        self._invoker = Invoker(app, resources, progress.reporter, self._threads.call, keeper, stopping)

    def start(self, claimed: list[Claimed] | None = None, sent: float = 0.0) -> None:
        """Add jobs that were just claimed, if any (`sent` is when their claim was sent), and fill the free slots with
        waiting jobs."""
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
            # A copy of our own context: `start` may run in the asyncio task of an attempt that has just returned, and
            # the context variables of that attempt must not reach this one.
            attempt.task = create_task(self.execute(attempt), context=self._context.copy())
            if attempt.job.batch_id is not None:
                self._batches.started(attempt.job.batch_id)

    async def execute(self, attempt: LiveAttempt) -> None:
        """Run one claimed job and hand its outcome to the settler. Never raises: every error becomes an outcome."""
        attempt.begun = True
        running.set((self._app, attempt.job))
        span = None if self._traces is None else self._begin_span(self._traces, attempt)
        try:
            if attempt.reason is None:
                end = await self._run(attempt)
            else:  # stopped before its first step
                end = stopped(attempt)
        except BaseException as error:
            end = end_of(self._app, attempt, error)
        attempt.ended, attempt.task = True, None  # frees task and context; the attempt is kept until it is settled
        if span is not None:
            span(end)
        try:
            if end is None:
                self._slots.nothing_to_settle(attempt)
                if attempt.job.batch_id is not None and attempt.reason != "lost":
                    self._batches.settled_itself(attempt.job.batch_id)
            elif not attempt.abandoned:
                self._settler.settle(attempt, end)
        finally:
            self._returned(attempt)  # a done callback would cost one more turn of the event loop per job

    def _run(self, attempt: LiveAttempt) -> Coroutine[Any, Any, AttemptEnd | None]:
        """Run the job's task in quarantine, in a child process, or in this process."""
        try:
            task = self._app.registry.get(attempt.job.task)
        except TaskNotFound as error:
            raise NotRegistered(str(error)) from None
        run: Run = self._invoker.call
        if task.runs_in == "process":
            run = partial(self._children.run, report=self._progress.reporter(attempt))
        if suspect(attempt.job):
            return self._suspects.run(attempt, task, self._progress.reporter(attempt), run)
        return run(attempt, task)

    def _begin_span(self, traces: Traces, attempt: LiveAttempt) -> EndSpan | None:
        """Start the attempt's span, the parent of spans of its follow-ups and its child process. Returns the function
        that ends it. Span processors are user code: if one raises, the span is lost but the job goes on."""
        try:
            span = traces.started(attempt.job)
            attempt.job = attempt.job._replace(traceparent=traces.name(span) or attempt.job.traceparent)
        except Exception:
            log.exception("Job %s runs without a trace span", attempt.job.id, extra=job_fields(attempt.job))
            return None

        def end_span(end: AttemptEnd | None) -> None:
            try:
                traces.ended(span, end)
            except Exception:
                log.exception("could not end the trace span of job %s", attempt.job.id, extra=job_fields(attempt.job))

        return end_span

    def _returned(self, attempt: LiveAttempt) -> None:
        """An attempt has returned: its slot is free, even if its outcome is not yet written."""
        slots = self._slots
        slots.occupied -= 1
        if attempt.job.probation:
            self._suspects.returned(attempt)
        if slots.unstarted or slots.suspects:
            self.start()
        self._claimer.returned(time.monotonic() - attempt.started, len(slots.unstarted))

    async def close(self) -> None:
        """End the child processes and the idle threads. Busy threads end with this process."""
        await self._suspects.close()
        await self._children.close()
        self._threads.close()


class Invoker:
    """Calls the functions of one app's tasks. `call_blocking` calls those that are not async, in a worker's thread or
    in the main thread of a child process, and enforces their timeout."""

    def __init__(
        self,
        app: Client,
        resources: Mapping[str, Any],
        reporter: Callable[[LiveAttempt], Report],
        call_blocking: Callable[[LiveAttempt, Function], Awaitable[Any]],
        keeper: Keeper | None,
        stopping: Stopping | None,
    ) -> None:
        self._app, self._resources = app, resources
        self._reporter, self._call_blocking, self._keeper = reporter, call_blocking, keeper
        self._stopping = stopping  # None in a child process: its parent enforces timeouts

    async def call(self, attempt: LiveAttempt, task: AnyTask) -> AttemptEnd | None:
        """Run the task's function. Returns how the attempt ended, or None if its own transaction has committed its
        success; raises what the function raised."""
        job, app = attempt.job, self._app
        try:
            arguments = task.arguments.unpack(job.args)
        except InvalidArguments as error:
            raise ArgumentsMisfit(said(error)) from None
        attempt.blocking = not task.is_async
        ctx: Context | None = None
        if task.takes_context or app.middlewares or attempt.blocking:  # a thread polls its context's `should_stop`
            ctx = attempt.ctx = Context(
                app,
                job,
                report=self._reporter(attempt),
                resources=self._resources,
                blocking=attempt.blocking,
                keep_line=self._keeper(job) if task.options.keep_logs and self._keeper is not None else None,
            )
            ctx.own_transaction.enter()
        else:
            leave()
        try:
            if attempt.blocking or app.middlewares or job.timeout_seconds is not None:
                value = await self._wrapped(attempt, task, ctx, arguments)
            else:
                value = await (task.function(ctx, **arguments) if task.takes_context else task.function(**arguments))
            if attempt.reason in ("cancel", "timeout"):
                raise asyncio.CancelledError  # a thread cannot be cancelled: it stopped by returning
            result = NOTHING if value is None else Succeeded(_result_text(task, value))
            if ctx is not None and ctx.result_name is not None:
                await self._publish(job, ctx.result_name)
        except BaseException as error:
            if ctx is not None:
                if ctx.result_name is not None:
                    app.results.discard(job.id, job.attempt, job.token)
                ctx.own_transaction.close()
                await ctx.own_transaction.roll_back(error)  # not later: it holds locks
                if attempt.reason is None and ctx.own_transaction.was_lost(error):
                    return given_back(job, error)
            raise
        if ctx is not None and ctx.own_transaction.close():
            return await self._commit(attempt, ctx.own_transaction, result)
        return result

    async def _publish(self, job: Claimed, name: str) -> None:
        """Publish the handler's file under the attempt's own path, then name it in the job's row if the lease still
        holds. A crash in between leaves a file that no job names; the next attempt has another path."""
        published = await self._app.results.run(self._app.results.publish, job.id, job.attempt, job.token, name)
        store = await self._app.store()
        if not await store.run(leases.set_result_file(job.id, job.token, published.uri, published.checksum)):
            with suppress(ResultsUnavailable):  # ResultTidy removes it later
                await self._app.results.run(self._app.results.remove, [published.uri])
            raise LeaseLost(
                f"job {job.id} is no longer held by this attempt; the file that it published is not the job's result",
                job.id,
                job.token,
            )

    async def _wrapped(self, attempt: LiveAttempt, task: AnyTask, ctx: Any, arguments: dict[str, Any]) -> Any:
        """Call the function through its middlewares, under its timeout."""
        given = (ctx,) if task.takes_context else ()
        around: Callable[[], Coroutine[Any, Any, Any]] = partial(task.function, *given, **arguments)
        if attempt.blocking:
            around = partial(self._call_in_context, attempt, around)
        for middleware in reversed(self._app.middlewares):
            around = partial(middleware, ctx, around)
        timeout = attempt.job.timeout_seconds
        if timeout is None or attempt.blocking or self._stopping is None:
            return await around()
        # A handler that swallows the CancelledError of its timeout is cancelled again, and finally abandoned.
        swallowed = asyncio.get_running_loop().call_later(
            timeout + SWALLOW_SECONDS, self._stopping.stop, attempt, "timeout"
        )
        try:
            async with asyncio.timeout(timeout) as limit:
                value = await around()
        except TimeoutError:
            if limit.expired():
                raise Overran(timeout) from None
            raise
        finally:
            swallowed.cancel()
        if limit.expired():  # it swallowed the CancelledError and returned
            raise Overran(timeout)
        return value

    async def _call_in_context(self, attempt: LiveAttempt, function: Function) -> Any:
        context = contextvars.copy_context()  # with the variables that the middlewares have set
        return await self._call_blocking(attempt, partial(context.run, function))

    async def _commit(
        self, attempt: LiveAttempt, transaction: AttemptTransaction, result: Succeeded
    ) -> AttemptEnd | None:
        """Write the success into the handler's own transaction and commit both, or neither."""
        job = attempt.job
        transition = decide(job, result, 0.0)
        try:
            await transaction.check()
            answers = await transaction.run(settle.apply([Settlement(job, transition)], self._app.keep))
            if answers[job.id] == "lost":
                lost = f"job {job.id} is no longer held by this attempt; its transaction was rolled back"
                raise LeaseLost(lost, job.id, job.token)
        except BaseException as error:
            await transaction.roll_back(error)
            if isinstance(error, UNDONE):
                return given_back(job, error)
            raise
        try:
            await transaction.commit()
        except (StorageFull, TransactionConflict) as error:
            return given_back(job, error)
        except StoreUnavailable as error:
            # The reply to COMMIT was lost. The row shows whether the commit happened; if not, nothing was written.
            if not await self._committed(attempt):
                return given_back(job, error)
        return None

    async def _committed(self, attempt: LiveAttempt) -> bool:
        while True:
            try:
                store = await self._app.store()
                return await store.run(leases.settled_by(attempt.job.id, attempt.job.token))
            except StoreUnavailable:
                await asyncio.sleep(ASK_AGAIN_SECONDS)


def _result_text(task: AnyTask, value: Any) -> str:
    try:
        return to_json(value, f"the result of {task.name!r}", MAX_RESULT_BYTES)
    except InvalidArguments as error:
        raise InvalidResult(said(error)) from None
