"""The app: its tasks, which a worker runs. Clients use `shop`."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from rowlock import Context, Finished, Migrations, Permanent, Rowlock, Snooze, State
from rowlock_apps.stickers import drawing, ledger

FOLDER = Path(__file__).parent
QUEUE = "stickers"
MONEY_FIRST = -10  # a refund starts before all waiting drawings
LONGEST_SECONDS = 15 * 60  # a sticker takes about 50 s: a drawing that takes this long hangs

app = Rowlock(config=FOLDER / "config.yaml", migrations=Migrations("stickers", FOLDER / "migrations"))


def results() -> Path:
    """Where stickers go; replicas on several machines need a folder that they share."""
    return Path(os.environ.get("STICKERS_RESULTS", "stickers")).absolute()


@app.task("stickers.refund", queue=QUEUE, priority=MONEY_FIRST, max_attempts=20, counted=False)
async def refund(ctx: Context, finished: Finished) -> bool:
    """Refund a dead job. This task is enqueued in the transaction in which the job dies, by its own worker or by
    another worker's sweeper. It could be enqueued by hand, so it checks first that the job is dead."""
    async with ctx.transaction() as tx:
        return await ledger.refund_ended(tx, finished["job_id"])


@app.task("stickers.draw", queue=QUEUE, runs_in="process", max_attempts=1, timeout=LONGEST_SECONDS, on_dead=refund)
async def draw(ctx: Context, prompt: str, wait_seconds: float = 0.0) -> dict[str, str]:
    """Draw a sticker and return its path. Runs in a child process, so that it may use a whole core and can be killed.
    `wait_seconds` is the time that a slow model would take."""
    await _pay(ctx)
    ctx.progress(10, phase="thinking")
    await asyncio.sleep(wait_seconds)
    ctx.progress(40, phase="drawing")
    try:
        picture = drawing.draw(prompt)
    except drawing.DoesNotFit as error:
        raise Permanent(str(error), code="DOES_NOT_FIT") from error
    ctx.progress(90, phase="saving")
    # The file is named by the job, and a prompt always gives one picture: a second attempt writes the identical file.
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
    """Refund a job that is being cancelled, once it has stopped."""
    job = await app.job(job_id)
    if job.state is State.RUNNING and job.cancel_requested_at is not None:
        raise Snooze(1, "it is being stopped")
    async with ctx.transaction() as tx:
        return await ledger.refund_ended(tx, job_id)


@app.schedule("*/5 * * * *", overlap="skip")
@app.task("stickers.reconcile", queue=QUEUE, priority=MONEY_FIRST, counted=False)
async def reconcile(ctx: Context) -> int:
    """Refund jobs that an operator cancelled, which nothing else refunds. Returns how many."""
    async with ctx.transaction() as tx:
        refunded = [await ledger.refund(tx, job_id, attempt) for job_id, attempt in await ledger.owed(tx)]
        for user, credits, total in await ledger.unbalanced(tx):
            ctx.log.error("user %s has %d credits, and a ledger of %d", user, credits, total)
    return sum(refunded)
