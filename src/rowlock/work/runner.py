"""Calls the function of a task and says how the attempt ended: the same in a worker and in its child processes."""

from __future__ import annotations

import asyncio
import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rowlock.core.errors import InvalidArguments, LeaseLost, Snooze, StoreUnavailable
from rowlock.core.job import MAX_RESULT_BYTES, Settlement
from rowlock.core.outcome import AttemptEnd, Failed, Succeeded
from rowlock.core.policy import decide
from rowlock.store import jobs
from rowlock.store.follow_ups import follow_ups
from rowlock.work.arguments import to_json
from rowlock.work.classify import ArgumentsMisfit, InvalidResult, NotRegistered, Overran, classify, internal
from rowlock.work.context import Context, Report
from rowlock.work.errors import said, traced
from rowlock.work.groups import pick, speaks_of
from rowlock.work.running import Running
from rowlock.work.transactions import AttemptTransaction, given_back, leave

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
        try:
            arguments = task.arguments.unpack(job.args)
        except InvalidArguments as error:
            raise ArgumentsMisfit(said(error)) from None
        running.blocking = not task.is_async
        ctx = running.ctx
        if task.takes_context or app.middlewares or running.blocking:
            ctx = running.ctx = Context(
                app, job, report=self.report(running), resources=self._resources, blocking=running.blocking
            )
            ctx.own_transaction.enter()
        else:
            leave()
        call = self.blocking_call(running, task, ctx, arguments) if running.blocking else None
        try:
            if call is None and not app.middlewares and job.timeout_seconds is None:
                value = await (task.function(ctx, **arguments) if task.takes_context else task.function(**arguments))
            else:
                value = await self._wrapped(running, task, ctx, arguments, call)
            if running.reason in ("cancel", "timeout"):
                raise asyncio.CancelledError  # it was told to stop, and returning is how a thread obeys
            text = None if value is None else _result_text(task, value)
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
                lost = f"job {job.id} is no longer held by this attempt; its transaction was rolled back"
                raise LeaseLost(lost, job.id, job.token)
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

    def end_of(self, running: Running, error: BaseException) -> AttemptEnd | None:
        """How an attempt that raised has ended; None when it has nothing to settle. Never raises: exceptions and hooks
        are other people's code, and an attempt without an end would keep its job and its slot."""
        try:
            picked = pick(error, running.job)
            if isinstance(picked.cause, asyncio.CancelledError):
                return self.stopped(running)
            if running.reason == "lost" or speaks_of(picked.cause, running.job):
                running.reason = "lost"
                self.settled(running)
                return None
            if not isinstance(picked.cause, (Snooze, NotRegistered)):
                self._tell_hooks(running, picked.cause)
            task = self._app.registry.all().get(running.job.task)
            return classify(running.job, task.options.rules if task else {}, error, picked)
        except BaseException as broken:
            return internal(running.job, "what the attempt raised could not be understood", broken, error)

    def _tell_hooks(self, running: Running, error: BaseException) -> None:
        for hook in self._app.error_hooks:
            try:
                answer: Any = hook(running.ctx or Context(self._app, running.job), error)
                if inspect.iscoroutine(answer):
                    answer.close()
                    log.error("an error hook must be a plain function: what %r returned is not awaited", hook)
            except BaseException as broken:
                log.error("an error hook raised:\n%s", traced(broken))


def _layer(middleware: Any, ctx: Context | None, inner: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: middleware(ctx, inner)


def _result_text(task: Task[..., Any, Any], value: Any) -> str:
    try:
        return to_json(value, f"the result of {task.name!r}", MAX_RESULT_BYTES)
    except InvalidArguments as error:
        raise InvalidResult(said(error)) from None
