"""Short words for what the tests of this app do over and over."""

import asyncio
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from rowlock import JobHandle, Rowlock
from rowlock.store.jobs import claim, leases, settle
from rowlock_apps.stickers import app, ledger, shop

TESTS = Path(__file__).resolve().parents[2]
QUICK = {"heartbeat_seconds": 1.0, "lease_seconds": 5.0, "sweep_seconds": 0.2, "poll_interval_seconds": 0.2}
CALM = QUICK | {"heartbeat_seconds": 15.0, "lease_seconds": 60.0}  # no lease runs out, however slow the machine
LIMIT = 60.0


@contextmanager
def point_at(url: str) -> Iterator[None]:
    """The app uses this database for the time of a block."""
    before = app.settings
    app.configure(before.model_copy(update={"database": url}))
    try:
        yield
    finally:
        app.configure(before)


class Shop:
    """The app's own functions, and what its tables say."""

    def __init__(self, url: str, results: Path) -> None:
        self.url, self.results = url, results
        self.submit, self.cancel, self.open, self.credits = shop.submit, shop.cancel, shop.open_account, shop.credits_of

    async def fetch(self, sql: str, *args: Any) -> list[tuple[Any, ...]]:
        async with app.transaction() as tx:
            return [tuple(row) for row in await tx.fetch(sql, *args)]

    async def moves(self, job_id: str) -> list[tuple[str, int, int]]:
        """(kind, round, amount) of every move of a job's credit, in order."""
        return await self.fetch("SELECT kind, round, amount FROM stickers_ledger WHERE job_id = $1 ORDER BY id", job_id)

    async def kinds(self, job_id: str) -> list[str]:
        return [kind for kind, _, _ in await self.moves(job_id)]

    def picture(self, job_id: str) -> bytes:
        """The file of a sticker."""
        return (self.results / f"{job_id}.png").read_bytes()

    def table(self, name: str) -> str:
        """A table of the engine, for what only a test may do."""
        return f"rowlock_{name}" if self.url.startswith("sqlite") else f"rowlock.{name}"

    async def refund_in(self, queue: str, job_id: str) -> None:
        """Should this job die, its refund waits in another queue."""
        moved = f"""replace(CAST(on_dead AS text), '"queue": "stickers"', '"queue": "{queue}"')"""
        if not self.url.startswith("sqlite"):
            moved = f"CAST({moved} AS json)"
        await self.fetch(f"UPDATE {self.table('jobs_live')} SET on_dead = {moved} WHERE id = $1", job_id)

    async def claim(self, worker: str, lease: float, app: Rowlock = app) -> list[str]:
        """A worker that takes a drawing and is never heard of again; answers the ids of what it took."""
        lanes = [claim.Range("stickers", "stickers.draw")]
        await (await app.store()).run(claim.promote(100))
        return [
            job.id for job in await (await app.store()).run(claim.claim(worker, str(uuid.uuid4()), lanes, 1, lease))
        ]

    async def end_leases(self) -> None:
        """Let the leases of workers that are dead run out now."""
        ago = "lease_expires_at - 86400" if self.url.startswith("sqlite") else "lease_expires_at - interval '1 day'"
        await self.fetch(f"UPDATE {self.table('jobs_live')} SET lease_expires_at = {ago} WHERE state = 'running'")
        await self.sweep()

    async def sweep(self) -> list[str]:
        """What every worker does from time to time; answers the ids of what was taken back."""
        ended = await (await app.store()).run(leases.reclaim([0.0] * 10, 0.0, settle.Keep()))
        return [job.id for job, _ in ended]

    @asynccontextmanager
    async def worker(self, **changes: Any) -> AsyncIterator[Any]:
        """A worker in this process; it draws in a child."""
        async with app.worker(**QUICK | {"shutdown_timeout_seconds": 5} | changes) as pool:
            yield pool

    async def run_all(self, **changes: Any) -> None:
        """Let a worker do everything there is."""
        async with self.worker(**changes):
            await self.until_quiet()

    async def until_quiet(self) -> None:
        """Wait until no job of this app is left to run."""

        async def quiet() -> bool:
            return not await app.jobs(state=["queued", "running", "retryable"], queue="stickers")

        await until(quiet)

    async def check_the_books(self) -> None:
        """Credits are the sum of the ledger, and an order is paid exactly if it was drawn or may yet be."""
        async with app.transaction() as tx:
            assert await ledger.unbalanced(tx) == []
        rows = await self.fetch(
            """
            SELECT jobs.state, orders.charges - orders.refunds, count(*)
            FROM stickers_orders AS orders LEFT JOIN stickers_jobs AS jobs ON jobs.id = orders.job_id
            GROUP BY jobs.state, orders.charges - orders.refunds
            """
        )
        wrong = [row for row in rows if (row[0] in ("dead", "cancelled")) == bool(row[1])]
        assert wrong == [], f"paid or not, in the wrong state: {wrong}"
        moved = Counter(
            {
                (job, kind): count
                for job, kind, count in await self.fetch(
                    "SELECT job_id, kind, count(*) FROM stickers_ledger WHERE kind <> 'grant' GROUP BY job_id, kind"
                )
            }
        )
        for job, charges, refunds in await self.fetch("SELECT job_id, charges, refunds FROM stickers_orders"):
            assert (moved[job, "charge"], moved[job, "refund"]) == (charges, refunds)


async def until(holds: Callable[[], Any], within: float = LIMIT, story: Callable[[], str] = str) -> None:
    """Wait until a condition holds, a bounded time."""
    deadline = time.monotonic() + within
    while not await holds():
        assert time.monotonic() < deadline, f"waited {within:g} s in vain: {story()}"
        await asyncio.sleep(0.03)


async def ended(job: JobHandle[Any], within: float = LIMIT) -> JobHandle[Any]:
    """The job once nothing more happens to it."""

    async def final() -> bool:
        return bool((await job.refresh()).record.final)

    await until(final, within, lambda: repr(job))
    return job


def environment(url: str, results: Path, worker: Mapping[str, float] = QUICK) -> dict[str, str]:
    """For a process of this app, with these settings of its worker."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ROWLOCK_", "COV_"))}
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    settings = {f"ROWLOCK_WORKER__{name.upper()}": str(value) for name, value in worker.items()}
    ours = {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "ROWLOCK_DATABASE_URL": url, "STICKERS_RESULTS": str(results)}
    return kept | settings | ours


class Process:
    """A process of this app, its output in a file; it is killed at the end of its block."""

    def __init__(self, log: Path, env: dict[str, str], *command: str) -> None:
        self._log = log
        with log.open("wb") as output:
            self.popen = subprocess.Popen(
                [sys.executable, *command],
                env=env,
                cwd=log.parent,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait(LIMIT)

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    async def says(self, text: str, within: float = LIMIT) -> None:
        async def said() -> bool:
            assert self.popen.poll() is None or text in self.log, self.log
            return text in self.log

        await until(said, within, lambda: self.log)

    async def ends(self, within: float = LIMIT) -> int:
        async def over() -> bool:
            return self.popen.poll() is not None

        await until(over, within, lambda: self.log)
        return int(self.popen.returncode)

    async def stop(self) -> int:
        self.popen.send_signal(signal.SIGTERM)
        return await self.ends()
