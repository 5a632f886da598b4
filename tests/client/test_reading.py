"""`app.jobs()` and `app.stats()`: what a program asks without SQL."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rowlock import InvalidArguments, JobDead, JobNotFound, Rowlock, StoreError, fixed
from support.each import each
from support.tasks.contract import working


async def test_jobs_are_listed_newest_first_and_in_pages(app: Rowlock) -> None:
    @app.task
    async def note(n: int) -> int:
        return n

    made = await note.using(tags=["mine"]).enqueue_many([{"n": n} for n in range(5)])
    await note.enqueue(n=99)
    found = await app.jobs(tag="mine")
    assert [job.id for job in found] == [job.id for job in reversed(made)]
    first = await app.jobs(tag="mine", limit=2)
    assert [job.args["n"] for job in await app.jobs(tag="mine", limit=2, before=first[-1].id)] == [2, 1]


async def test_jobs_are_chosen_by_state_task_queue_owner_and_source(app: Rowlock) -> None:
    @app.task(queue="paper")
    async def note(n: int) -> int:
        return n

    @app.task
    async def other() -> None:
        pass

    done = await note.using(owner="ana", source="api:x").enqueue(n=1)
    async with working(app, queues=["paper"]):
        assert await done.wait(10) == 1
    waiting = await note.enqueue(n=2)
    await other.enqueue()
    assert [job.id for job in await app.jobs(state="succeeded")] == [done.id]
    assert [job.id for job in await app.jobs(state=["succeeded", "queued"], task="note")] == [waiting.id, done.id]
    assert [job.id for job in await app.jobs(queue="paper", owner="ana")] == [done.id]
    assert [job.id for job in await app.jobs(source="api:x")] == [done.id]
    (job,) = await app.jobs(owner="ana")
    assert (job.result, await job.wait(1)) == (1, 1)


async def test_app_jobs_refuses_an_unknown_state_a_naive_time_and_a_bad_id(app: Rowlock) -> None:
    with pytest.raises(InvalidArguments, match="state must be one or more of queued, running"):
        await app.jobs(state="done")
    with pytest.raises(InvalidArguments, match="since must have a time zone"):
        await app.jobs(since=datetime(2026, 1, 1))
    with pytest.raises((InvalidArguments, JobNotFound), match="not a job id"):
        await app.jobs(before="7")


async def test_stats_say_how_queues_and_workers_stand(app: Rowlock) -> None:
    @app.task(queue="paper")
    async def note() -> None:
        pass

    await note.enqueue_many([{}, {}])
    (queue,) = [queue for queue in (await app.stats()).queues if queue.name == "paper"]
    assert (queue.queued, queue.running, queue.longest_running_seconds) == (2, 0, None)


async def test_times_in_sql_compare_with_those_of_the_view(app: Rowlock, engine: str) -> None:
    @app.task
    async def note() -> None: ...

    await note.enqueue()
    now, view = datetime.now(UTC), "rowlock.jobs" if engine == "postgres" else "rowlock_jobs"
    async with app.transaction() as tx:
        for hours, found in ((-1, 1), (1, 0)):
            query = f"SELECT count(*) FROM {view} WHERE created_at >= $1"
            assert (await tx.fetch(query, now + timedelta(hours=hours)))[0][0] == found


async def test_fetch_reads_beside_a_writer_and_may_not_write(app: Rowlock, app_url: str) -> None:
    async with Rowlock(app_url) as other, other.transaction() as tx:
        await tx.execute("CREATE TABLE orders (id integer)")
        assert [tuple(row) for row in await app.fetch("SELECT 1 + $1", 2)] == [(3,)]
        with pytest.raises(StoreError):
            await asyncio.wait_for(app.fetch("INSERT INTO job_keys_nobody_has VALUES (1)"), 5)
    with pytest.raises(StoreError, match=r"(?i)read-?only"):
        await app.fetch("INSERT INTO orders VALUES (1) RETURNING id")
    assert await app.fetch("SELECT id FROM orders") == []


async def test_fetch_inside_of_a_transaction_sees_what_it_has_written(app: Rowlock) -> None:
    async with app.transaction() as tx:
        await tx.execute("CREATE TABLE orders (id integer)")
        await tx.execute("INSERT INTO orders VALUES (7)")
        assert [row[0] for row in await app.fetch("SELECT id FROM orders")] == [7]


async def test_attempts_tell_how_each_run_failed(app: Rowlock) -> None:
    @app.task(max_attempts=2, backoff=fixed(seconds=0.01))
    async def note() -> None:
        raise ValueError("no paper")

    job = await note.enqueue()
    async with working(app):
        with pytest.raises(JobDead):
            await job.wait(10)
    found = await app.attempts(job.id)
    assert [(one.attempt, one.outcome, one.error_code) for one in found] == [
        (1, "failed", "ValueError"),
        (2, "failed", "ValueError"),
    ]


@pytest.mark.parametrize("engine", ["sqlite"])
@each("limit", [0, -1, 2**31, True, "5", None])
async def test_a_limit_that_is_no_number_from_one_is_refused(app: Rowlock, limit: Any) -> None:
    for read in (app.jobs(limit=limit), app.sources.list(limit), app.schedules.list(limit)):
        with pytest.raises(InvalidArguments, match="limit must be a whole number from 1"):
            await read
