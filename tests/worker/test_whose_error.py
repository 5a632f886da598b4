"""An error belongs to the job it speaks of, and the failure of a group is that of its cause."""

import asyncio
from collections.abc import Callable
from typing import Any

from rowlock import (
    Context,
    InvalidArguments,
    LeaseLost,
    Permanent,
    Retry,
    Rowlock,
    Snooze,
    SourceError,
    TaskNotFound,
    fixed,
)
from rowlock.store.engine.ids import new_id
from support.each import each
from support.rigs.worker import on_one_engine
from support.tasks.contract import attempts_of, fetch, in_state, row_of, until, working

# Errors about other jobs


@on_one_engine
async def test_a_task_that_the_handler_cannot_find_is_the_handlers_failure(app: Rowlock) -> None:
    told: list[str] = []
    app.on_error(lambda ctx, error: told.append(type(error).__name__))

    @app.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        await ctx.enqueue("misspelt")

    async with working(app):
        job = await work.enqueue()
        await in_state(app, job.id, "dead")
    assert await attempts_of(app, job.id) == [(1, "failed", "TaskNotFound")]
    assert "misspelt" in (await row_of(app, job.id))["error_message"]
    assert told == ["TaskNotFound"]


@on_one_engine
async def test_a_lost_lease_of_another_job_is_the_handlers_failure(app: Rowlock) -> None:
    """The handler claims a job by hand and settles it twice."""

    @app.task(queue="by hand")
    async def other() -> None: ...

    @app.task(max_attempts=1)
    async def work(job_id: str) -> None:
        lease = await app.claim(job_id)
        assert lease is not None
        await lease.complete()
        await lease.complete()

    async with working(app) as pool:
        theirs = await other.enqueue()
        job = await work.enqueue(job_id=theirs.id)
        await in_state(app, job.id, "dead")
        assert pool.stale_refused == 0
    assert await attempts_of(app, job.id) == [(1, "failed", "LeaseLost")]
    assert (await app.job(theirs.id)).state == "succeeded"


@on_one_engine
async def test_a_lost_lease_of_the_job_itself_is_nobodys_failure(app: Rowlock) -> None:
    """Also when the attempt hears of it in a task group, beside other failures."""

    @app.task(max_attempts=1)
    async def work(ctx: Context, grouped: bool) -> None:
        lost = LeaseLost("gone", ctx.job_id, ctx.token)
        raise BaseExceptionGroup("g", [ValueError("beside"), lost]) if grouped else lost

    async with working(app) as pool:
        for number, grouped in enumerate((False, True), 1):
            job = await work.enqueue(grouped=grouped)
            await until(lambda number=number: pool.stale_refused == number)  # type: ignore[misc]
            assert (await app.job(job.id)).state == "running", "its new holder settles it"
            assert await attempts_of(app, job.id) == []


@on_one_engine
async def test_invalid_arguments_that_the_handler_meets_are_its_own_failure(app: Rowlock) -> None:
    """By the place where they were met, not by words in the message."""

    @app.task(max_attempts=2, backoff=fixed(3600))
    async def work() -> None:
        raise InvalidArguments("the result must be JSON, at most 5 bytes of JSON")

    async with working(app):
        job = await work.enqueue()
        await in_state(app, job.id, "retryable")
    assert await attempts_of(app, job.id) == [(1, "failed", "InvalidArguments")]


# Groups


def nested(*errors: BaseException) -> BaseException:
    return BaseExceptionGroup("outer", [BaseExceptionGroup("inner", [error]) for error in errors])


