"""The app: its tasks, which a worker runs. Clients use `shop`."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from rowlock import Context, Finished, Migrations, Permanent, Rowlock, Snooze, State
from rowlock_apps.stickers import drawing, ledger

FOLDER = Path(__file__).parent
QUEUE = "stickers"
MONEY_FIRST = -10  # a refund waits for the drawing that a replica has begun, and not for those that wait
LONGEST_SECONDS = 15 * 60  # a sticker takes about 50 s: what takes this long hangs

app = Rowlock(config=FOLDER / "config.yaml", migrations=Migrations("stickers", FOLDER / "migrations"))


def results() -> Path:
    """Where stickers go; replicas on several machines need a folder that they share."""
    return Path(os.environ.get("STICKERS_RESULTS", "stickers")).absolute()


@app.task("stickers.refund", queue=QUEUE, priority=MONEY_FIRST, max_attempts=20, counted=False)
async def refund(ctx: Context, finished: Finished) -> bool:
    """Give back what a dead job was paid. Enqueued together with the death, whoever found it: the job's own worker, or
    another one's sweeper. Anybody can enqueue this task, so the job itself says whether it is dead."""
    async with ctx.transaction() as tx:
        return await ledger.refund_ended(tx, finished["job_id"])


@app.task("stickers.draw", queue=QUEUE, runs_in="process", max_attempts=1, timeout=LONGEST_SECONDS, on_dead=refund)
async def draw(ctx: Context, prompt: str, wait_seconds: float = 0.0) -> dict[str, str]:
    """Draw a sticker and answer where it is. Runs in a process of its own, so that it may use a whole core, and be
    killed. `wait_seconds` stands for the time of a slow model."""
    await _pay(ctx)
    ctx.progress(10, phase="thinking")
    await asyncio.sleep(wait_seconds)
    ctx.progress(40, phase="drawing")
    try:
        picture = drawing.draw(prompt)
    except drawing.DoesNotFit as error:
        raise Permanent(str(error), code="DOES_NOT_FIT") from error
    ctx.progress(90, phase="saving")
    # Named by the job, and the same for the same prompt: an attempt that runs again writes the same file again.
    return drawing.save(picture, results() / f"{ctx.job_id}.png")


async def _pay(ctx: Context) -> None:
    try:
        async with app.transaction() as tx:
            await ledger.begin(tx, ctx.job_id, ctx.attempt)
    except ledger.NoCredit as error:
        raise Permanent(str(error), code="NO_CREDIT") from error
    except ledger.NoOrder as error:
        raise Permanent(str(error), code="NO_ORDER") from error


@app.task("stickers.give_back", queue=QUEUE, priority=MONEY_FIRST, max_attempts=20, counted=False)
async def give_back(ctx: Context, job_id: str) -> bool:
    """Refund a job whose cancel was asked for, once it has stopped."""
    job = await app.job(job_id)
    if job.state is State.RUNNING and job.cancel_requested_at is not None:
        raise Snooze(1, "it is being stopped")
    async with ctx.transaction() as tx:
        return await ledger.refund_ended(tx, job_id)


@app.schedule("*/5 * * * *", overlap="skip")
@app.task("stickers.reconcile", queue=QUEUE, priority=MONEY_FIRST, counted=False)
async def reconcile(ctx: Context) -> int:
    """Refund what ended undrawn without a refund: jobs that an operator cancelled. Answers how many."""
    async with ctx.transaction() as tx:
        refunded = [await ledger.refund(tx, job_id, attempt) for job_id, attempt in await ledger.owed(tx)]
        for user, credits, total in await ledger.unbalanced(tx):
            ctx.log.error("user %s has %d credits, and a ledger of %d", user, credits, total)
    return sum(refunded)
