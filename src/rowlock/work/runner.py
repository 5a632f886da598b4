"""Calls the function of a task and says how the attempt ended: the same in a worker and in its child processes."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rowlock.core.errors import (
    InvalidArguments,
    LeaseLost,
    Permanent,
    Retry,
    Snooze,
    SourceError,
    StoreUnavailable,
    TaskNotFound,
    seconds,
)
from rowlock.core.job import MAX_RESULT_BYTES, Settlement
from rowlock.core.outcome import AttemptEnd, Failed, Released, Succeeded, TimedOut
from rowlock.core.policy import Backoff, decide
from rowlock.store import jobs
from rowlock.store.follow_ups import follow_ups
from rowlock.work.arguments import to_json
from rowlock.work.context import Context, Report
from rowlock.work.errors import CODE_LIMIT, clean, describe
from rowlock.work.faults import verdict
from rowlock.work.running import Running
from rowlock.work.transactions import AttemptTransaction, given_back

if TYPE_CHECKING:
    from rowlock.work.app import Rowlock
    from rowlock.work.tasks import Task

log = logging.getLogger("rowlock.worker")

NOTHING = Succeeded(None)
SWALLOW_SECONDS = 0.5


class Runner(ABC):
    """Calls the functions of tasks and says how each attempt ended: the same in a worker and in its child processes."""

    def __init__(
        self,
        app: Rowlock,
        *,
        resources: Mapping[str, Any],
        report: Callable[[Running], Report],
        settled: Callable[[Running], None],
        overrun: Callable[[Running], None],
    ) -> None:
        self._app, self._resources = app, resources
        self.report, self.settled, self._overrun = report, settled, overrun

    @abstractmethod
    def blocking_call(
        self, running: Running, task: Task[..., Any, Any], ctx: Context | None, arguments: dict[str, Any]
    ) -> Callable[[], Any]:
        """How a function that is not async is called."""

    async def call(self, running: Running, task: Task[..., Any, Any]) -> AttemptEnd | None:
        """Unpack, call, check the result. None when the attempt's own transaction has settled it."""
        job, app = running.job, self._app
        arguments = task.arguments.unpack(job.args)
        running.blocking = not task.is_async
        ctx = running.ctx
        if task.takes_context or app.middlewares or running.blocking:
            ctx = running.ctx = Context(
                app, job, report=self.report(running), resources=self._resources, blocking=running.blocking
            )
            ctx.own_transaction.enter()
        call = self.blocking_call(running, task, ctx, arguments) if running.blocking else None
        try:
            if call is None and not app.middlewares and job.timeout_seconds is None:
                value = await (task.function(ctx, **arguments) if task.takes_context else task.function(**arguments))
            else:
                value = await self._wrapped(running, task, ctx, arguments, call)
            if running.reason in ("cancel", "timeout"):
                raise asyncio.CancelledError  # it was told to stop, and returning is how a thread obeys
            text = None if value is None else to_json(value, f"the result of {task.name!r}", MAX_RESULT_BYTES)
        except BaseException as error:
            if ctx is not None:
                ctx.own_transaction.close()
                await ctx.own_transaction.roll_back(error)  # one that waits for a success would hold its locks
                if running.reason is None and ctx.own_transaction.was_lost(error):
                    return given_back(running.job, error)
            raise
        result = NOTHING if text is None else Succeeded(text)
        if ctx is not None and ctx.own_transaction.close():
            return await self._commit(running, ctx.own_transaction, result)
        return result

    async def _wrapped(
        self,
        running: Running,
        task: Task[..., Any, Any],
        ctx: Context | None,
        arguments: dict[str, Any],
        call: Any,
    ) -> Any:
        """The call inside its middlewares and its timeout."""

        async def innermost() -> Any:
            if call is not None:
                return await call()
            return await (task.function(ctx, **arguments) if task.takes_context else task.function(**arguments))

        around: Callable[[], Any] = innermost
        for middleware in reversed(self._app.middlewares):
            around = _layer(middleware, ctx, around)
        timeout = running.job.timeout_seconds
        if timeout is None or call is not None:
            return await around()
        # A handler that swallows the cancel of its timeout is asked again, and at last left behind.
        swallowed = asyncio.get_running_loop().call_later(timeout + SWALLOW_SECONDS, self._overrun, running)
        try:
            async with asyncio.timeout(timeout) as limit:
                value = await around()
        except TimeoutError:
            if limit.expired():
                raise Overran(timeout) from None
            raise
        finally:
            swallowed.cancel()
        if limit.expired():  # it has swallowed the cancel and returned all the same
            raise Overran(timeout)
        return value

    async def _commit(self, running: Running, transaction: AttemptTransaction, result: Succeeded) -> AttemptEnd | None:
        """Write the success into the handler's own transaction and commit both, or neither."""
        job = running.job
        transition = decide(job, result, 0.0)
        settlement = Settlement(job.id, job.token, transition, follow_ups(job, transition))
        try:
            await transaction.check()
            answers = await transaction.run(jobs.settle([settlement], self._app.keep))
            if answers[job.id] == "lost":
                raise LeaseLost(f"job {job.id} is no longer held by this attempt; its transaction was rolled back")
        except BaseException as error:
            await transaction.roll_back(error)
            if isinstance(error, StoreUnavailable):
                return given_back(running.job, error)
            raise
        try:
            await transaction.commit()
        except StoreUnavailable as error:
            # The reply to COMMIT was lost. If it happened, the row says so; if not, nothing happened at all.
            if not await self._committed(running):
                return given_back(running.job, error)
        self.settled(running)
        return None

    async def _committed(self, running: Running) -> bool:
        while True:
            try:
                store = await self._app.store()
                return await store.run(jobs.settled_by(running.job.id, running.job.token))
            except StoreUnavailable:
                await asyncio.sleep(0.5)

    def stopped(self, running: Running) -> AttemptEnd | None:
        """A cancelled attempt, by the reason it was stopped for."""
        if running.reason is None:
            return Failed("CANCELLED_ITSELF", "the handler's own task was cancelled from inside")
        return None if running.reason == "lost" else running.end(running.reason)

    def classify(self, running: Running, error: BaseException) -> AttemptEnd | None:
        """How an attempt that raised has ended."""
        if running.reason == "lost" or isinstance(error, LeaseLost):
            running.reason = "lost"
            self.settled(running)
            return None
        if not isinstance(error, (Snooze, TaskNotFound)):
            self._tell_hooks(running, error)
        match error:
            case Snooze():
                return Released(error.after, clean(str(error)))
            case Retry():
                code = clean(str(error.code), CODE_LIMIT)
                return Failed(code, describe(error), after=error.after, **self._verdict(running, error))
            case Permanent():
                code = clean(str(error.code), CODE_LIMIT)
                return Failed(code, describe(error), permanent=True, **self._verdict(running, error))
            case Overran():
                return TimedOut(error.timeout)
            case TaskNotFound():
                return Released(30.0, clean(str(error)))
            case InvalidArguments() if not _raised_by_handler(error):
                large = "bytes of JSON" in str(error) or "must be JSON" in str(error)
                return Failed("INVALID_RESULT" if large else "INVALID_ARGUMENTS", describe(error), permanent=large)
        return self._by_rule(running, error)

    def _by_rule(self, running: Running, error: BaseException) -> Failed:
        code, message = type(error).__name__, describe(error)
        if isinstance(error, SourceError):
            code = clean(str(error.code), CODE_LIMIT)
        said = self._verdict(running, error)
        rules = self._app.registry.get(running.job.task).options.rules
        for kind in type(error).__mro__:
            rule = rules.get(kind)
            if rule == "dead":
                return Failed(code, message, permanent=True, **said)
            if isinstance(rule, Backoff):
                return Failed(code, message, backoff=rule.to_json(), **said)
            if rule is not None:
                return Failed(code, message, after=seconds(rule, "rules"), **said)
        return Failed(code, message, **said)

    def _verdict(self, running: Running, error: BaseException) -> dict[str, Any]:
        """What the failure says about the job's source; nothing for a job without one."""
        return verdict(error)._asdict() if running.job.source is not None else {}

    def _tell_hooks(self, running: Running, error: BaseException) -> None:
        for hook in self._app.error_hooks:
            try:
                hook(running.ctx or Context(self._app, running.job), error)
            except Exception:
                log.exception("an error hook raised")


class Overran(Exception):
    def __init__(self, timeout: float) -> None:
        super().__init__(f"timed out after {timeout:g} s")
        self.timeout = timeout


def _layer(middleware: Any, ctx: Context | None, inner: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: middleware(ctx, inner)


def _raised_by_handler(error: BaseException) -> bool:
    """Whether user code is on the traceback: then it is a failure of the task, not of its arguments."""
    trace = error.__traceback__
    while trace is not None:
        if not trace.tb_frame.f_globals.get("__name__", "").startswith("rowlock."):
            return True
        trace = trace.tb_next
    return False
