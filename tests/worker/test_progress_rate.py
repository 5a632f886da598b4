"""Progress is written at most four times a second for each job, however often a handler reports it."""

import asyncio
import time

from rowlock import Context, Rowlock
from rowlock.api.live import events
from support.rigs.worker import on_one_engine

SECONDS = 1.2


@on_one_engine
async def test_a_handler_that_reports_all_the_time_writes_a_few_events_a_second(app: Rowlock) -> None:
    calls = 0

    @app.task("spam")
    async def spam(ctx: Context) -> None:
        nonlocal calls
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            calls += 1
            await ctx.progress(0, message=f"call {calls}")
            await asyncio.sleep(0)

    job = await spam.using(owner="ana").enqueue()
    async with app.worker():
        started = time.monotonic()
        await job.wait(timeout=30)
        taken = time.monotonic() - started
    found = await (await app.store()).run(events.after(0, 10_000, "ana"))
    told = [event for event in found if event.job_id == job.id and event.type == "job.progress"]
    assert calls > 100
    assert 1 <= len(told) <= 4 * taken + 3
    assert told[-1].message == f"call {calls}"
