"""The document's queries in a loop of one's own: its executor, step by step, on each engine."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from rowlock import JobNotFound, LeaseLost, NotAllowed, Rowlock
from rowlock.testing import testing
from rowlock_apps.cronjobs import cron_jobs
from rowlock_apps.cronjobs.by_hand import claim_execution, complete_execution, fail_execution, timeout_execution
from rowlock_apps.cronjobs.executions import (
    Execution,
    get_execution,
    get_pending_executions,
    history,
    reset_to_pending,
)
from rowlock_apps.cronjobs.handler.base import get_handler
from rowlock_apps.cronjobs.sql import FILE, query


async def execute(job_info: Execution, app: Rowlock) -> Execution | None:
    """As the document writes it, but for `asyncio.wait_for`, which swallows a cancel on Python 3.11."""
    lease = await claim_execution(job_info.id, app=app)
    if lease is None:
        return None
    try:
        async with asyncio.timeout(job_info.timeout_seconds):
            result = await get_handler(job_info.handler_name).execute(job_info.handler_params)
    except TimeoutError:
        return await timeout_execution(lease, app=app)
    except Exception as error:
        return await fail_execution(lease, str(error), app=app)
    return await complete_execution(lease, result, app=app)


async def run(app: Rowlock, name: str, params: dict[str, Any], **given: Any) -> str:
    await cron_jobs.add(name, "sample", params, app=app, **{"cron": "0 0 1 1 *"} | given)
    return (await app.schedules.run(name)).id


async def test_the_documents_loop_takes_executions_to_success_failure_and_timeout(app: Rowlock, url: str) -> None:
    """S2.5 to S2.10, S2.20 to S2.24: pending, claim, run, then complete, fail or time out; retries up to max_retry."""
    async with testing(app, database=url) as t:
        fine = await run(app, "fine", {"result": 7})
        bad = await run(app, "bad", {"should_fail": True}, max_retry=1)
        slow = await run(app, "slow", {"sleep_seconds": 60}, max_retry=1, timeout_seconds=0.01)
        first = [await execute(each, app) for each in await get_pending_executions(10, app=app)]
        assert [(str(each.status), each.retry_count) for each in first if each] == [
            ("SUCCESS", 0), ("PENDING", 1), ("PENDING", 1)
        ]  # fmt: skip
        early = [await execute(each, app) for each in await get_pending_executions(10, app=app)]
        assert early == [None, None], "the pause before a retry is not over"
        await t.travel(seconds=7)
        second = [await execute(each, app) for each in await get_pending_executions(10, app=app)]
        assert [(str(each.status), each.retry_count) for each in second if each] == [("FAILED", 1), ("TIMEOUT", 1)]
        assert (await get_execution(fine, app=app)).result == 7
        assert (await get_execution(bad, app=app)).error_message == "asked to fail"
        assert [step.query for step in await history(slow, app=app)] == [
            *("claim_execution", "timeout_execution", "reset_to_pending", "claim_execution", "timeout_execution")
        ]


async def test_of_many_that_claim_one_gets_it_and_only_its_lease_can_write(app: Rowlock) -> None:
    """S2.6, S2.27, S2.28: atomic; RUNNING under its worker's name; what is given back can be claimed again."""
    execution_id = await run(app, "one", {})
    claims = (claim_execution(execution_id, worker=f"loop {n}", lease_seconds=30, app=app) for n in range(8))
    (lease,) = [lease for lease in await asyncio.gather(*claims) if lease is not None]
    now = await get_execution(execution_id, app=app)
    assert (now.status, now.worker) == ("RUNNING", lease.worker)
    await lease.release()
    assert (await get_execution(execution_id, app=app)).retry_count == 0
    again = await claim_execution(execution_id, app=app)
    assert again is not None
    with suppress(LeaseLost):
        await complete_execution(lease, "too late", app=app)
    now = await get_execution(execution_id, app=app)
    assert (now.status, now.worker, now.result) == ("RUNNING", again.worker, None), "the old lease writes nothing"
    assert (await complete_execution(again, "in time", app=app)).result == "in time"
    with pytest.raises(JobNotFound):
        await claim_execution("nobody", app=app)


QUERIES = (
    *("get_pending_executions", "claim_execution", "complete_execution", "fail_execution", "timeout_execution"),
    "reset_to_pending",
)


def test_the_documents_six_queries_are_in_worker_sql_and_used() -> None:
    """S2.5 to S2.11: by their names; the other tests of this file show what each of them does."""
    code = "".join(file.read_text() for file in FILE.parent.parent.glob("*.py"))
    for name in QUERIES:
        assert query(name).startswith("-- "), "a sentence says what it is for"
        assert f'"{name}", ' in code, f"nothing runs {name}"


async def test_each_step_is_taken_from_its_own_status_only(app: Rowlock) -> None:
    """S2.6, S2.10: what is not PENDING is not claimed; what has not FAILED or timed out is not reset."""
    execution_id = await run(app, "one", {})
    with pytest.raises(NotAllowed, match=f"{execution_id} is PENDING; only FAILED and TIMEOUT ones"):
        await reset_to_pending(execution_id, app=app)
    lease = await claim_execution(execution_id, app=app)
    assert lease is not None
    assert await claim_execution(execution_id, app=app) is None
    with pytest.raises(NotAllowed, match="is RUNNING"):
        await reset_to_pending(execution_id, app=app)
    for _ in range(4):  # max_retry is 3
        now = await fail_execution(lease, "no luck", app=app)
        async with app.transaction() as tx:
            t = "rowlock." if (await app.store()).engine == "postgres" else "rowlock_"
            await tx.execute(f"UPDATE {t}jobs_live SET ready = $1, run_after = created_at", True)
        lease = await claim_execution(execution_id, app=app) or lease
    assert (now.status, now.error_message, now.retry_count) == ("FAILED", "no luck", 3)
    assert await claim_execution(execution_id, app=app) is None
    assert (await reset_to_pending(execution_id, app=app)).status == "PENDING"
