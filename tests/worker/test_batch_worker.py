"""Batches under a real worker, on both engines."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rowlock import Context, Permanent, Retry, Rowlock, Snooze, fixed
from rowlock.store import Store, batches
from support.each import each
from support.rigs.worker import on_one_engine
from support.tasks.contract import rows_of, until, working


@pytest.fixture
async def app(database: str) -> AsyncIterator[Rowlock]:
    async with Rowlock(database) as opened:
        yield opened


async def test_two_hundred_jobs_of_which_some_fail_end_as_one_batch(app: Rowlock) -> None:
    told: list[dict[str, Any]] = []
    runs = 0

    @app.task
    async def report(batch: dict[str, Any]) -> None:
        told.append(batch)

    @app.task(max_attempts=2, backoff=fixed(seconds=0.01))
    async def fetch(ctx: Context, n: int) -> int:
        nonlocal runs
        runs += 1
        if n % 20 == 0:
            raise Permanent(f"page {n} is gone", code="HTTP_410")
        if n % 20 == 1:
            raise ValueError(f"page {n} is broken")
        if ctx.attempt == 1 and n % 20 == 2:
            raise Retry(after=0.01)
        if ctx.attempt == 1 and n % 20 == 3:
            raise Snooze(0.01)
        return n

    async with working(app, sweep_seconds=3600):
        async with app.batch("200 pages", owner="ana", on_end=report) as batch:
            await fetch.using(batch=batch).enqueue_many([{"n": n} for n in range(100)])
            for n in range(100, 200):
                await fetch.using(batch=batch).enqueue(n=n)
        row = await batch.wait(timeout=30)
        await until(lambda: bool(told))
    assert (row.state, row.total, row.processed, row.failed) == ("failed", 200, 200, 20)
    assert row.started_at is not None
    assert row.finished_at is not None
    assert row.created_at <= row.started_at <= row.finished_at
    assert "page" in str(row.last_error)
    assert runs == 200 + 30, "the broken ones, the retried and the snoozed ran twice"
    states = [job["state"] for job in await rows_of(app, task="fetch")]
    assert (states.count("succeeded"), states.count("dead")) == (180, 20)
    (report_job,) = await rows_of(app, task="report")
    assert report_job["owner"] == "ana"
    (batch_said,) = told
    assert (
        batch_said
        | {"batch_id": batch.id, "name": "200 pages", "owner": "ana", "state": "failed", "total": 200}
        | {"processed": 200, "failed": 20, "last_error": row.last_error}
        == batch_said
    )


@on_one_engine
async def test_an_on_end_may_take_no_argument(app: Rowlock) -> None:
    ended = asyncio.Event()

    @app.task
    async def report() -> None:
        ended.set()

    @app.task
    async def work() -> None: ...

    async with working(app, sweep_seconds=3600):
        async with app.batch("b", on_end=report) as batch:
            await work.using(batch=batch).enqueue()
        await batch.wait(timeout=10)
        async with asyncio.timeout(10):
            await ended.wait()
        (follow_up,) = await app.jobs(task=report.name)
        assert follow_up.args == {}


@each("how", ["plain", "transaction", "source", "key", "on_success", "dead", "thread"])
async def test_whatever_way_the_last_job_ends_the_worker_ends_the_batch(app: Rowlock, how: str) -> None:
    """And not the sweeper, which does not run here."""

    @app.task(f"after {how}")
    async def after(finished: dict[str, Any]) -> None: ...

    options: dict[str, Any] = {"on_success": after} if how == "on_success" else {}
    if how == "thread":

        @app.task(how)
        def in_thread() -> None: ...

    else:

        @app.task(how, **options)
        async def work(ctx: Context) -> None:
            if how == "dead":
                raise Permanent("no")
            if how == "transaction":
                async with ctx.transaction():
                    pass

    using = {"source": {"source": "api:x"}, "key": {"key": "k"}}.get(how, {})
    async with working(app, sweep_seconds=3600):
        async with app.batch("b") as batch:
            await app.get_task(how).using(batch=batch, **using).enqueue()
        row = await batch.wait(timeout=10)
    assert (row.state, row.processed) == ("failed" if how == "dead" else "succeeded", 1)


@on_one_engine
async def test_cancelling_a_batch_stops_what_runs(app: Rowlock) -> None:
    started = 0

    @app.task
    async def work(ctx: Context) -> None:
        nonlocal started
        started += 1
        while not ctx.should_stop:
            await asyncio.sleep(0.01)

    async with working(app, pool_size=2, sweep_seconds=3600, heartbeat_seconds=0.5, lease_seconds=20):
        async with app.batch("b") as batch:
            await work.using(batch=batch).enqueue_many([{}] * 20)
        await until(lambda: started == 2)
        await batch.cancel()
        row = await batch.wait(timeout=10)
    assert (row.state, row.total, row.processed, row.failed) == ("cancelled", 20, 20, 0)
    assert started == 2


@on_one_engine
async def test_a_batch_may_grow_from_within_while_it_runs(app: Rowlock) -> None:
    """A crawl: each page adds the pages that it names, until there are none."""

    @app.task
    async def crawl(ctx: Context, depth: int) -> None:
        for _ in range(2 if depth else 0):
            await ctx.enqueue(crawl.using(batch=ctx.batch_id), depth=depth - 1)

    async with working(app, sweep_seconds=3600):
        async with app.batch("crawl") as batch:
            await crawl.using(batch=batch).enqueue(depth=5)
        row = await batch.wait(timeout=30)
    assert (row.state, row.total, row.processed) == ("succeeded", 63, 63)


class TestOnPostgres:
    @pytest.fixture
    def engine(self) -> str:
        return "postgres"

    async def test_a_handlers_open_transaction_that_adds_to_its_batch_does_not_hold_up_the_others(
        self, app: Rowlock
    ) -> None:
        """What one attempt counts before it commits must not make the others' outcomes wait."""
        added, go = asyncio.Event(), asyncio.Event()

        @app.task
        async def child() -> None: ...

        @app.task
        async def parent(ctx: Context) -> None:
            async with ctx.transaction():
                await child.using(batch=ctx.batch_id).enqueue()
                added.set()
                await go.wait()

        @app.task
        async def quick() -> str:
            await added.wait()
            return "done"

        async with app.batch("b") as batch:
            await parent.using(batch=batch).enqueue()
            job = await quick.using(batch=batch).enqueue()
        async with working(app, sweep_seconds=3600):
            try:
                assert await job.wait(timeout=20) == "done"
            finally:
                go.set()
            assert (await batch.wait(timeout=10)).total == 3


@on_one_engine
async def test_a_worker_that_stops_ends_the_batch_whose_last_job_settled_itself(
    app: Rowlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be the last worker: nobody else would notice."""

    @app.task
    async def effect(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("SELECT 1")

    async with app.batch("one") as batch:
        job = await effect.using(batch=batch).enqueue()
    async with app.worker():
        end, calls = batches.end_after_commit, []

        async def slow_at_first(store: Store, ids: set[str]) -> None:
            calls.append(ids)
            if len(calls) == 1:
                await asyncio.sleep(60)  # the stop comes before it is done
            await end(store, ids)

        monkeypatch.setattr(batches, "end_after_commit", slow_at_first)
        await job.wait(10)
        await until(lambda: calls, 10)
    assert (await app.find_batch(batch.id)).state == "succeeded"
