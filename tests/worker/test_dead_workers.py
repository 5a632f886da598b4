"""Rows of workers that died go away by themselves, and a worker that was believed dead comes back."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import pytest

from rowlock import Rowlock
from rowlock.core.times import FakeClock
from rowlock.store import workers
from rowlock.store.workers import Worker

LIMIT = 30.0


@pytest.fixture
async def app(database: str, clock: FakeClock) -> AsyncIterator[Rowlock]:
    async with Rowlock(database, clock=clock) as opened:
        yield opened


async def until(app: Rowlock, true: Callable[[list[Worker]], bool]) -> list[Worker]:
    """The rows of workers, once this is true of them."""
    store = await app.store()
    deadline = time.monotonic() + LIMIT
    while not true(found := await store.run(workers.workers())):
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.02)
    return found


async def test_a_living_worker_removes_the_rows_of_dead_ones(app: Rowlock, clock: FakeClock) -> None:
    store = await app.store()
    await store.run(workers.register("dead", "host", 1, "1", ["default"], [], 1, None, 60))
    clock.move(2 * 3600)
    async with app.worker(lease_seconds=0.4, heartbeat_seconds=0.1) as pool:
        (left,) = await until(app, lambda found: len(found) == 1)
        assert left.id == pool.id


async def test_a_sleeping_worker_whose_row_was_removed_is_woken_again(app: Rowlock) -> None:
    async with app.worker(lease_seconds=20, heartbeat_seconds=0.2, poll_interval_seconds=3600) as pool:
        await until(app, lambda found: [worker.idle for worker in found] == [True])
        await (await app.store()).run(workers.remove(pool.id))
        (back,) = await until(app, lambda found: [worker.idle for worker in found] == [True])
        assert back.id == pool.id
