"""What is cut off by a cancellation or a timeout does not happen later, behind the back of whoever gave it up."""

import asyncio
from typing import Any

import pytest

from rowlock import Rowlock, State, StoreError
from rowlock.store.engine.postgres import connections
from rowlock.worker.pool import WorkerPool
from support.races.writing import nobody_else_writes, patient, until_nothing_is_written, until_writers_wait
from support.tasks.contract import row_of


async def test_an_enqueue_that_timed_out_is_not_enqueued_later(app: Rowlock, app_url: str) -> None:
    @app.task
    async def note(n: int) -> None: ...

    await note.enqueue(n=1)  # from now on its statement is prepared: it is sent at once
    async with nobody_else_writes(app_url):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await note.enqueue(n=2)
    await until_nothing_is_written(app)
    await note.enqueue(n=3)
    assert sorted(job.args["n"] for job in await app.jobs()) == [1, 3]


async def test_of_many_enqueues_only_those_that_were_cancelled_do_not_happen(app: Rowlock, app_url: str) -> None:
    @app.task
    async def note(n: int) -> None: ...

    await asyncio.gather(*(note.enqueue(n=n) for n in range(4)))
    async with nobody_else_writes(app_url):
        enqueues = [asyncio.create_task(note.enqueue(n=n)) for n in range(4, 8)]
        await until_writers_wait(app, 4)
        for cancelled in enqueues[::2]:
            cancelled.cancel()
        await asyncio.wait(enqueues[::2], timeout=20)
    await asyncio.wait_for(asyncio.gather(*enqueues[1::2]), 20)
    await until_nothing_is_written(app)
    assert sorted(job.args["n"] for job in await app.jobs()) == [0, 1, 2, 3, 5, 7]


async def test_a_transaction_that_was_not_waited_for_does_not_begin(app: Rowlock, app_url: str) -> None:
    app.configure(patient(app_url))
    await app.close()  # it opens again with these

    @app.task
    async def note() -> None: ...

    async with nobody_else_writes(app_url):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3), app.transaction():
                await note.enqueue()
    async with asyncio.timeout(15):  # one that nobody uses would be in the way for 30 s
        await note.enqueue()
    await until_nothing_is_written(app)
    assert len(await app.jobs()) == 1


async def test_a_statement_that_was_cut_off_undoes_its_transaction(app: Rowlock, app_url: str) -> None:
    @app.task
    async def note() -> None: ...

    slow = "SELECT pg_sleep(20)" if app_url.startswith("postgresql") else SLOW_ON_SQLITE
    with pytest.raises(StoreError):
        async with app.transaction() as tx:
            await note.enqueue()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await tx.execute(slow)
    assert await app.jobs() == []


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)  # on SQLite a query runs in this process
async def test_a_query_that_was_cut_off_is_stopped_in_the_server(
    app: Rowlock, app_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CANCEL_SECONDS", 20.0)  # a busy server takes longer to answer than one second
    at_work = "datname = current_database() AND query LIKE 'SELECT pg_sleep(60)%' AND state = 'active'"
    asked = f"SELECT count(*) FROM pg_stat_activity WHERE {at_work}"
    async with Rowlock(app_url) as watcher:
        query = asyncio.create_task(app.fetch("SELECT pg_sleep(60) AS cut_off"))
        async with asyncio.timeout(30):
            while not (await watcher.fetch(asked))[0][0]:
                await asyncio.sleep(0.02)
            query.cancel()
            await asyncio.wait([query])
            while (await watcher.fetch(asked))[0][0]:
                await asyncio.sleep(0.05)
        assert query.cancelled()
        assert [tuple(row) for row in await app.fetch("SELECT 1")] == [(1,)], "its connections can be used"


SLOW_ON_SQLITE = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 3000000)
SELECT max(n) FROM numbers
"""


async def test_a_worker_that_has_said_goodbye_claims_nothing(
    app: Rowlock, app_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task
    async def note() -> None: ...

    store = await app.store()
    run, waiting = store.run, list[str]()

    async def told(op: Any) -> Any:
        waiting.append(op.name)
        answer = await run(op)
        waiting.remove(op.name)
        return answer

    monkeypatch.setattr(store, "run", told)
    pool = WorkerPool(app, wakeups=False, poll_interval_seconds=0.02, shutdown_timeout_seconds=0.2)
    await pool.start()
    async with asyncio.timeout(20):
        while pool.claimer.plan.repolls or not pool.idle:  # it only polls now
            await asyncio.sleep(0.01)
    async with nobody_else_writes(app_url) as (other, _):
        job = await other.task("note")(note.function).enqueue()
        async with asyncio.timeout(20):
            while "claim" not in waiting or "promote" in waiting:
                await asyncio.sleep(0.05)
        filling = pool.loops._tasks["claim"]
        stopping = asyncio.create_task(pool.stop())
        await asyncio.wait({filling}, timeout=20)
    await asyncio.wait_for(stopping, 60)
    await until_nothing_is_written(app)
    row = await row_of(app, job.id)
    assert (row["state"], row["attempt"]) == ("queued", 0)
    assert (await app.stats()).workers == 0


async def test_a_claim_by_hand_that_timed_out_leaves_the_job_to_others(app: Rowlock, app_url: str) -> None:
    @app.task
    async def note() -> None: ...

    job = await note.enqueue()
    async with nobody_else_writes(app_url):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await app.claim(job.id)
    await until_nothing_is_written(app)
    assert (await app.job(job.id)).state is State.QUEUED


async def test_a_claim_by_hand_that_is_cancelled_too_late_is_given_back(app: Rowlock) -> None:
    @app.task
    async def note() -> None: ...

    job = await note.enqueue()
    store = await app.store()
    claim, taken = store.run, asyncio.Event()

    async def cut_off_after_the_claim(op: object) -> object:
        answer = await claim(op)  # type: ignore[arg-type]
        if not taken.is_set():
            taken.set()
            await asyncio.Event().wait()
        return answer

    store.run = cut_off_after_the_claim  # type: ignore[method-assign,assignment]
    claiming = asyncio.create_task(app.claim(job.id))
    await asyncio.wait_for(taken.wait(), 20)
    claiming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claiming
    assert (await app.job(job.id)).state is State.QUEUED
