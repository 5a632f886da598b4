"""The tasks of `rowlock demo`, one for each way in which a job can end. Child processes import this module."""

from __future__ import annotations

import asyncio
import random

from rowlock import Context, Permanent, Rowlock, fixed

QUEUE = "demo"

app = Rowlock()  # the command gives it a database


@app.task("demo.resize", queue=QUEUE)
async def resize(number: int) -> dict[str, int]:
    """Quick, and succeeds."""
    await asyncio.sleep(random.uniform(0.1, 0.4))
    return {"photo": number, "width": 640}


@app.task("demo.import", queue=QUEUE)
async def import_file(ctx: Context, name: str, steps: int = 20) -> dict[str, int]:
    """Slower, and reports its progress."""
    for step in range(steps):
        await ctx.progress(100 * step // steps, phase="reading", message=f"{name}, part {step + 1} of {steps}")
        await asyncio.sleep(random.uniform(0.1, 0.25))
    return {"parts": steps}


@app.task("demo.charge", queue=QUEUE, backoff=fixed(seconds=0.6))
async def charge(ctx: Context, amount: int) -> str:
    """Fails twice, is tried again, succeeds."""
    await asyncio.sleep(0.2)
    if ctx.attempt < 3:
        raise ConnectionError("the bank hung up")
    return f"charged {amount}"


@app.task("demo.fetch", queue=QUEUE)
async def fetch(url: str) -> None:
    """Fails for good (`Permanent`): dead without another try."""
    await asyncio.sleep(0.2)
    raise Permanent(f"{url} is gone", code="HTTP_410")


@app.task("demo.report", queue=QUEUE, timeout=1, max_attempts=1)
async def report() -> None:
    """Takes longer than its timeout."""
    await asyncio.sleep(600)


@app.task("demo.primes", queue=QUEUE, runs_in="process", timeout=30)
def primes(below: int) -> int:
    """CPU-bound, so it runs in its own process."""
    sieve = bytearray([1]) * below
    sieve[:2] = b"\0\0"
    for number in range(2, int(below**0.5) + 1):
        if sieve[number]:
            sieve[number * number :: number] = bytes(len(range(number * number, below, number)))
    return sum(sieve)


@app.task("demo.mirror", queue=QUEUE)
async def mirror(ctx: Context) -> None:
    """Never ends by itself; the demo cancels it."""
    step = 0
    while True:
        step += 1
        await ctx.progress(min(step, 99), phase="copying")
        await asyncio.sleep(0.1)
