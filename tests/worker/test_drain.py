"""An operator asks a worker to end: after the jobs that it runs, or now. It hears so with its next heartbeat."""

import asyncio
from typing import Any

import pytest

from rowlock import Rowlock, WorkerPool
from rowlock.store import workers
from rowlock.store.workers import StopHow
from rowlock.worker import lifecycle
from rowlock.worker.lifecycle import Stopper
from support.rigs.worker import on_one_engine
from support.tasks.contract import attempts_of, in_state, until

BEAT: dict[str, Any] = {"heartbeat_seconds": 0.1, "lease_seconds": 30, "shutdown_timeout_seconds": 0.2}


async def ask(app: Rowlock, pool: WorkerPool, how: StopHow) -> None:
    await (await app.store()).run(workers.ask_to_stop(pool.id, how))


@pytest.fixture
def gate() -> asyncio.Event:
    """What running jobs wait for."""
    return asyncio.Event()


@pytest.fixture
def wait(app: Rowlock, gate: asyncio.Event) -> Any:
    @app.task("wait", max_attempts=1)
    async def wait() -> str:
        await gate.wait()
        return "done"

    return wait


async def test_a_drained_worker_takes_no_job_finishes_what_runs_and_ends(
    app: Rowlock, wait: Any, gate: asyncio.Event
) -> None:
    pool = WorkerPool(app, **BEAT)
    serving = asyncio.ensure_future(lifecycle.serve(pool, Stopper()))
    running = await wait.enqueue()
    await in_state(app, running.id, "running")
    await ask(app, pool, "drain")
    await until(lambda: pool.slots.closed)
    later = await wait.enqueue()
    await asyncio.sleep(0.5)  # real: longer than the time limit of a stop by a signal, which a drain does not have
    assert (await app.job(running.id)).state == "running"
    gate.set()
    async with asyncio.timeout(30):
        await serving
    assert (await app.job(running.id)).result == "done"
    assert (await app.job(later.id)).state == "queued"
    assert await (await app.store()).run(workers.workers()) == []  # it has signed off


async def test_a_worker_told_to_stop_gives_back_what_runs_and_uses_up_no_try(app: Rowlock, wait: Any) -> None:
    pool = WorkerPool(app, **BEAT | {"shutdown_timeout_seconds": 600})
    serving = asyncio.ensure_future(lifecycle.serve(pool, Stopper()))
    running = await wait.enqueue()
    await in_state(app, running.id, "running")
    await ask(app, pool, "drain")
    await until(lambda: pool.slots.closed)
    await ask(app, pool, "stop")  # a drain that takes too long is cut short
    async with asyncio.timeout(30):
        await serving
    assert (await app.job(running.id)).state == "queued"
    assert await attempts_of(app, running.id) == [(1, "released", None)]


@on_one_engine
async def test_a_signal_during_a_drain_ends_it_within_the_usual_time_limit(app: Rowlock, wait: Any) -> None:
    stopper = Stopper()
    pool = WorkerPool(app, **BEAT)
    serving = asyncio.ensure_future(lifecycle.serve(pool, stopper))
    running = await wait.enqueue()
    await in_state(app, running.id, "running")
    await ask(app, pool, "drain")
    await until(lambda: pool.slots.closed)
    stopper()
    async with asyncio.timeout(30):
        await serving
    assert (await app.job(running.id)).state == "queued"
