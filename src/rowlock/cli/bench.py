"""`rowlock bench`: how fast is Rowlock here, and how near to what the database can do alone?"""

from __future__ import annotations

import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rowlock.cli.loop import run_async
from rowlock.cli.options import ConfigOption, DatabaseOption, JsonOption
from rowlock.cli.output import show_json, show_table
from rowlock.cli.target import Target
from rowlock.core.errors import ConfigError

if TYPE_CHECKING:
    from rowlock.cli.bench_raw import Raw

MEASURES = {"single": "enqueue, one at a time", "bulk": "enqueue, in bulk", "drain": "claim, run, settle"}
PINGS = 100


def bench(
    config: ConfigOption = None,
    database: DatabaseOption = None,
    jobs: Annotated[int, typer.Option(min=100, max=1_000_000, help="No-op jobs in each round.")] = 20_000,
    rounds: Annotated[int, typer.Option(min=1, max=100, help="Rounds; the median decides.")] = 5,
    as_json: JsonOption = False,
) -> None:
    """Measure this machine and database: Rowlock beside the bare SQL that a queue needs. Your jobs are not touched."""
    url = Target(None, config, database).open().database
    found = run_async(_measure(url, jobs, rounds))
    if as_json:
        show_json(found)
        return
    show_table([_row(name, found[name]) for name in MEASURES], ["jobs/s", "rowlock", "bare SQL", "ratio", "from – to"])
    pickup = found["pickup_ms"]
    print(
        f"\nFrom enqueue to the handler's first line, idle: {pickup['p50']:.1f} ms (p50), {pickup['p99']:.1f} ms (p99)"
    )


def _row(name: str, found: dict[str, Any]) -> list[str]:
    low, high = min(found["ratios"]), max(found["ratios"])
    rates = (f"{found[who]:,.0f}" for who in ("rowlock", "raw"))
    return [MEASURES[name], *rates, f"{found['ratio']:.2f}", f"{low:.2f} – {high:.2f}"]


async def _measure(url: str, jobs: int, rounds: int) -> dict[str, Any]:
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in MEASURES}
    pickups: list[float] = []
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
        async with _scratch(url) as (scratch, raw):
            rowlock = await _Rowlock.open(scratch)
            try:
                for name in MEASURES:
                    count = jobs if name != "single" else max(50, jobs // 40)
                    pair = [(await getattr(it, name)(count)) for it in (rowlock, raw)]
                    samples[name].append((count / pair[0], count / pair[1]))
                pickups += await rowlock.pickup(PINGS)
            finally:
                await rowlock.close()
    pickups.sort()
    found: dict[str, Any] = {name: _summary(pairs) for name, pairs in samples.items()}
    p99 = pickups[int(len(pickups) * 0.99)]
    return found | {"pickup_ms": {"p50": statistics.median(pickups) * 1000, "p99": p99 * 1000}, "rounds": rounds}


def _summary(pairs: list[tuple[float, float]]) -> dict[str, Any]:
    ours, bare = zip(*pairs, strict=True)
    ratios = [one / other for one, other in pairs]
    return {
        "rowlock": statistics.median(ours),
        "raw": statistics.median(bare),
        "ratio": statistics.median(ratios),
        "ratios": ratios,
    }


class _Rowlock:
    """The same measures through the public API."""

    def __init__(self, url: str) -> None:
        from rowlock.work.app import Rowlock

        self.app, self.done, self.seen = Rowlock(url), 0, list[float]()

        @self.app.task("bench")
        async def noop(n: float = 0) -> None:
            self.done += 1
            if n:
                self.seen.append(time.perf_counter() - n)

        self.task = noop

    @classmethod
    async def open(cls, url: str) -> _Rowlock:
        """Make the tables."""
        it = cls(url)
        await it.app.migrate()
        await it.app.open()
        return it

    async def close(self) -> None:
        """Disconnect."""
        await self.app.close()

    async def single(self, jobs: int) -> float:
        """Seconds for so many enqueues, one after the other."""
        began = time.perf_counter()
        for _ in range(jobs):
            await self.task.enqueue()
        return time.perf_counter() - began

    async def bulk(self, jobs: int) -> float:
        """Seconds for one enqueue of so many."""
        began = time.perf_counter()
        await self.task.enqueue_many([{"n": 0}] * jobs)
        return time.perf_counter() - began

    async def drain(self, jobs: int) -> float:
        """Seconds to run and settle what is queued, per `jobs`."""
        queued = jobs + max(50, jobs // 40)  # what `single` left is run, too
        self.done = 0
        async with self.app.worker(pool_size=100) as pool:
            began = time.perf_counter()
            await _until(lambda: self.done >= queued and pool.idle, f"{queued} jobs")
            return (time.perf_counter() - began) * jobs / queued

    async def pickup(self, jobs: int) -> list[float]:
        """Seconds from enqueue to the handler, one job at a time."""
        self.seen = []
        async with self.app.worker() as pool:
            await _until(lambda: pool.idle, "an idle worker")
            for number in range(jobs):
                await self.task.enqueue(n=time.perf_counter())
                await _until(lambda wanted=number: len(self.seen) > wanted, "a job to be picked up")
        return self.seen


async def _until(reached: Any, what: str, seconds: float = 600) -> None:
    import asyncio

    deadline = time.monotonic() + seconds
    while not reached():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited for {what} for {seconds:.0f} s")
        await asyncio.sleep(0.002)


@asynccontextmanager
async def _scratch(url: str) -> AsyncIterator[tuple[str, Raw]]:
    """A database of its own on the same disk or server, gone afterwards."""
    make = _scratch_file if url.startswith("sqlite:") else _scratch_database
    async with make(url) as (scratch, raw):
        try:
            yield scratch, raw
        finally:
            await raw.close()


@asynccontextmanager
async def _scratch_file(url: str) -> AsyncIterator[tuple[str, Raw]]:
    from rowlock.cli.bench_raw import RawSqlite
    from rowlock.store.engine import file_of

    folder = file_of(url).parent
    if not folder.is_dir():
        raise ConfigError(f"{url!r}: the folder {folder} does not exist")
    with tempfile.TemporaryDirectory(prefix="rowlock-bench-", dir=folder) as name:
        yield f"sqlite:///{Path(name) / 'jobs.db'}", RawSqlite(str(Path(name) / "raw.db"))


@asynccontextmanager
async def _scratch_database(url: str) -> AsyncIterator[tuple[str, Raw]]:
    from urllib.parse import urlsplit, urlunsplit

    import asyncpg

    from rowlock.cli.bench_raw import RawPostgres
    from rowlock.store.connector import dial, place
    from rowlock.store.engine import redact
    from rowlock.store.postgres_errors import TROUBLE, translate

    name = f"rowlock_bench_{secrets.token_hex(4)}"
    try:
        connection = await dial(url, timeout=10)
    except TROUBLE as error:
        raise translate(error, f"cannot open {redact(url)}", place(url)) from error
    try:
        try:
            await connection.execute(f"CREATE DATABASE {name}")
        except asyncpg.InsufficientPrivilegeError:
            raise ConfigError(
                f"{redact(url)}: bench makes a database of its own and this role may not; "
                "name one that may (ALTER ROLE … CREATEDB) with --database"
            ) from None
        try:
            scratch = urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
            yield scratch, await RawPostgres.open(scratch)
        finally:
            await connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
    finally:
        await connection.close()
