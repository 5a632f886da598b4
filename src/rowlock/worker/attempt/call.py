"""The call of a task's function, in a worker or in one of its child processes.

Unpack the arguments, call the function inside its middlewares and its timeout, check the result. What the function
raises is raised here; classify.py decides how the attempt has ended then.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from rowlock.client.attempt_transaction import UNDONE, AttemptTransaction, given_back
from rowlock.client.client import Client
from rowlock.client.context import Context, Report
from rowlock.client.tasks.arguments import to_json
from rowlock.client.tasks.task import Task
from rowlock.client.transactions import leave
from rowlock.core.error_text import said
from rowlock.core.errors import (
    InvalidArguments,
    LeaseLost,
    ResultsUnavailable,
    StorageFull,
    StoreUnavailable,
    TransactionConflict,
)
from rowlock.core.job import MAX_RESULT_BYTES, Claimed, Settlement
from rowlock.core.outcome import AttemptEnd, Succeeded
from rowlock.core.policy import decide
from rowlock.store.jobs import leases, transitions
from rowlock.worker.attempt.attempt import LiveAttempt
from rowlock.worker.attempt.classify import ArgumentsMisfit, InvalidResult, Overran
from rowlock.worker.attempt.job_log import KeepsLines
from rowlock.worker.attempt.stopping import Stopping

NOTHING = Succeeded(None)  # most handlers return None, and share this value
SWALLOW_SECONDS = 0.5  # after the timeout: a handler may end by itself before it is cancelled again
ASK_AGAIN_SECONDS = 0.5  # between tries to reach a database that does not answer

Function = Callable[[], Any]  # a task's function with its arguments


class Reporters(Protocol):
    """Where progress goes: `ProgressBook` in a worker, `Progress` in a child process."""

    def reporter(self, attempt: LiveAttempt, /) -> Report: ...


class Threads(Protocol):
    """Where a function runs that is not async: threads of a worker, the main thread of a child process."""

    async def call(self, attempt: LiveAttempt, function: Function, /) -> Any: ...


class Invoker:
    """Calls the functions of one app's tasks."""

    def __init__(
        self,
        app: Client,
        resources: Mapping[str, Any],
        progress: Reporters,
        threads: Threads,
        lines: KeepsLines | None,
        stopping: Stopping | None,
    ) -> None:
        self._app, self._resources = app, resources
        self._progress, self._threads, self._lines = progress, threads, lines
        self._stopping = stopping  # None in a child process: its parent enforces timeouts

    async def call(self, attempt: LiveAttempt, task: Task[..., Any, Any]) -> AttemptEnd | None:
        """How the attempt ended, unless it raises. None when its own transaction has committed its success."""
        job, app = attempt.job, self._app
        try:
            arguments = task.arguments.unpack(job.args)
        except InvalidArguments as error:
            raise ArgumentsMisfit(said(error)) from None
        attempt.blocking = not task.is_async
        ctx: Context | None = None
        if task.takes_context or app.middlewares or attempt.blocking:  # a thread is told to stop by its context
            ctx = attempt.ctx = Context(
                app,
                job,
                report=self._progress.reporter(attempt),
                resources=self._resources,
                blocking=attempt.blocking,
                keep_line=self._lines.keeper(job) if task.options.keep_logs and self._lines is not None else None,
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
                raise asyncio.CancelledError  # a thread that is told to stop can only return
            result = NOTHING if value is None else Succeeded(_result_text(task, value))
            if ctx is not None and ctx.result_name is not None:
                await self._publish(job, ctx.result_name)
        except BaseException as error:
            if ctx is not None:
                if ctx.result_name is not None:
                    app.results.discard(job.id, job.attempt, job.token)
                ctx.own_transaction.close()
                await ctx.own_transaction.roll_back(error)  # it would hold its locks until the success
                if attempt.reason is None and ctx.own_transaction.was_lost(error):
                    return given_back(job, error)
            raise
        if ctx is not None and ctx.own_transaction.close():
            return await self._commit(attempt, ctx.own_transaction, result)
        return result

    async def _publish(self, job: Claimed, name: str) -> None:
        """Make the handler's file visible under the attempt's own path, then name it in the job's row, under the lease.
        A crash in between leaves a file that no job names, and the next attempt has another path."""
        published = await self._app.results.run(self._app.results.publish, job.id, job.attempt, job.token, name)
        store = await self._app.store()
        if not await store.run(leases.set_result_file(job.id, job.token, published.uri, published.checksum)):
            with suppress(ResultsUnavailable):  # then it goes when old files are tidied up
                await self._app.results.run(self._app.results.remove, [published.uri])
            raise LeaseLost(
                f"job {job.id} is no longer held by this attempt; its file is not its result", job.id, job.token
            )

    async def _wrapped(
        self, attempt: LiveAttempt, task: Task[..., Any, Any], ctx: Any, arguments: dict[str, Any]
    ) -> Any:
        """The call inside its middlewares and its timeout. `Threads.call` keeps the timeout of what it calls."""
        given = (ctx,) if task.takes_context else ()
        function = partial(task.function, *given, **arguments)
        innermost = self._call_blocking if attempt.blocking else self._call_async
        around: Callable[[], Coroutine[Any, Any, Any]] = partial(innermost, attempt, function)
        for middleware in reversed(self._app.middlewares):
            around = partial(middleware, ctx, around)
        timeout = attempt.job.timeout_seconds
        if timeout is None or attempt.blocking or self._stopping is None:
            return await around()
        # A handler that swallows the CancelledError of its timeout is cancelled again, and at last abandoned.
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

    async def _call_async(self, attempt: LiveAttempt, function: Function) -> Any:
        return await function()

    async def _call_blocking(self, attempt: LiveAttempt, function: Function) -> Any:
        context = contextvars.copy_context()  # with what the middlewares have set
        return await self._threads.call(attempt, partial(context.run, function))

    async def _commit(
        self, attempt: LiveAttempt, transaction: AttemptTransaction, result: Succeeded
    ) -> AttemptEnd | None:
        """Write the success into the handler's own transaction and commit both, or neither."""
        job = attempt.job
        transition = decide(job, result, 0.0)
        try:
            await transaction.check()
            answers = await transaction.run(transitions.apply([Settlement(job, transition)], self._app.keep))
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
            # The reply to COMMIT was lost. If it happened, the row says so; if not, nothing happened at all.
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


def _result_text(task: Task[..., Any, Any], value: Any) -> str:
    try:
        return to_json(value, f"the result of {task.name!r}", MAX_RESULT_BYTES)
    except InvalidArguments as error:
        raise InvalidResult(said(error)) from None
