"""Every attempt ends, whatever anybody's code does: no job stays running for it, and no slot is lost."""

import asyncio
import json
import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from rowlock import Context, Permanent, Retry, Rowlock, Snooze, fixed
from rowlock.client.context import loose_context
from rowlock.core.outcome import Failed
from rowlock.store.engine.ids import new_id
from rowlock.worker.attempt.attempt import LiveAttempt
from support.each import each
from support.rigs.worker import on_one_engine
from support.sql import hostile
from support.sql.refusals import refused
from support.tasks.contract import attempts_of, count_jobs, execute, fetch, in_state, row_of, until, working

SLOTS = 4


async def all_ended(app: Rowlock) -> bool:
    ((left,),) = await fetch(app, "SELECT count(*) FROM {t}jobs WHERE state = 'running' OR attempt = 0")
    return bool(left == 0)


async def every_slot_is_free(app: Rowlock, together: Any) -> None:
    """As many jobs at the same time as the worker has slots, at once."""
    began = time.monotonic()
    for job in [await together.enqueue() for _ in range(SLOTS)]:
        assert await job.wait(timeout=20) == "together"
    assert time.monotonic() - began < 20


def meeting(app: Rowlock) -> Any:
    """A task whose jobs end when as many of them run as there are slots."""
    barrier = asyncio.Barrier(SLOTS)

    @app.task("together", max_attempts=1)
    async def together() -> str:
        await barrier.wait()
        return "together"

    return together


async def test_five_hundred_hostile_attempts_all_end_and_no_slot_is_lost(
    app: Rowlock, caplog: pytest.LogCaptureFixture
) -> None:
    chance = random.Random(1)

    @app.on_error
    def hook(ctx: Context, error: BaseException) -> Any:
        if chance.random() < 0.3:
            raise hostile.grave_or_not(chance)

        async def later() -> None: ...

        return later() if chance.random() < 0.1 else None

    @app.middleware
    async def around(ctx: Context, call: Callable[[], Any]) -> Any:
        if ctx.task.startswith("hostile"):
            match chance.randrange(20):
                case 0:
                    raise chance.choice(hostile.EXCEPTIONS)(chance)
                case 1:
                    return chance.choice(hostile.RESULTS)()
        return await call()

    @app.task("after", max_attempts=1)
    async def after(finished: dict[str, Any]) -> None: ...

    def fail(n: int) -> Any:
        match n % 10:
            case 0:
                return chance.choice(hostile.RESULTS)()
            case 1:
                raise chance.choice(hostile.RAISED)("plain")
        raise chance.choice(hostile.EXCEPTIONS)(chance)

    async def fail_async(n: int) -> Any:
        match n % 20:
            case 5:
                current = asyncio.current_task()
                assert current is not None
                current.cancel()
                return fail(2) if chance.random() < 0.5 else "cancelled itself"
            case 6:
                async with asyncio.TaskGroup() as group:
                    for _ in range(3):
                        group.create_task(member())
        return fail(n)

    async def member() -> None:
        try:
            raise chance.choice(hostile.IN_TASKS)(chance)
        except (KeyboardInterrupt, SystemExit):  # asyncio itself lets these two end its loop
            raise ValueError("plain") from None

    def options() -> dict[str, Any]:
        source = chance.choice([None, lambda n: f"{new_id()}:{n}"])
        rules = chance.choice([{}, {Exception: "dead"}, {ValueError: 5}])
        return {"source": source, "on_dead": chance.choice([None, after]), "rules": rules, "max_attempts": 1}

    tasks = [app.task(f"hostile-{n}", **options())(fail if n % 3 == 0 else fail_async) for n in range(12)]
    together, count = meeting(app), 500
    caplog.set_level(logging.ERROR, "rowlock.worker")
    async with working(app, pool_size=SLOTS, heartbeat_seconds=15, lease_seconds=60) as pool:
        for n in range(count):
            await tasks[n % len(tasks)].enqueue(n=n)
        await until(lambda: all_ended(app), timeout=90)
        await every_slot_is_free(app, together)
        await until(lambda: not pool.running)
        assert (pool.stale_refused, pool.reclaimed) == (0, 0)

    rows = await fetch(app, "SELECT id, state, error_code FROM {t}jobs WHERE task LIKE 'hostile-%'")
    assert len(rows) == count
    ended = await fetch(app, "SELECT DISTINCT job_id FROM {t}attempts WHERE outcome IS NOT NULL")
    assert {row[0] for row in rows if row[1] != "succeeded"} <= {row[0] for row in ended}
    told = [record.getMessage() for record in caplog.records if "Traceback" in record.getMessage()]
    internal = [str(row[0]) for row in rows if row[2] == "INTERNAL"]
    assert len(internal) > 20
    for job_id in internal:
        (text,) = [text for text in told if job_id in text]
        assert "Traceback" in text
        assert "in end_of" in text


# One by one


class BrokenAttributes(Exception):
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name} here")


class BrokenStatus(Exception):
    @property
    def status_code(self) -> int:
        raise KeyError("its answer was never read")


