"""`app.claim(job_id)`: a job for somebody who has a loop of their own, under the same lease as a worker's."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from rowlock import (
    Context,
    FakeClock,
    Finished,
    InvalidArguments,
    JobNotFound,
    LeaseLost,
    NotAllowed,
    Rowlock,
    State,
    TaskNotFound,
    fixed,
)
from rowlock.store.jobs.leases import reclaim
from support.rigs.worker import on_one_engine
from support.tasks.contract import attempts_of, row_of, settings_for, until, working


async def test_a_job_claimed_by_hand_by_five_programs_has_one_lease_and_completes_under_it(app: Rowlock) -> None:
    @app.task
    async def note(n: int) -> None: ...

    job = await note.enqueue(n=7)
    leases = await asyncio.gather(*(app.claim(job.id, worker=f"w{n}") for n in range(5)))
    (lease,) = [lease for lease in leases if lease is not None]
    row = await row_of(app, job.id)
    assert (row["state"], row["locked_by"], row["attempt"]) == ("running", lease.worker, 1)
    assert (lease.task, lease.args, lease.attempt) == ("note", {"n": 7}, 1)
    await lease.beat()
    assert await lease.complete({"ok": True}) is State.SUCCEEDED
    assert (await app.job(job.id)).result == {"ok": True}
    assert await app.claim(job.id) is None


async def test_a_claim_by_hand_starts_the_batch_of_its_job(app: Rowlock) -> None:
    @app.task
    async def note() -> None: ...

    async with app.batch("b") as batch:
        job = await note.using(batch=batch).enqueue()
    assert (await batch.refresh()).state == "queued"
    lease = await app.claim(job.id)
    assert lease is not None
    assert (await batch.refresh()).state == "running"
    assert batch.started_at is not None
    await lease.complete()
    assert (await batch.refresh()).state == "succeeded"


async def test_a_failure_is_tried_again_after_its_backoff_until_no_try_is_left(app_url: str) -> None:
    clock = FakeClock()
    async with Rowlock(app_url, clock=clock) as app:

        @app.task(max_attempts=2, backoff=fixed(minutes=5))
        async def note() -> None: ...

        job = await note.enqueue()
        lease = await app.claim(job.id)
        assert lease is not None
        assert await lease.fail("no paper", code="PAPER") is State.RETRYABLE
        assert await app.claim(job.id) is None
        clock.move(400)
        second = await app.claim(job.id)  # no worker has promoted it
        assert second is not None
        assert second.attempt == 2
        assert await second.time_out() is State.DEAD
        assert [outcome for _, outcome, _ in await attempts_of(app, job.id)] == ["failed", "timed_out"]


async def test_permanent_is_dead_at_once_and_its_follow_up_comes(app: Rowlock) -> None:
    told: list[str] = []

    @app.task
    async def regret(finished: Finished) -> None:
        told.append(finished["job_id"])

    @app.task(on_dead=regret)
    async def note() -> None: ...

    job = await note.enqueue()
    lease = await app.claim(job.id)
    assert lease is not None
    with pytest.raises(InvalidArguments, match="after"):
        await lease.release(-1)
    assert await lease.fail("never \x00 \ud800", permanent=True) is State.DEAD  # text that no database takes as it is
    async with working(app):
        await until(lambda: bool(told))
    assert told == [job.id]


@on_one_engine
async def test_a_lease_claimed_by_hand_and_released_uses_up_no_try(app: Rowlock) -> None:
    @app.task(max_attempts=1)
    async def note() -> None: ...

    job = await note.enqueue()
    for _ in range(3):
        lease = await app.claim(job.id)
        assert lease is not None
        assert await lease.release() is State.QUEUED
        with pytest.raises(LeaseLost, match="settled already"):
            await lease.complete()
    async with working(app):
        await job.wait(10)


async def test_a_lost_lease_by_hand_refuses_every_call(app_url: str) -> None:
    clock = FakeClock()
    async with Rowlock(app_url, clock=clock) as app:

        @app.task
        async def note() -> None: ...

        lease = await app.claim((await note.enqueue()).id, lease_seconds=30)
        assert lease is not None
        clock.move(31)
        await (await app.store()).run(reclaim([0.5], 0, app.keep))
        for late in (lease.beat(), lease.complete(), lease.fail("x"), lease.release()):
            with pytest.raises(LeaseLost):
                await late


async def test_the_last_job_of_a_batch_ends_it(app: Rowlock) -> None:
    @app.task
    async def note() -> None: ...

    async with app.batch("one") as batch:
        job = await note.using(batch=batch).enqueue()
    lease = await app.claim(job.id)
    assert lease is not None
    await lease.complete()
    assert (await app.find_batch(batch.id)).state == "succeeded"


@on_one_engine
async def test_app_claim_refuses_jobs_that_cannot_be_claimed_by_hand(app: Rowlock) -> None:
    @app.task
    async def note() -> None: ...

    waiting = await note.using(delay=3600).enqueue()
    assert await app.claim(waiting.id) is None
    sourced = await note.using(source="api:x").enqueue()
    with pytest.raises(NotAllowed, match="api:x, whose limits only workers enforce"):
        await app.claim(sourced.id)
    with pytest.raises(JobNotFound):
        await app.claim("00000000-0000-7000-8000-000000000000")
    with pytest.raises(InvalidArguments, match="lease_seconds must be above 0"):
        await app.claim(waiting.id, lease_seconds=0)


async def test_a_lease_runs_its_task_as_a_worker_would(app: Rowlock) -> None:
    """Context, effects that commit with the success, a failure with its retry, a timeout; other jobs are left alone."""

    @app.task(max_attempts=2, backoff=fixed(minutes=5), timeout=0.2)
    async def endless() -> None:
        await asyncio.Event().wait()

    @app.task(max_attempts=2, backoff=fixed(minutes=5))
    async def note(ctx: Context, kind: str) -> dict[str, int]:
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO orders (id) VALUES ($1)", kind)
            if kind == "bad":
                raise ValueError("no paper")
        return {"attempt": ctx.attempt}

    async with app.transaction() as tx:
        await tx.execute("CREATE TABLE orders (id text)")
    jobs = {kind: await note.enqueue(kind=kind) for kind in ("good", "bad", "other")}
    jobs["slow"] = await endless.enqueue()
    states = {}
    for kind in ("good", "bad", "slow"):
        lease = await app.claim(jobs[kind].id)
        assert lease is not None
        states[kind] = await lease.run()
        with pytest.raises(LeaseLost, match="is settled already"):
            await lease.run()
    assert states == {"good": State.SUCCEEDED, "bad": State.RETRYABLE, "slow": State.RETRYABLE}
    assert (await app.job(jobs["good"].id)).result == {"attempt": 1}
    assert [outcome for _, outcome, _ in await attempts_of(app, jobs["bad"].id)] == ["failed"]
    assert [outcome for _, outcome, _ in await attempts_of(app, jobs["slow"].id)] == ["timed_out"]
    assert [tuple(row) for row in await app.fetch("SELECT id FROM orders")] == [("good",)]
    assert (await app.job(jobs["other"].id)).state is State.QUEUED
    assert (await app.stats()).workers == 0, "it has signed off"


async def test_a_lease_that_runs_is_renewed_for_as_long_as_its_task_takes(app_url: str) -> None:
    async with Rowlock(settings=settings_for(app_url, heartbeat_seconds=0.3)) as app:
        go = asyncio.Event()

        @app.task(max_attempts=1)
        async def note() -> None:
            await go.wait()

        job = await note.enqueue()
        lease = await app.claim(job.id, lease_seconds=60)
        assert lease is not None
        first = (await row_of(app, job.id))["lease_expires_at"]
        running = asyncio.ensure_future(lease.run())

        async def renewed() -> bool:
            return bool(((await row_of(app, job.id))["lease_expires_at"] - first).total_seconds() > 1.0)

        await until(renewed)  # by several beats
        go.set()
        assert await running is State.SUCCEEDED


@on_one_engine
async def test_a_lease_whose_run_is_cancelled_gives_its_job_back_unharmed(app: Rowlock) -> None:
    started = asyncio.Event()

    @app.task(max_attempts=1)
    async def note() -> None:
        started.set()
        await asyncio.Event().wait()

    job = await note.enqueue()
    lease = await app.claim(job.id)
    assert lease is not None
    running = asyncio.ensure_future(lease.run())
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ((await job.refresh()).state, job.record.releases) == (State.QUEUED, 1)


@on_one_engine
async def test_a_lease_for_a_task_that_this_program_does_not_have_says_so(app: Rowlock, app_url: str) -> None:
    async with Rowlock(app_url) as other:

        @other.task("elsewhere")
        async def elsewhere() -> None: ...

        job = await elsewhere.enqueue()
    lease = await app.claim(job.id)
    assert lease is not None
    with pytest.raises(TaskNotFound, match="'elsewhere'"):
        await lease.run()
    assert ((await job.refresh()).state, job.record.releases) == (State.QUEUED, 1)


@on_one_engine
async def test_a_lease_that_was_lost_runs_nothing_and_says_so(app_url: str) -> None:
    clock, ran = FakeClock(), list[int]()
    async with Rowlock(app_url, clock=clock) as app:

        @app.task
        async def note() -> None:
            ran.append(1)

        job = await note.enqueue()
        first = await app.claim(job.id, lease_seconds=10)
        assert first is not None
        clock.move(3600)
        await (await app.store()).run(reclaim([0.0], 0.0, app.keep))
        clock.move(60)
        second = await app.claim(job.id)
        assert second is not None
        await second.complete("by another")
        with pytest.raises(LeaseLost, match="no longer held"):
            await first.run()
        assert ran == []
        assert (await app.job(job.id)).result == "by another"


@on_one_engine
async def test_a_lease_whose_worker_cannot_start_is_as_it_was(app: Rowlock) -> None:
    @app.task
    async def note() -> None: ...

    async def broken() -> AsyncIterator[dict[str, int]]:
        raise RuntimeError("no server")
        yield {}

    app.lifespan(broken)
    job = await note.enqueue()
    lease = await app.claim(job.id)
    assert lease is not None
    with pytest.raises(RuntimeError, match="no server"):
        await lease.run()
    assert (await app.stats()).workers == 0
    assert await lease.release() is State.QUEUED


@on_one_engine
async def test_a_lease_is_not_run_inside_of_a_transaction(app: Rowlock) -> None:
    @app.task
    async def note() -> None: ...

    job = await note.enqueue()
    lease = await app.claim(job.id)
    assert lease is not None
    async with app.transaction():
        with pytest.raises(InvalidArguments, match="cannot be part of your transaction"):
            await lease.run()
    assert await lease.run() is State.SUCCEEDED
