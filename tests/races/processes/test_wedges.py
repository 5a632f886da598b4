"""An error that nobody expected stops no loop of a worker in silence: it goes on, or it ends and says why."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rowlock import Rowlock
from rowlock.worker.pool import WorkerPool
from support.each import each
from support.rigs.worker import on_one_engine

SHORT = {"lease_seconds": 2, "heartbeat_seconds": 0.5, "sweep_seconds": 0.5, "poll_interval_seconds": 0.5}


class Surprise(Exception):
    """Such as the errors of a driver that are not in its own hierarchy."""


@pytest.fixture
async def app(url: str) -> AsyncIterator[Rowlock]:
    async with Rowlock(url) as app:
        yield app


async def settled_or_ended(pool: WorkerPool, handle: Any) -> str:
    """Whichever comes first: the job's result, or the worker's own end."""
    waiting, joining = asyncio.ensure_future(handle.wait(timeout=30)), asyncio.ensure_future(pool.join())
    await asyncio.wait({waiting, joining}, return_when=asyncio.FIRST_COMPLETED)
    if joining.done():
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return "ended" if joining.exception() else "ended in silence"
    joining.cancel()
    await asyncio.gather(joining, return_exceptions=True)
    return "settled" if waiting.exception() is None else f"neither: {waiting.exception()!r}"


def surprise_once(monkeypatch: pytest.MonkeyPatch, store: Any, names: set[str]) -> list[str]:
    """Let the next operation of one of these names fail in a way that the store does not know."""
    run, surprised = store.run, list[str]()

    async def surprising(op: Any) -> Any:
        if op.name in names and not surprised:
            surprised.append(op.name)
            raise Surprise(op.name)
        return await run(op)

    monkeypatch.setattr(store, "run", surprising)
    return surprised


@on_one_engine
@each("names", [{"succeed", "settle"}, {"claim"}, {"promote"}], ids=["settle", "claim", "promote"])
async def test_a_surprise_in_a_loop_of_the_worker_does_not_wedge_it(app: Rowlock, names: set[str]) -> None:
    @app.task(min(names))
    async def easy() -> int:
        return 7

    with pytest.MonkeyPatch.context() as patch:
        async with app.worker(**SHORT) as pool:
            surprised = surprise_once(patch, await app.store(), names)
            handles = [await easy.enqueue()]
            async with asyncio.timeout(30):
                while not surprised:  # a job may be settled before the next promotion
                    await asyncio.sleep(0.01)
            handles.append(await easy.enqueue())
            for handle in handles:
                assert await settled_or_ended(pool, handle) in ("settled", "ended")


@on_one_engine
async def test_a_surprise_in_a_beat_does_not_stop_the_heart(app: Rowlock, monkeypatch: pytest.MonkeyPatch) -> None:
    renewed = asyncio.Event()

    @app.task
    async def longer() -> int:
        await renewed.wait()
        return 7

    async with app.worker(**SHORT | {"lease_seconds": 60}) as pool:
        beat, surprised = pool.heart._beat, list[bool]()

        async def surprising(store: Any) -> None:
            if not surprised:
                surprised.append(True)
                raise Surprise("beat")
            await beat(store)

        monkeypatch.setattr(pool.heart, "_beat", surprising)
        handle = await longer.enqueue()
        async with asyncio.timeout(30):
            while not (surprised and pool.running):
                await asyncio.sleep(0.01)
            (attempt,) = pool.running.values()
            before = attempt.renewed
            while attempt.renewed == before:  # by a beat after the one that failed
                await asyncio.sleep(0.01)
        renewed.set()
        assert await settled_or_ended(pool, handle) == "settled"
        await handle.refresh()
        assert (handle.attempt, handle.losses) == (1, 0)
