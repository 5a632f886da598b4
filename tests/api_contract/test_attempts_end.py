"""Every attempt ends, whatever anybody's code does: no job stays running for it, and no slot is lost."""

import asyncio
import logging
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from rowlock import Context, Rowlock
from rowlock.store.ids import new_id
from support import hostile
from support.contract_tasks import fetch, until, working

SLOTS = 4


async def all_ended(app: Rowlock) -> bool:
    ((left,),) = await fetch(app, "SELECT count(*) FROM {t}jobs WHERE state = 'running' OR attempt = 0")
    return bool(left == 0)


async def every_slot_is_free(app: Rowlock, together: Any) -> None:
    """As many jobs at the same time as the worker has slots, at once."""
    began = time.monotonic()
    for job in [await together.enqueue() for _ in range(SLOTS)]:
        assert await job.wait(timeout=20) == "together"
    assert time.monotonic() - began < 20


def meeting(app: Rowlock) -> Any:
    """A task whose jobs end when as many of them run as there are slots."""
    barrier = asyncio.Barrier(SLOTS)

    @app.task("together", max_attempts=1)
    async def together() -> str:
        await barrier.wait()
        return "together"

    return together


@pytest.mark.parametrize("seed", [1])
async def test_five_hundred_hostile_attempts_all_end_and_no_slot_is_lost(
    app: Rowlock, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    chance = random.Random(seed)

    @app.on_error
    def hook(ctx: Context, error: BaseException) -> Any:
        if chance.random() < 0.3:
            raise hostile.grave_or_not(chance)

        async def later() -> None: ...

        return later() if chance.random() < 0.1 else None

    @app.middleware
    async def around(ctx: Context, call: Callable[[], Any]) -> Any:
        if ctx.task.startswith("hostile"):
            match chance.randrange(20):
                case 0:
                    raise chance.choice(hostile.EXCEPTIONS)(chance)
                case 1:
                    return chance.choice(hostile.RESULTS)()
        return await call()

    @app.task("after", max_attempts=1)
    async def after(finished: dict[str, Any]) -> None: ...

    def fail(n: int) -> Any:
        match n % 10:
            case 0:
                return chance.choice(hostile.RESULTS)()
            case 1:
                raise chance.choice(hostile.RAISED)("plain")
        raise chance.choice(hostile.EXCEPTIONS)(chance)

    async def fail_async(n: int) -> Any:
        match n % 20:
            case 5:
                current = asyncio.current_task()
                assert current is not None
                current.cancel()
                return fail(2) if chance.random() < 0.5 else "cancelled itself"
            case 6:
                async with asyncio.TaskGroup() as group:
                    for _ in range(3):
                        group.create_task(member())
        return fail(n)

    async def member() -> None:
        try:
            raise chance.choice(hostile.IN_TASKS)(chance)
        except (KeyboardInterrupt, SystemExit):  # asyncio itself lets these two end its loop
            raise ValueError("plain") from None

    def options() -> dict[str, Any]:
        source = chance.choice([None, lambda n: f"{new_id()}:{n}"])
        rules = chance.choice([{}, {Exception: "dead"}, {ValueError: 5}])
        return {"source": source, "on_dead": chance.choice([None, after]), "rules": rules, "max_attempts": 1}

    tasks = [app.task(f"hostile-{n}", **options())(fail if n % 3 == 0 else fail_async) for n in range(12)]
    together, count = meeting(app), 600
    caplog.set_level(logging.ERROR, "rowlock.worker")
    async with working(app, pool_size=SLOTS, heartbeat_seconds=15, lease_seconds=60) as pool:
        for n in range(count):
            await tasks[n % len(tasks)].enqueue(n=n)
        await until(lambda: all_ended(app), timeout=90)
        await every_slot_is_free(app, together)
        assert (len(pool.running), pool.stale_refused, pool.reclaimed) == (0, 0, 0)

    rows = await fetch(app, "SELECT id, state, error_code FROM {t}jobs WHERE task LIKE 'hostile-%'")
    assert len(rows) == count
    ended = await fetch(app, "SELECT DISTINCT job_id FROM {t}attempts WHERE outcome IS NOT NULL")
    assert {row[0] for row in rows if row[1] != "succeeded"} <= {row[0] for row in ended}
    told = [record.getMessage() for record in caplog.records if "Traceback" in record.getMessage()]
    internal = [str(row[0]) for row in rows if row[2] == "INTERNAL"]
    assert len(internal) > 20
    for job_id in internal:
        (text,) = [text for text in told if job_id in text]
        assert "Traceback" in text
        assert "in end_of" in text
