"""The tasks of the race tests. Where they write and which database they use is in the environment."""

import asyncio
import os
import signal
import time

from rowlock import Context, LeaseLost, Retry, Rowlock
from support.races.ledger import Ledger

app = Rowlock()
_ledgers: dict[int, Ledger] = {}


def note(ctx: Context, kind: str) -> None:
    """One line in the ledger of this process."""
    ledger = _ledgers.get(os.getpid()) or _ledgers.setdefault(os.getpid(), Ledger(os.environ["RACE_LEDGER"]))
    ledger.write(kind, ctx.job_id, ctx.attempt, ctx.token)


@app.task
async def work(ctx: Context, ms: int = 0) -> int:
    """Sleep as an async handler does."""
    note(ctx, "start")
    try:
        await asyncio.sleep(ms / 1000)
    except asyncio.CancelledError:
        note(ctx, "stop")
        raise
    note(ctx, "end")
    return ms


@app.task
async def child() -> None:
    """What a handler enqueues; the ledger knows nothing of it."""


@app.task(runs_in="thread")
def thread(ctx: Context, ms: int = 0) -> None:
    """Sleep in a thread; stops when asked."""
    note(ctx, "start")
    over = time.monotonic() + ms / 1000
    while time.monotonic() < over and not ctx.should_stop:
        time.sleep(0.01)
    note(ctx, "end")


@app.task(runs_in="thread")
def deaf_thread(ctx: Context, ms: int = 0) -> None:
    """Sleep in a thread, whatever it is asked."""
    note(ctx, "start")
    time.sleep(ms / 1000)
    note(ctx, "end")


@app.task
async def block(ctx: Context, ms: int = 0) -> None:
    """Keep the event loop from turning."""
    note(ctx, "start")
    time.sleep(ms / 1000)  # noqa: ASYNC251
    note(ctx, "end")


@app.task
async def flaky(ctx: Context) -> int:
    """Fail once, then succeed."""
    note(ctx, "start")
    note(ctx, "end")
    if ctx.attempt == 1:
        raise Retry(after=0)
    return ctx.attempt


@app.task
async def kill_worker(ctx: Context) -> None:
    """Take down whatever process this runs in."""
    note(ctx, "start")
    note(ctx, "stop")
    os.kill(os.getpid(), signal.SIGKILL)


@app.task
async def insist(ctx: Context, ms: int = 0) -> str:
    """Swallow every cancel, until the time is over or the file `let-go` is in the worker's folder."""
    note(ctx, "start")
    over = time.monotonic() + ms / 1000
    while time.monotonic() < over and not os.path.exists("let-go"):  # noqa: ASYNC240
        try:
            await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            note(ctx, "swallowed")
    note(ctx, "end")
    return "insisted"


@app.task
async def zombie(ctx: Context, ms: int = 0) -> str:
    """After its sleep, however that ends, try everything that an attempt without a lease must not do."""
    note(ctx, "start")
    try:
        await asyncio.sleep(ms / 1000)
    except asyncio.CancelledError:
        note(ctx, "stopped")
    try:
        ctx.progress(99, "late", f"attempt {ctx.attempt}")
        await asyncio.sleep(0.3)
    except (LeaseLost, asyncio.CancelledError):
        note(ctx, "progress-refused")
    try:
        await ctx.enqueue("child")
        note(ctx, "child-accepted")
    except LeaseLost:
        note(ctx, "child-refused")
    except asyncio.CancelledError:
        note(ctx, "child-stopped")
    note(ctx, "end")
    return "zombie"


@app.task
async def effect(ctx: Context, ms: int = 0) -> None:
    """Write a row that commits with the success."""
    note(ctx, "start")
    async with ctx.transaction() as tx:
        await tx.execute("INSERT INTO effects (job, attempt) VALUES ($1, $2)", ctx.job_id, ctx.attempt)
        await asyncio.sleep(ms / 1000)
    note(ctx, "end")
