"""Short words for the tests of the public contract, tasks that a child process can import, and a second enqueuer.

Run as a program (`python -m support.tasks.contract URL`) it enqueues what it reads, one line of JSON each.
"""

import asyncio
import inspect
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from rowlock import Context, Rowlock, WorkerPool
from rowlock.core.config import Settings, WorkerSettings
from rowlock.store import queues
from rowlock.store.jobs import leases
from rowlock.testing import Testing
from rowlock.testing import testing as rowlock_testing
from support.rigs.rig import COLUMNS, plain, prefix

TESTS = Path(__file__).resolve().parents[2]
WAIT = 10.0  # seconds: far more than anything here takes, so that a busy machine fails nothing


# Looking at the database


async def fetch(app: Rowlock, sql: str, *args: Any) -> list[tuple[Any, ...]]:
    """Rows of a query; `{t}` is the prefix of the tables."""
    store = await app.store()
    async with store.transaction() as tx:
        return [tuple(row) for row in await tx.fetch(sql.replace("{t}", prefix(store)), *args)]


async def execute(app: Rowlock, sql: str, *args: Any) -> None:
    """Run a statement; `{t}` is the prefix of the tables."""
    store = await app.store()
    async with store.transaction() as tx:
        await tx.execute(sql.replace("{t}", prefix(store)), *args)


async def row_of(app: Rowlock, job_id: str) -> dict[str, Any]:
    """A job as the view shows it, in the same types on both engines."""
    ((*values,),) = await fetch(app, f"SELECT {', '.join(COLUMNS)} FROM {{t}}jobs WHERE id = $1", job_id)
    return dict(zip(COLUMNS, map(plain, COLUMNS, values), strict=True))


async def until_renewed(app: Rowlock, job_id: str) -> None:
    """Wait until the lease of a running job is renewed: what its worker was told before, it has heard by then."""
    held = await row_of(app, job_id)

    async def renewed() -> bool:
        row = await row_of(app, job_id)
        assert (row["state"], row["lease_token"]) == ("running", held["lease_token"])
        return bool(row["lease_expires_at"] > held["lease_expires_at"])

    await until(renewed)


async def rows_of(app: Rowlock, *, task: str | None = None) -> list[dict[str, Any]]:
    """Every job, or those of one task, oldest first."""
    found = await fetch(app, f"SELECT {', '.join(COLUMNS)} FROM {{t}}jobs ORDER BY id")
    rows = [dict(zip(COLUMNS, map(plain, COLUMNS, values), strict=True)) for values in found]
    return [row for row in rows if task in (None, row["task"])]


async def count_jobs(app: Rowlock, task: str | None = None) -> int:
    return len(await rows_of(app, task=task))


async def attempts_of(app: Rowlock, job_id: str) -> list[tuple[int, str, str | None]]:
    """(attempt, outcome, error code) of each attempt that did not succeed."""
    found = await fetch(
        app, "SELECT attempt, outcome, error_code FROM {t}attempts WHERE job_id = $1 ORDER BY attempt", job_id
    )
    return [(row[0], row[1], row[2]) for row in found]


async def lose_lease(app: Rowlock, job_id: str) -> None:
    """Let the job's lease be over and sweep, as a stranger's worker would after a long silence."""
    await execute(app, "UPDATE {t}jobs_live SET lease_expires_at = created_at WHERE id = $1", job_id)
    reclaimed = await (await app.store()).run(leases.reclaim([0.0], 0.0, app.keep))
    assert [lost.job.id for lost in reclaimed] == [job_id]


# Working and waiting


def working(app: Rowlock, **settings: Any) -> AbstractAsyncContextManager[WorkerPool]:
    """A worker for the time of the block. Its stop is short: no test leaves anything running on purpose."""
    return app.worker(**{"shutdown_timeout_seconds": 5} | settings)


def frozen(app: Rowlock, url: str) -> AbstractAsyncContextManager[Testing]:
    """`rowlock.testing` on this test's database: time stands still until it is moved."""
    return rowlock_testing(app, database=url)


def settings_for(url: str, **worker: Any) -> Settings:
    return Settings(database=url, worker=WorkerSettings(**worker))


async def until(condition: Callable[[], bool | Awaitable[bool]], timeout: float = WAIT) -> None:
    """Wait for a condition, with a deadline."""
    deadline = time.monotonic() + timeout
    while True:
        answer = condition()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return
        assert time.monotonic() < deadline, f"not within {timeout:g} s"
        await asyncio.sleep(0.005)


async def pause(app: Rowlock, queue: str) -> None:
    await (await app.store()).run(queues.pause(queue))


async def resume(app: Rowlock, queue: str) -> None:
    await (await app.store()).run(queues.resume(queue))


async def in_state(app: Rowlock, job_id: str, *states: str) -> str:
    """Wait until the job is in one of the states; answers which."""

    async def reached() -> bool:
        return (await app.job(job_id)).state in states

    await until(reached)
    return str((await app.job(job_id)).state)


# Tasks that a child process can import

app = Rowlock("sqlite:///unused.db")


@app.task(runs_in="process")
def double_in_process(n: int) -> list[int]:
    return [2 * n, os.getpid()]


@app.task(runs_in="process", timeout=0.3, max_attempts=1)
def endless_in_process() -> None:
    while True:
        time.sleep(0.01)


@app.task(runs_in="process", max_attempts=1)
def fail_in_process() -> None:
    raise ValueError("from the child")


@app.task(runs_in="process")
async def report_from_process(ctx: Context, until: str) -> int:
    """Report, and go on when there is a file of that name."""
    await ctx.progress(30, phase="child", message="hello")
    for _ in range(3000):
        if os.path.exists(until):  # noqa: ASYNC240
            break
        await asyncio.sleep(0.01)
    return ctx.attempt


@asynccontextmanager
async def importable_app(url: str) -> AsyncIterator[Rowlock]:
    """The app above, on the database of one test."""
    app.configure(settings_for(url))
    async with app:
        yield app


# Another process that enqueues


class Enqueuer:
    """A process of its own with an app of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def __call__(self, task: str, **arguments: Any) -> tuple[str, float]:
        """Enqueue there; answers the job's id and the time just before it."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([task, arguments]).encode() + b"\n")
        await self._process.stdin.drain()
        job_id, sent = await self._answer()
        return str(job_id), float(sent)

    async def _answer(self) -> Any:
        assert self._process.stdout is not None
        async with asyncio.timeout(30):
            line = await self._process.stdout.readline()
        assert line, "the other process is gone"
        return json.loads(line)


@asynccontextmanager
async def other_process(url: str) -> AsyncIterator[Enqueuer]:
    """Start the program below and wait until its database is open."""
    command = [sys.executable, "-m", "support.tasks.contract", url]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, cwd=TESTS)
    enqueuer = Enqueuer(process)
    try:
        assert await enqueuer._answer() == "ready"
        yield enqueuer
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(10):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def serve(url: str) -> None:
    async with Rowlock(url) as mine:

        @mine.task
        async def wake(n: int) -> None: ...

        print(json.dumps("ready"), flush=True)
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            task, arguments = json.loads(line)
            sent = time.time()
            job = await mine.enqueue(task, **arguments)
            print(json.dumps([job.id, sent]), flush=True)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
