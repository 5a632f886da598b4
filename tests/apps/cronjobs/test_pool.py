"""The document's WorkerPool and Executor, and the handlers that write: with a real pool, on each engine."""

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import pytest

import rowlock.client.tasks.registry as registry
from apps.engines import ONE_ENGINE
from rowlock import BaseHandler, Rowlock, handler
from rowlock.testing import testing
from rowlock.worker.attempt.slots import Slots
from rowlock_apps.cronjobs import cron_jobs
from rowlock_apps.cronjobs.executions import get_executions, get_pending_executions, history
from rowlock_apps.cronjobs.executor import Executor
from rowlock_apps.cronjobs.main import WorkerPool
from rowlock_apps.cronjobs.sql import moment, query
from support.tasks.contract import until

CONFIG = {"pool_size": 5, "poll_interval_seconds": 5, "claim_batch_size": 10, "shutdown_timeout_seconds": 30}


async def add(app: Rowlock, name: str, params: dict[str, Any] | None = None, **given: Any) -> None:
    await cron_jobs.add(name, "sample", params, app=app, **{"cron": "0 0 1 1 *"} | given)


@ONE_ENGINE
async def test_the_executor_runs_one_job_to_success_failure_or_timeout(app: Rowlock) -> None:
    """S2.20, S2.21, S2.22, S2.33: each ends as it must, and none of them raises."""
    await add(app, "fine", {"result": 3})
    await add(app, "bad", {"should_fail": True, "retry_after_seconds": 0.01}, max_retry=1)
    await add(app, "slow", {"sleep_seconds": 60}, max_retry=0, timeout_seconds=0.05)
    executor = Executor(app)
    await app.schedules.run("slow")
    (waiting,) = await get_pending_executions(app=app)
    async with app.worker():
        fine, bad, slow = await asyncio.gather(
            executor.execute("fine", 20),
            executor.execute(await cron_jobs.get("bad", app=app), 20),
            executor.execute(waiting, 20),
        )
    assert slow.id == waiting.id
    assert (fine.status, fine.result, fine.retry_count) == ("SUCCESS", 3, 0)
    assert (bad.status, str(bad.error_message).splitlines()[0], bad.retry_count) == ("FAILED", "asked to fail", 1)
    assert (slow.status, slow.error_message, slow.retry_count) == ("TIMEOUT", "timed out after 0.05 s", 0)


async def test_the_executor_runs_one_job_where_there_is_no_pool(app: Rowlock) -> None:
    """S2.20 to S2.24, S2.33: RUNNING, handler, timeout, then complete, fail or time out and the retry."""
    await add(app, "fine", {"result": 3})
    await add(app, "flaky", {"fail_times": 1, "retry_after_seconds": 0.01}, max_retry=1)
    await add(app, "bad", {"should_fail": True, "retry_after_seconds": 0.01}, max_retry=1)
    await add(app, "slow", {"sleep_seconds": 60}, max_retry=0, timeout_seconds=0.05)
    await cron_jobs.add("report", "report", {"hours": 1}, cron="0 0 1 1 *", app=app)  # writes in its own transaction
    await app.schedules.run("fine")
    await app.schedules.run("fine")
    first, second = await get_pending_executions(app=app)
    executor = Executor(app)
    assert (await executor.execute(second, 20)).status == "SUCCESS"
    assert [left.id for left in await get_pending_executions(app=app)] == [first.id], "it runs what it is given, only"
    ended = [await executor.execute(name, 20) for name in ("flaky", "bad", "slow", "report")]
    assert [(str(made.status), made.retry_count) for made in ended] == [
        ("SUCCESS", 1), ("FAILED", 1), ("TIMEOUT", 0), ("SUCCESS", 0)
    ]  # fmt: skip
    assert len(await reports(app)) == 1
    await add(app, "endless", {"sleep_seconds": 600}, max_retry=0)
    with pytest.raises(TimeoutError):
        await executor.execute("endless", 0.3)
    (given_back,) = [left for left in await get_pending_executions(app=app) if left.job_id == "endless"]
    assert (given_back.status, given_back.retry_count) == ("PENDING", 0)


