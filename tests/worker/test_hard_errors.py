"""Exceptions that are hard to store or to carry: every one of them ends its attempt, and the worker goes on."""

import asyncio
import sys

import pytest

from rowlock import (
    JobDead,
    Permanent,
    Rowlock,
)
from support.each import each
from support.tasks.contract import (
    attempts_of,
    row_of,
    working,
)


class BrokenText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text either")

    __repr__ = __str__


class Endless(BaseException):
    """Not an Exception."""


HARD = {
    "nul": lambda: ValueError("nul \x00 inside"),
    "surrogate": lambda: ValueError("lone \ud800 surrogate"),
    "huge": lambda: ValueError("x" * 50_000_000),
    "broken str": BrokenText,
    "system exit": lambda: SystemExit(3),
    "keyboard interrupt": KeyboardInterrupt,
    "base exception": lambda: Endless("not an Exception"),
    "generator exit": GeneratorExit,
    "self-cancelled": lambda: asyncio.CancelledError("by itself"),
    "group": lambda: ExceptionGroup("two", [ValueError("a"), KeyError("b")]),
    "empty": lambda: ValueError(),
    "lazy code": lambda: Permanent("why", code="X" * 100_000 + "\x00"),
}


@each("place", ["async", "thread"])
async def test_every_failure_reaches_an_outcome_soon(app: Rowlock, place: str) -> None:
    """F15: a failure that cannot be stored must not leave a job running; the worker goes on."""

    def body(kind: str) -> None:
        raise HARD[kind]()

    async def async_body(kind: str) -> None:
        body(kind)

    fail = app.task(f"fail {place}", max_attempts=1)(body if place == "thread" else async_body)

    @app.task(f"fine {place}")
    async def fine() -> str:
        return "fine"

    async with working(app, pool_size=2):
        for kind in HARD:
            job = await fail.enqueue(kind=kind)
            with pytest.raises(JobDead):
                await job.wait(timeout=20)  # the end of a lease would take 60
            row = await row_of(app, job.id)
            assert (row["state"], row["attempt"], row["lease_token"]) == ("dead", 1, None), kind
            stored = row["error_message"]
            assert 0 < len(stored.encode()) <= 8 * 1024, kind
            assert "\x00" not in stored + row["error_code"], kind
            assert 0 < len(row["error_code"]) <= 256, kind
            if kind == "huge":
                assert "x" * 1000 in stored
            (attempt,) = await attempts_of(app, job.id)
            assert attempt[:2] == (1, "failed"), kind
        assert await (await fine.enqueue()).wait(timeout=10) == "fine"


STOP_ITERATION = """
import asyncio, sys
from rowlock import JobDead, Rowlock

async def main():
    async with Rowlock(sys.argv[1]) as app:
        @app.task(max_attempts=1)
        def in_thread():
            next(iter([]))

        @app.task(max_attempts=1)
        async def in_loop():
            next(iter([]))

        async with app.worker(shutdown_timeout_seconds=1):
            for task in (in_loop, in_thread):
                try:
                    await (await task.enqueue()).wait(timeout=20)
                except JobDead as dead:
                    print(dead.code)

asyncio.run(main())
"""


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_stop_iteration_is_a_failure_like_any_other(app_url: str) -> None:
    """No future can carry one, so that an attempt could wait for its own end for ever. Hence a process of its own."""
    command = [sys.executable, "-c", STOP_ITERATION, app_url]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(15):
            told, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        pytest.fail("the worker hangs")
    assert len(told.decode().split()) == 2, told