class BrokenCode:
    def __str__(self) -> str:
        raise ValueError("no code")


class OddSnooze(Snooze):
    after = float("nan")

    def __init__(self) -> None:
        Exception.__init__(self, "later")


NOT_UNDERSTOOD: dict[str, Callable[[], BaseException]] = {
    "attributes": lambda: BrokenAttributes("mine"),
    "property": lambda: BrokenStatus("mine"),
    "code of Permanent": lambda: Permanent("mine", code=BrokenCode()),  # type: ignore[arg-type]
    "code of Retry": lambda: Retry("mine", code=BrokenCode()),  # type: ignore[arg-type]
    "delay of Snooze": OddSnooze,
}


@on_one_engine
@each("kind", NOT_UNDERSTOOD)
async def test_a_failure_that_cannot_be_understood_is_an_internal_one_and_uses_a_try(
    app: Rowlock, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()

    @app.task(kind, max_attempts=2, source="api:odd", backoff=fixed(3600))
    async def work() -> None:
        raise NOT_UNDERSTOOD[kind]()

    async with working(app, pool_size=1):
        job = await work.enqueue()
        await in_state(app, job.id, "retryable")
    row = await row_of(app, job.id)
    assert row["error_code"] == "INTERNAL"
    assert "could not be classified" in row["error_message"]
    assert await attempts_of(app, job.id) == [(1, "failed", "INTERNAL")]
    (told,) = [record.getMessage() for record in caplog.records if "Traceback" in record.getMessage()]
    assert job.id in told
    assert "in work" in told, "the handler's own traceback is missing"


@on_one_engine
@each("raised", [asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit, RuntimeError])
async def test_whatever_an_error_hook_raises_the_outcome_is_the_attempts(
    app_url: str, raised: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    seen: list[str] = []
    async with Rowlock(app_url) as app:

        @app.on_error
        def broken(ctx: Context, error: BaseException) -> None:
            raise raised("the hook's own")

        @app.on_error
        def fine(ctx: Context, error: BaseException) -> None:
            seen.append(str(error))

        @app.task(max_attempts=1)
        async def work() -> None:
            raise ValueError("mine")

        async with working(app, pool_size=1):
            job = await work.enqueue()
            await in_state(app, job.id, "dead")
        assert await attempts_of(app, job.id) == [(1, "failed", "ValueError")]
    assert seen == ["mine"], "the other hook was not told"
    (told,) = [record.getMessage() for record in caplog.records if "error hook" in record.getMessage()]
    assert "in broken" in told


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_an_error_hook_that_turns_out_to_be_async_is_named_in_the_log(
    app: Rowlock, caplog: pytest.LogCaptureFixture
) -> None:
    async def late(ctx: Context, error: BaseException) -> None: ...

    app.on_error(lambda ctx, error: late(ctx, error))

    @app.task(max_attempts=1)
    async def work() -> None:
        raise ValueError("mine")

    async with working(app, pool_size=1):
        job = await work.enqueue()
        await in_state(app, job.id, "dead")
    assert any("must be a plain function" in record.getMessage() for record in caplog.records)


@each(
    "number, stored",
    [
        (1, '{"kind": "exponential", "base": 10, "cap": 86400, "factor": 1e200}'),
        (2, '{"kind": "fixed", "base": 1e300, "cap": 1e300}'),
        (3, '{"kind": "fixed", "base": -1e300, "cap": 5}'),
        (4, '{"kind": 7, "base": {}, "cap": []}'),
        (5, "[]"),
        (6, '"soon"'),
    ],
)
async def test_a_backoff_that_another_program_stored_never_keeps_a_job_from_ending(
    app: Rowlock, number: int, stored: str
) -> None:
    @app.task(f"work-{number}", max_attempts=4)
    async def work() -> None:
        raise ValueError("again")

    async with working(app, pool_size=1, poll_interval_seconds=0.05):  # nothing tells it about our UPDATE
        job = await work.using(delay=3600).enqueue()
        await execute(app, "UPDATE {t}jobs_live SET backoff = $2 WHERE id = $1", job.id, stored)
        for tries in range(1, 5):
            await execute(app, "UPDATE {t}jobs_live SET run_after = created_at WHERE id = $1", job.id)
            await in_state(app, job.id, "dead" if tries == 4 else "retryable")
            await until(lambda tries=tries: reached(app, job.id, tries))  # type: ignore[misc]
    assert [row[1] for row in await attempts_of(app, job.id)] == ["failed"] * 4


async def reached(app: Rowlock, job_id: str, attempt: int) -> bool:
    found = await app.job(job_id)
    return (found.attempt, found.state == "running") == (attempt, False)


async def test_a_job_whose_stored_follow_up_cannot_be_understood_ends_as_it_did_without_it(
    app: Rowlock, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task
    async def after(finished: dict[str, Any]) -> None: ...

    @app.task(max_attempts=1, on_dead=after)
    async def work() -> None:
        raise ValueError("no")

    broken = json.dumps({"task": "after", "queue": None, "priority": 10**30})
    async with working(app, pool_size=1):
        job = await work.using(delay=3600).enqueue()
        await execute(app, "UPDATE {t}jobs_live SET on_dead = $2, run_after = created_at WHERE id = $1", job.id, broken)
        await in_state(app, job.id, "dead")
    assert (await row_of(app, job.id))["error_code"] == "ValueError"
    assert await count_jobs(app, "after") == 0
    assert any(job.id in text and "follow-up that cannot be read" in text for text in caplog.messages)


@each("fails", [True, False])
async def test_a_job_whose_follow_up_the_database_refuses_ends_dead_without_it_and_says_so(
    app: Rowlock, database: str, fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It must not stay running for ever. An operator sees it among the dead jobs and can retry it."""
    caplog.clear()
    name = f"after-{fails}"

    @app.task(name)
    async def after(finished: dict[str, Any]) -> None: ...

    @app.task(f"work-{fails}", max_attempts=1, on_success=after, on_dead=after)
    async def work() -> None:
        if fails:
            raise ValueError("no")

    with refused(database, "jobs_live", "task", name):
        async with working(app, pool_size=1):
            job = await work.enqueue()
            await in_state(app, job.id, "dead")
    assert (await row_of(app, job.id))["error_code"] == "UNSTORABLE"
    assert await count_jobs(app, name) == 0
    assert any(text == f"job {job.id} ends without its follow-up" for text in caplog.messages)
    if not fails:
        assert await app.retry(job.id)
        async with working(app, pool_size=1):
            await in_state(app, job.id, "succeeded")
        assert await count_jobs(app, name) == 1


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_filter_of_the_log_that_raises_loses_no_slot(app: Rowlock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rowlock.worker")
    together = meeting(app)

    @app.task(max_attempts=1, source="api:odd")
    async def work(fail: bool) -> None:
        if fail:
            raise BrokenStatus("mine")

    def broken(record: logging.LogRecord) -> bool:
        if "Job " in record.getMessage():
            raise RuntimeError("the filter's own")
        return True

    logger = logging.getLogger("rowlock.worker")
    async with working(app, pool_size=SLOTS) as pool:
        logger.addFilter(broken)
        try:
            jobs = [await work.using(source=f"{new_id()}:x").enqueue(fail=bool(n % 2)) for n in range(4 * SLOTS)]
            for n, job in enumerate(jobs):
                await in_state(app, job.id, "dead" if n % 2 else "succeeded")
            await until(lambda: not pool.settler.backlog)
        finally:
            logger.removeFilter(broken)
        await every_slot_is_free(app, together)


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_thread_that_the_system_refuses_is_a_failure_and_loses_no_slot(
    app: Rowlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task(max_attempts=1)
    def work() -> str:
        return "done"

    start, refused = threading.Thread.start, []

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "rowlock-slot" and len(refused) < 3:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    async with working(app, pool_size=1):
        for _ in range(3):
            await in_state(app, (await work.enqueue()).id, "dead")
        assert await (await work.enqueue()).wait(timeout=10) == "done"


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_an_end_that_nothing_can_be_decided_from_is_an_internal_failure(
    app: Rowlock, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(max_attempts=2, backoff=fixed(3600))
    async def work(ctx: Context) -> None:
        attempt = pool.running[ctx.job_id]
        pool.settler.settle(attempt, Failed("ODD", "odd", after="soon"))  # type: ignore[arg-type]
        attempt.abandoned = True  # that was its outcome

    async with working(app, pool_size=1) as pool:
        job = await work.enqueue()
        await in_state(app, job.id, "retryable")
    assert await attempts_of(app, job.id) == [(1, "failed", "INTERNAL")]
    assert any("could not be decided" in text and "Traceback" in text for text in caplog.messages)


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)  # PostgreSQL's columns hold numbers alone
@each("column", ["max_attempts", "releases"])
async def test_a_job_whose_row_no_rule_can_be_applied_to_ends_dead(app: Rowlock, column: str) -> None:
    @app.task(column)
    async def work() -> None:
        raise ValueError("again")

    job = await work.using(delay=3600).enqueue()
    await execute(app, "PRAGMA ignore_check_constraints = 1")
    await execute(app, f"UPDATE {{t}}jobs_live SET {column} = 'abc', run_after = created_at WHERE id = $1", job.id)
    async with working(app, pool_size=1):
        await in_state(app, job.id, "dead")
    assert (await app.job(job.id)).error_code == "INTERNAL"


@each("timeout", [float("nan"), float("inf"), -1.0, 0.0])
def test_a_timeout_that_is_none_is_no_timeout(timeout: float) -> None:
    """One that is no number would break the order of all timers of the event loop."""
    job = loose_context("t")._job
    assert LiveAttempt(job._replace(timeout_seconds=timeout)).job.timeout_seconds is None
    assert LiveAttempt(job._replace(timeout_seconds=2.5)).job.timeout_seconds == 2.5