@ONE_ENGINE
async def test_an_execution_of_a_handler_that_is_not_known_here_is_left_to_a_pool_that_has_it(app: Rowlock) -> None:
    @handler("elsewhere")
    class ElsewhereHandler(BaseHandler):
        async def execute(self, params: dict[str, Any]) -> None: ...

    await cron_jobs.add("other", "elsewhere", cron="0 0 1 1 *", app=app)
    await app.schedules.run("other")
    (waiting,) = await get_pending_executions(app=app)
    del registry._registry["elsewhere"]
    app.registry._tasks.pop("elsewhere")
    with pytest.raises(TimeoutError):
        await Executor(app).execute(waiting, 0.2)
    assert [(left.id, left.status) for left in await get_pending_executions(app=app)] == [(waiting.id, "PENDING")]


@ONE_ENGINE
async def test_a_claim_takes_at_most_claim_batch_size_executions(app: Rowlock, monkeypatch: pytest.MonkeyPatch) -> None:
    """S2.14: with more free slots than that, the pool claims more than once."""
    gate = asyncio.Event()

    @handler("waiting")
    class WaitingHandler(BaseHandler):
        async def execute(self, params: dict[str, Any]) -> None:
            await gate.wait()

    await cron_jobs.add("many", "waiting", cron="0 0 1 1 *", app=app)
    for _ in range(12):
        await app.schedules.run("many")
    claimed: list[int] = []
    take = Slots.add

    def counted(slots: Slots, jobs: list[Any], sent: float) -> None:
        claimed.append(len(jobs))
        take(slots, jobs, sent)

    monkeypatch.setattr(Slots, "add", counted)
    pool = WorkerPool(CONFIG | {"claim_batch_size": 2}, app=app)
    await pool.start()
    try:
        await until(lambda: sum(claimed) >= 5)
        gate.set()
        await until(lambda: _all_done(app, 12))
    finally:
        await pool.stop()
    assert max(claimed) == 2
    assert sum(claimed) == 12


@ONE_ENGINE
async def test_the_pool_starts_runs_five_at_a_time_and_stops(app: Rowlock) -> None:
    """S2.12, S2.25, S2.32: `WorkerPool(config)`, `start()`, `_poll_and_assign()`, `stop()`."""
    inside, gate = [0], asyncio.Event()

    @handler("counting")
    class CountingHandler(BaseHandler):
        async def execute(self, params: dict[str, Any]) -> int:
            inside[0] += 1
            now = inside[0]
            await gate.wait()
            inside[0] -= 1
            return now

    await cron_jobs.add("busy", "counting", cron="0 0 1 1 *", app=app)
    for _ in range(12):
        await app.schedules.run("busy")
    pool = WorkerPool(CONFIG, app=app)
    await pool.start()
    try:
        await until(lambda: inside[0] >= 5)
        assert await pool._poll_and_assign() >= 0  # a round with five at work would take a sixth, if it may
        assert len(await get_executions(status="RUNNING", app=app)) == inside[0] == 5
        gate.set()
        await until(lambda: _all_done(app, 12))
    finally:
        await pool.stop()
    assert max(done.result for done in await get_executions(app=app)) == 5
    await app.schedules.run("busy")
    with pytest.raises(AssertionError, match="not within"):
        await until(lambda: _any(app, "RUNNING"), 0.2)


async def _all_done(app: Rowlock, count: int) -> bool:
    return len(await get_executions(status="SUCCESS", app=app)) == count


async def _any(app: Rowlock, status: str) -> bool:
    return bool(await get_executions(status=status, app=app))


@ONE_ENGINE
async def test_an_error_in_one_handler_leaves_the_others_and_the_pool_running(app: Rowlock) -> None:
    """S2.31: whatever one raises, also what is no Exception, the others and the pool go on."""

    class Rude(BaseException):
        pass

    @handler("rude")
    class RudeHandler(BaseHandler):
        async def execute(self, params: dict[str, Any]) -> Any:
            raise {"exit": SystemExit(3), "cancel": asyncio.CancelledError(), "base": Rude()}[params["kind"]]

    for kind in ("exit", "cancel", "base"):
        await cron_jobs.add(f"rude {kind}", "rude", {"kind": kind}, max_retry=0, cron="0 0 1 1 *", app=app)
    await add(app, "kind", {"sleep_seconds": 0.2})
    names = ["kind", "rude exit", "rude cancel", "rude base", "kind", "kind"]
    async with app.worker():
        ended = await asyncio.gather(*(Executor(app).execute(name, 20) for name in names))
        assert (await Executor(app).execute("kind", 20)).status == "SUCCESS"
    assert [made.status for made in ended] == ["SUCCESS", "FAILED", "FAILED", "FAILED", "SUCCESS", "SUCCESS"]