Make = Callable[[], BaseException]
GROUPS: dict[str, tuple[Make, str, str | None]] = {  # what is raised; the state and the code that follow
    "a failure": (lambda: ExceptionGroup("g", [KeyError("first"), OSError("second")]), "retryable", "KeyError"),
    "permanent": (lambda: ExceptionGroup("g", [KeyError("a"), Permanent("no", code="GONE")]), "dead", "GONE"),
    "retry": (lambda: ExceptionGroup("g", [KeyError("a"), Retry("r", after=9, code="BUSY")]), "retryable", "BUSY"),
    "snooze": (lambda: ExceptionGroup("g", [KeyError("a"), Snooze(3600)]), "queued", None),
    "source": (lambda: ExceptionGroup("g", [KeyError("a"), SourceError("s")]), "retryable", "SOURCE_ERROR"),
    "nested": (lambda: nested(KeyError("a"), Permanent("no", code="GONE")), "dead", "GONE"),
    "gravest": (lambda: nested(Snooze(9), SourceError("s"), Retry(after=9), Permanent("no")), "dead", "PERMANENT"),
    "retry and snooze": (lambda: nested(Snooze(9), Retry("r", after=9)), "retryable", "RETRY"),
    "cancelled beside": (lambda: nested(asyncio.CancelledError(), KeyError("a")), "retryable", "KeyError"),
    "cancelled only": (lambda: nested(asyncio.CancelledError()), "retryable", "CANCELLED_ITSELF"),
    "by rule": (lambda: ExceptionGroup("g", [LookupError("ruled"), KeyError("a")]), "dead", "LookupError"),
    "rule of the group": (lambda: BaseExceptionGroup("g", [KeyboardInterrupt()]), "dead", "KeyboardInterrupt"),
}


@on_one_engine
@each("place", ["async", "thread"])
async def test_a_group_ends_as_its_gravest_word_or_its_first_failure(app: Rowlock, place: str) -> None:
    def body(kind: str) -> None:
        raise GROUPS[kind][0]()

    async def async_body(kind: str) -> None:
        body(kind)

    rules: Any = {LookupError: "dead", KeyError: 3600, BaseExceptionGroup: "dead", ExceptionGroup: 3600}
    work = app.task(place, max_attempts=9, backoff=fixed(3600), rules=rules)(async_body if place == "async" else body)
    async with working(app):
        for kind, (_, state, code) in GROUPS.items():
            job = await work.enqueue(kind=kind)
            await until(lambda job=job: left(app, job.id))  # type: ignore[misc]
            row = await row_of(app, job.id)
            assert (row["state"], row["error_code"]) == (state, code), kind


async def left(app: Rowlock, job_id: str) -> bool:
    found = await app.job(job_id)
    return found.attempt == 1 and found.state != "running"


@on_one_engine
async def test_the_failure_of_a_task_group_names_its_cause_and_the_others(app: Rowlock) -> None:
    hooked: list[BaseException] = []
    app.on_error(lambda ctx, error: hooked.append(error))

    async def fail(error: BaseException) -> None:
        raise error

    @app.task(max_attempts=1)
    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail(ValueError("the cause")))
            for number in range(6):
                group.create_task(fail(KeyError(f"other {number}")))

    async with working(app):
        job = await work.enqueue()
        await in_state(app, job.id, "dead")
    row = await row_of(app, job.id)
    assert row["error_code"] == "ValueError"
    assert row["error_message"].startswith("the cause\n  beside it: KeyError: 'other 0'; KeyError: 'other 1'; ")
    assert "; 1 more\n" in row["error_message"]
    assert "in fail" in row["error_message"], "where it was raised"
    assert [str(error) for error in hooked] == ["the cause"]


@on_one_engine
async def test_what_a_group_says_about_the_source_is_what_its_cause_says(app: Rowlock) -> None:
    source = f"{new_id()}:grouped"

    @app.task(max_attempts=1, source=source)
    async def work() -> None:
        raise ExceptionGroup("g", [KeyError("a"), SourceError("down", retry_after=3600)])

    async with working(app):
        job = await work.enqueue()
        await in_state(app, job.id, "dead")
    ((paused,),) = await fetch(app, "SELECT paused_until FROM {t}sources WHERE name = $1", source)
    assert paused is not None


def test_a_lost_lease_says_whose_it_was() -> None:
    assert (LeaseLost("gone").job_id, LeaseLost("gone", "j", "t").token) == (None, "t")
    assert isinstance(TaskNotFound("x"), LookupError)
