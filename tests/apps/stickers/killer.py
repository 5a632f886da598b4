"""Dies at every step of an order's way, one process for each: `python -m apps.stickers.killer`.

Each process is a fork of this one, orders a sticker, works as a worker does, and kills itself (SIGKILL) at its step.
Printed: a JSON object of step -> the order's job, null where the order did not come about.
"""

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from rowlock import Context, WorkerPool
from rowlock_apps.stickers import drawing, ledger, shop
from rowlock_apps.stickers.app import app, draw

assert WorkerPool  # imported once, before the forks

GOOD, BAD = "a cat", "x" * 90
STEPS = {
    # step: prompt
    "charging": GOOD,  # in the open transaction of the order
    "submitted": GOOD,  # committed, and nobody told
    "claimed": GOOD,
    "paying": GOOD,  # in the open transaction in which an attempt makes sure that it is paid
    "saved": GOOD,  # the picture is there, the job does not know
    "settled": GOOD,
    "failed": BAD,  # and not written down
    "dead": BAD,  # written down, together with a refund that nobody has begun
    "refund claimed": BAD,
    "refunding": BAD,  # in the open transaction of the refund
    "refunded": BAD,
}


class Killer(logging.Handler):
    """Kills this process when its order has reached a step."""

    def __init__(self, step: str, pipe: int) -> None:
        super().__init__()
        self._step, self._pipe = step, pipe
        self._orders = ""
        self._tasks: dict[str, str] = {}

    def at(self, step: str, job_id: str | None = None) -> None:
        """This step was reached, by that job; any will do if none is named."""
        if step == self._step and job_id in (None, self._orders):
            os.kill(os.getpid(), signal.SIGKILL)

    def ordered(self, job_id: str) -> None:
        """The order has come about."""
        self._orders = job_id
        os.write(self._pipe, job_id.encode())
        self.at("submitted")

    def emit(self, record: logging.LogRecord) -> None:
        """The worker's own log says what is committed."""
        text, job_id = record.getMessage(), str(record.args[0]) if isinstance(record.args, tuple) else ""
        if "claimed by" in text:
            self._tasks[job_id] = record.__dict__["task"]
            self.at("claimed", job_id)
            if self._tasks[job_id] == "stickers.refund":
                self.at("refund claimed")
        elif "completed in" in text:
            self.at("settled", job_id)
            if self._tasks[job_id] == "stickers.refund":
                self.at("refunded")
        elif "now dead" in text:
            self.at("dead", job_id)


def install(killer: Killer) -> None:
    """Put the steps into the app's own functions; the drawing happens here, so that this process dies in its midst."""
    draw.runs_in = "async"
    logging.getLogger("rowlock.worker").addHandler(killer)
    logging.getLogger("rowlock.worker").setLevel(logging.INFO)
    ledger.charge = followed_by(ledger.charge, lambda *_: killer.at("charging"))
    ledger.begin = followed_by(ledger.begin, lambda tx, job_id, attempt: killer.at("paying", job_id))
    ledger.refund = followed_by(ledger.refund, lambda tx, job_id, attempt: killer.at("refunding", job_id))
    save = drawing.save

    def saved(*args: Any) -> dict[str, str]:
        answer = save(*args)
        killer.at("saved")
        return answer

    drawing.save = saved

    @app.on_error
    def failed(ctx: Context, error: BaseException) -> None:
        killer.at("failed", ctx.job_id)


def followed_by(function: Callable[..., Coroutine[Any, Any, Any]], step: Callable[..., None]) -> Any:
    async def wrapped(*args: Any) -> Any:
        answer = await function(*args)
        step(*args)
        return answer

    return wrapped


async def live(step: str, killer: Killer) -> None:
    """Order, then work until the step is reached."""
    async with app:
        await shop.open_account(step, 3)
        install(killer)
        killer.ordered((await shop.submit(step, STEPS[step])).id)
        async with app.worker(sweep_seconds=60), asyncio.timeout(60):
            await asyncio.Event().wait()


def die(step: str) -> str | None:
    """The order of a process that died at this step, if it came about."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            asyncio.run(live(step, Killer(step, writing)))
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        job_id = pipe.read()
    _, status = os.waitpid(child, 0)
    if not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL):
        sys.exit(f"the process that should die at {step!r} ended with {status}")
    return job_id or None


if __name__ == "__main__":
    print(json.dumps({step: die(step) for step in STEPS}))
