"""Dispatcher to pool in the document's words, by a clock that the test moves: success, failure, timeout, retry."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apps.engines import ONE_ENGINE
from rowlock import InvalidArguments, JobNotFound, NotAllowed, Rowlock
from rowlock.testing import Testing, testing
from rowlock_apps.cronjobs import cron_jobs
from rowlock_apps.cronjobs.executions import (
    Execution,
    get_execution,
    get_executions,
    get_pending_executions,
    history,
    reset_to_pending,
)
from support.tasks.contract import until

START = datetime(2026, 1, 1, tzinfo=UTC)
QUICK = {"timeout_seconds": 0.05}


@pytest.fixture
async def time(app: Rowlock, url: str) -> AsyncIterator[Testing]:
    """Midnight, until the test moves on."""
    async with testing(app, database=url, start=START) as t:
        yield t


async def add(app: Rowlock, name: str, params: dict[str, Any] | None = None, **given: Any) -> None:
    await cron_jobs.add(name, "sample", params, app=app, **{"cron": "*/5 * * * *"} | given)


async def tick(time: Testing, fires: int, minutes: float = 5) -> list[Execution]:
    """Move on, and let a dispatcher fire; what it made, oldest first."""
    before = {found.id for found in await get_executions(app=time.app)}
    await time.travel(minutes=minutes)
    async with time.app.dispatcher() as dispatcher:
        await until(lambda: dispatcher.fired >= fires)
    found = [made for made in await get_executions(app=time.app) if made.id not in before]
    assert len(found) == fires
    return found[::-1]


async def stands(app: Rowlock, execution_id: str, status: str, retry_count: int) -> bool:
    found = await get_execution(execution_id, app=app)
    return (found.status, found.retry_count) == (status, retry_count)


async def change(app: Rowlock, job_id: str, params: dict[str, Any]) -> None:
    """Other params for an execution that waits, so that its next attempt ends differently."""
    t = "rowlock." if (await app.store()).engine == "postgres" else "rowlock_"
    sql = f"UPDATE {t}jobs_live SET args = $1, timeout_seconds = 0.05 WHERE schedule_id = $2"
    async with app.transaction() as tx:
        await tx.execute(sql, json.dumps(params), job_id)


async def test_a_tick_becomes_a_pending_execution_that_the_pool_completes(app: Rowlock, time: Testing) -> None:
    """S2.1, S2.2, S2.4, S2.7: PENDING from the dispatcher; the pool runs it; SUCCESS with its result."""
    await add(app, "greet", {"result": {"hello": "world"}})
    (made,) = await tick(time, 1)
    assert (made.job_id, made.status, made.retry_count) == ("greet", "PENDING", 0)
    assert made.scheduled_time == START + timedelta(minutes=5)
    assert (made.started_at, made.finished_at, made.result, made.error_message) == (None, None, None, None)
    await time.drain()
    done = await get_execution(made.id, app=app)
    assert (done.status, done.result, done.retry_count) == ("SUCCESS", {"hello": "world"}, 0)
    assert done.created_at == done.started_at == done.finished_at == START + timedelta(minutes=5)
    assert [step.query for step in await history(made.id, app=app)] == ["claim_execution", "complete_execution"]


async def test_an_execution_has_what_its_cron_job_says(app: Rowlock, time: Testing) -> None:
    """S2.3: handler, params, max_retry and timeout of the cron job are those of its executions."""
    await add(app, "say", {"message": "x"}, max_retry=2, timeout_seconds=7)
    (made,) = await tick(time, 1)
    assert (made.handler_name, made.handler_params) == ("sample", {"message": "x"})
    assert (made.max_retry, made.timeout_seconds) == (2, 7)
    there = await cron_jobs.get("say", app=app)
    assert (there.handler_name, there.handler_params) == ("sample", {"message": "x"})
    assert (there.max_retry, there.timeout_seconds, there.enabled, there.origin) == (2, 7, True, "runtime")
    assert (there.cron_expression, there.timezone) == ("*/5 * * * *", "UTC")
    assert (there.last_run_at, there.next_run_at) == (START + timedelta(minutes=5), START + timedelta(minutes=10))


@pytest.mark.parametrize(
    ("params", "limits", "ends", "end_query"),
    [
        ({"should_fail": True}, {}, "FAILED", "fail_execution"),
        ({"sleep_seconds": 60}, QUICK, "TIMEOUT", "timeout_execution"),
    ],
    ids=["failure", "timeout"],
)
async def test_max_retry_3_is_4_attempts_and_the_last_one_names_the_end(
    app: Rowlock, time: Testing, params: dict[str, Any], limits: dict[str, Any], ends: str, end_query: str
) -> None:
    """S2.8, S2.9, S2.10, S2.21, S2.23, S2.24: PENDING again while retry_count < max_retry, 0→1→2→3; then it stays."""
    await add(app, "trouble", params, max_retry=3, **limits)
    (made,) = await tick(time, 1)
    async with app.worker(poll_interval_seconds=0.05):
        for retry in (1, 2, 3):
            await until(lambda retry=retry: stands(app, made.id, "PENDING", retry))  # type: ignore[misc]
            await time.travel(seconds=7)  # past the pause before a retry
        await until(lambda: stands(app, made.id, ends, 3))
        await time.travel(seconds=7)
    assert await stands(app, made.id, ends, 3), "no more tries"
    steps = await history(made.id, app=app)
    again = ["claim_execution", end_query, "reset_to_pending"]
    assert [step.query for step in steps] == [*again * 3, "claim_execution", end_query]
    assert [step.retry_count for step in steps if step.query == "claim_execution"] == [0, 1, 2, 3]
    words = "asked to fail" if ends == "FAILED" else "timed out after 0.05 s"
    told = [str((await get_execution(made.id, app=app)).error_message)]
    told += [str(step.error_message) for step in steps if step.query == end_query]
    assert {text.splitlines()[0] for text in told} == {words}  # below stands where it was raised


async def test_failed_or_timeout_is_how_the_last_attempt_ended(app: Rowlock, time: Testing) -> None:
    """S2.24: one that failed first and timed out last is TIMEOUT, and the other way round."""
    await add(app, "fails last", {"sleep_seconds": 60}, max_retry=1, **QUICK)
    await add(app, "times out last", {"should_fail": True}, max_retry=1)
    await tick(time, 2)
    await time.drain()
    await change(app, "fails last", {"should_fail": True})
    await change(app, "times out last", {"sleep_seconds": 60})
    await time.travel(seconds=7)
    await time.drain()
    ended = {found.job_id: found for found in await get_executions(app=app)}
    assert ended["fails last"].status == "FAILED"
    assert ended["times out last"].status == "TIMEOUT"


async def test_a_retry_that_succeeds_is_success_and_tells_how_often_it_was_tried(app: Rowlock, time: Testing) -> None:
    """S2.21, S2.24, S2.26: fails twice, then succeeds."""
    await add(app, "flaky", {"fail_times": 2})
    (made,) = await tick(time, 1)
    async with app.worker(poll_interval_seconds=0.05):
        for retry in (1, 2):
            await until(lambda retry=retry: stands(app, made.id, "PENDING", retry))  # type: ignore[misc]
            await time.travel(seconds=7)
        await until(lambda: stands(app, made.id, "SUCCESS", 2))
    done = await get_execution(made.id, app=app)
    assert (done.status, done.retry_count, done.error_message) == ("SUCCESS", 2, None)
    assert [step.query for step in await history(made.id, app=app)] == [
        *("claim_execution", "fail_execution", "reset_to_pending") * 2,
        *("claim_execution", "complete_execution"),
    ]


@ONE_ENGINE
async def test_a_permanent_failure_is_not_retried(app: Rowlock, time: Testing) -> None:
    await add(app, "hopeless", {"should_fail": True, "permanent": True}, max_retry=3)
    (made,) = await tick(time, 1)
    await time.drain()
    done = await get_execution(made.id, app=app)
    assert (done.status, done.retry_count) == ("FAILED", 0)


async def test_pending_executions_are_read_up_to_a_limit_and_stay_pending(app: Rowlock, time: Testing) -> None:
    """S2.5: the earliest ticks first; reading claims nothing."""
    await add(app, "often", missed="all")
    await add(app, "once", cron="20 0 * * *")
    await tick(time, 5, minutes=20)
    found = await get_pending_executions(3, app=app)
    assert [made.scheduled_time.minute for made in found] == [5, 10, 15]
    assert len(await get_pending_executions(app=app)) == 5
    assert {made.status for made in await get_executions(app=app)} == {"PENDING"}
    await time.drain()
    assert await get_pending_executions(app=app) == []
    assert len(await get_executions(job_id="often", status="SUCCESS", app=app)) == 4
    newest, *older = await get_executions(app=app)
    assert await get_executions(newer_than=older[0].id, app=app) == [newest]


async def test_an_ended_execution_is_sent_back_by_an_operator(app: Rowlock, time: Testing) -> None:
    """S2.10: `reset_to_pending` gives a FAILED or TIMEOUT one another try; what succeeded or waits is refused."""
    await add(app, "mended", {"fail_times": 1}, max_retry=0)
    (made,) = await tick(time, 1)
    with pytest.raises(NotAllowed, match="is PENDING; only FAILED and TIMEOUT ones can be sent back"):
        await reset_to_pending(made.id, app=app)
    await time.drain()
    assert (await get_execution(made.id, app=app)).status == "FAILED"
    back = await reset_to_pending(made.id, app=app)
    assert (back.status, back.retry_count) == ("PENDING", 1)
    await time.drain()
    assert (await get_execution(made.id, app=app)).status == "SUCCESS"
    with pytest.raises(NotAllowed, match="is SUCCESS"):
        await reset_to_pending(made.id, app=app)
    assert [step.query for step in await history(made.id, app=app)] == [
        *("claim_execution", "fail_execution", "reset_to_pending", "claim_execution", "complete_execution")
    ]


async def test_an_operators_cancel_reads_failed_and_says_so(app: Rowlock, time: Testing) -> None:
    await add(app, "unwanted")
    (made,) = await tick(time, 1)
    await app.cancel(made.id)
    done = await get_execution(made.id, app=app)
    assert done.status == "FAILED"
    assert "cancel" in str(done.error_message).lower()
    assert [step.query for step in await history(made.id, app=app)] == ["fail_execution"]


async def test_a_cancelled_execution_is_failed_for_good_and_keeps_its_retry_count(app: Rowlock, time: Testing) -> None:
    """S2.24: cancelled while it waits for a retry, and cancelled while it runs: told in one way."""
    await add(app, "unwanted", {"should_fail": True}, max_retry=3)
    await add(app, "endless", {"sleep_seconds": 60})
    waits, runs = sorted(await tick(time, 2), key=lambda made: made.job_id, reverse=True)
    async with app.worker(poll_interval_seconds=0.05):
        await until(lambda: stands(app, waits.id, "PENDING", 1))
        await until(lambda: stands(app, runs.id, "RUNNING", 0))
        await app.cancel(waits.id)
        await app.cancel(runs.id)
        await until(lambda: stands(app, runs.id, "FAILED", 0))
    assert await stands(app, waits.id, "FAILED", 1)
    steps = await history(waits.id, app=app)
    assert [(step.query, step.status, step.retry_count) for step in steps] == [
        ("claim_execution", "RUNNING", 0),
        ("fail_execution", "FAILED", 0),
        ("reset_to_pending", "PENDING", 1),
        ("fail_execution", "FAILED", 1),
    ]
    assert steps[-1].error_message == (await get_execution(waits.id, app=app)).error_message
    steps = await history(runs.id, app=app)
    assert [step.query for step in steps] == ["claim_execution", "fail_execution"]
    back = await reset_to_pending(waits.id, app=app)
    assert (back.status, back.retry_count) == ("PENDING", 1)


async def test_a_cron_job_is_paused_resumed_and_removed(app: Rowlock, time: Testing) -> None:
    await add(app, "shy")
    await add(app, "steady")
    await app.schedules.pause("shy")
    assert [(job.id, job.enabled) for job in await cron_jobs.get_cron_jobs(app=app)] == [
        ("shy", False), ("steady", True)
    ]  # fmt: skip
    assert (await cron_jobs.get("shy", app=app)).next_run_at is None
    assert [made.job_id for made in await tick(time, 1)] == ["steady"]
    await app.schedules.resume("shy")
    assert len(await tick(time, 2)) == 2
    await app.schedules.remove("shy")
    assert [job.id for job in await cron_jobs.get_cron_jobs(app=app)] == ["steady"]


@ONE_ENGINE
async def test_reading_executions_with_invalid_arguments_is_refused_with_the_reason(app: Rowlock) -> None:
    with pytest.raises(InvalidArguments, match=r"status must be one of PENDING, RUNNING, .* not 'DONE'"):
        await get_executions(status="DONE", app=app)
    for limit in (0, -1, True, "5", 2**70):
        with pytest.raises(InvalidArguments, match="limit must be a whole number from 1"):
            await get_pending_executions(limit, app=app)  # type: ignore[arg-type]
    for unknown in ("garbage", "a\x00", 5):
        with pytest.raises(InvalidArguments, match="newer_than must be the id of an execution"):
            await get_executions(newer_than=unknown, app=app)  # type: ignore[arg-type]
    for unknown in ("a\x00", "\ud800", 5):
        with pytest.raises(InvalidArguments, match="job_id must be the name of a cron job"):
            await get_executions(job_id=unknown, app=app)  # type: ignore[arg-type]
    assert await get_executions(job_id="nobody", app=app) == []
    with pytest.raises(JobNotFound, match="no job with id nobody"):
        await get_execution("nobody", app=app)