async def test_a_stop_gives_back_what_does_not_finish_and_uses_up_no_retry(app: Rowlock) -> None:
    """S2.30: after shutdown_timeout the execution is PENDING again, and the next pool runs it in the same try."""
    runs: list[int] = []

    @handler("endless at first")
    class EndlessHandler(BaseHandler):
        async def execute(self, params: dict[str, Any]) -> None:
            runs.append(1)
            if len(runs) == 1:
                await asyncio.Event().wait()

    await cron_jobs.add("long", "endless at first", max_retry=0, cron="0 0 1 1 *", app=app)
    job = await app.schedules.run("long")
    pool = WorkerPool(CONFIG | {"shutdown_timeout_seconds": 0.1}, app=app)
    await pool.start()
    await until(lambda: bool(runs))
    async with asyncio.timeout(10):
        await pool.stop()
    (given_back,) = await get_pending_executions(app=app)
    assert (given_back.id, given_back.retry_count, given_back.max_retry) == (job.id, 0, 0)
    async with app.worker():
        await job.wait(20)
    (done,) = await get_executions(app=app)
    assert (done.status, done.retry_count) == ("SUCCESS", 0)
    assert [step.query for step in await history(job.id, app=app)] == [
        *("claim_execution", "reset_to_pending", "claim_execution", "complete_execution")
    ]


async def test_a_report_counts_what_ended_before_its_tick_and_cleanup_forgets_it(app: Rowlock, url: str) -> None:
    """The handlers that write do it with their own SUCCESS, once for each tick however often they run."""
    async with testing(app, database=url, start=datetime(2026, 1, 1, 11, 30, tzinfo=UTC)) as t:
        await add(app, "fine")
        await add(app, "bad", {"should_fail": True}, max_retry=0)
        await cron_jobs.add("report", "report", {"hours": 1}, cron="0 * * * *", app=app)
        await cron_jobs.add("cleanup", "cleanup", {"keep_days": 1}, cron="30 12 * * *", app=app)
        for name in ("fine", "fine", "bad"):
            await app.schedules.run(name)
        await t.drain()
        await t.travel(minutes=47)  # the report is late, and is about 11 to 12 all the same
        async with app.dispatcher() as dispatcher:
            await until(lambda: dispatcher.fired >= 1)
        await t.drain()
        (made,) = await get_executions(job_id="report", app=app)
        assert made.status == "SUCCESS"
        counted = {"bad": {"FAILED": 1}, "fine": {"SUCCESS": 2}}
        assert made.result["executions"] == counted
        assert (made.result["from"], made.result["to"]) == ("2026-01-01T11:00:00+00:00", "2026-01-01T12:00:00+00:00")
        assert await reports(app) == [("report", datetime(2026, 1, 1, 12, tzinfo=UTC), counted)]
        await t.travel(hours=24.5)
        await app.schedules.run("cleanup")
        await t.drain()
        (swept,) = await get_executions(job_id="cleanup", app=app)
        assert swept.result == {"removed": 1}
        assert await reports(app) == []


async def reports(app: Rowlock) -> list[tuple[str, datetime, Any]]:
    async with app.transaction() as tx:
        rows = await tx.fetch(query("get_reports"), 10)
    return [(job_id, moment(at), json.loads(body)["executions"]) for job_id, at, body in rows]


@ONE_ENGINE
async def test_a_report_that_belongs_to_no_tick_is_refused(app: Rowlock) -> None:
    async with app.worker():
        job = await app.enqueue("report", hours=1)
        await until(lambda: _dead(app, job.id))
    assert (await app.job(job.id)).error_code == "NOT_SCHEDULED"


async def _dead(app: Rowlock, job_id: str) -> bool:
    return str((await app.job(job_id)).state) == "dead"
