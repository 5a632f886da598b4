"""The measurements of `rowlock bench`: the same steps through Rowlock and through bare SQL, round by round.

Bare SQL is the least that a queue needs: a table of jobs and one of finished jobs; one statement claims 500 jobs and
another moves them to the second table.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from secrets import token_hex
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from rowlock.app import Rowlock
from rowlock.core.errors import ConfigError
from rowlock.store.engine.store import dialect_of, file_of, redact

PINGS = 100
ARGS = '{"n":0}'
TABLES = """
CREATE TABLE raw_jobs (id {serial}, args {text} NOT NULL, queue {text} NOT NULL DEFAULT 'default',
    priority integer NOT NULL DEFAULT 0, state {text} NOT NULL DEFAULT 'ready', worker {text}, claimed_at {time});
CREATE INDEX raw_ready ON raw_jobs (queue, priority, id) WHERE state = 'ready';
CREATE TABLE raw_finished (id bigint PRIMARY KEY, args {text} NOT NULL, finished_at {time} NOT NULL);
"""
READY = "SELECT id FROM raw_jobs WHERE state = 'ready' AND queue = 'default' ORDER BY priority, id LIMIT 500"


async def measure(url: str, names: Iterable[str], jobs: int, rounds: int) -> dict[str, Any]:
    """Jobs per second of Rowlock and of bare SQL for each named measure, and the time until a job is picked up."""
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    pickups: list[float] = []
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
        async with (_beside_file if dialect_of(url).is_file else _on_server)(url) as (scratch, raw):
            ours = _Ours(scratch)
            await ours.app.migrate()
            async with ours.app:
                for name in names:
                    count = jobs if name != "single" else max(50, jobs // 40)
                    took = [await getattr(one, name)(count) for one in (ours, raw)]
                    samples[name].append((count / took[0], count / took[1]))
                pickups += await ours.pickup()
    found: dict[str, Any] = {"rounds": rounds}
    for name, pairs in samples.items():
        ratios = [one / other for one, other in pairs]
        rates = {"rowlock": median(one for one, _ in pairs), "raw": median(other for _, other in pairs)}
        found[name] = rates | {"ratio": median(ratios), "ratios": ratios}
    p99 = sorted(pickups)[int(len(pickups) * 0.99)]
    return found | {"pickup_ms": {"p50": median(pickups) * 1000, "p99": p99 * 1000}}


@asynccontextmanager
async def _beside_file(url: str) -> AsyncIterator[tuple[str, _Sqlite]]:
    folder = file_of(url).parent
    if not folder.is_dir():
        raise ConfigError(f"{url!r}: the folder {folder} does not exist")
    with TemporaryDirectory(prefix="rowlock-bench-", dir=folder) as name:
        raw = _Sqlite(str(Path(name, "raw.db")))
        try:
            yield f"sqlite:///{Path(name, 'jobs.db')}", raw
        finally:
            raw.connection.close()


@asynccontextmanager
async def _on_server(url: str) -> AsyncIterator[tuple[str, _Postgres]]:
    import asyncpg

    from rowlock.store.engine.postgres.connector import dial, place
    from rowlock.store.engine.postgres.errors import TROUBLE, translate

    name = f"rowlock_bench_{token_hex(4)}"
    try:
        connection = await dial(url, timeout=10)
    except TROUBLE as error:
        raise translate(error, f"cannot open {redact(url)}", place(url)) from error
    try:
        await connection.execute(f"CREATE DATABASE {name}")
        scratch = urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
        claiming, finishing = await asyncpg.connect(scratch), await asyncpg.connect(scratch)
        await claiming.execute(TABLES.format(serial="bigserial PRIMARY KEY", text="text", time="timestamptz"))
        yield scratch, _Postgres(claiming, finishing)
        await claiming.close()
        await finishing.close()
    except asyncpg.InsufficientPrivilegeError:
        raise ConfigError(
            f"{redact(url)}: bench creates a temporary database, and this role lacks CREATEDB; "
            "give --database with a role that has it (ALTER ROLE … CREATEDB)"
        ) from None
    finally:
        await connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        await connection.close()


class _Ours:
    """The measures through the public API. As below, each returns its seconds."""

    def __init__(self, url: str) -> None:
        self.app, self.done, self.seen = Rowlock(url), 0, list[float]()

        @self.app.task("bench")
        async def noop(n: float = 0) -> None:
            self.done += 1
            if n:
                self.seen.append(time.perf_counter() - n)

        self.task = noop

    async def single(self, jobs: int) -> float:
        began = time.perf_counter()
        for _ in range(jobs):
            await self.task.enqueue()
        return time.perf_counter() - began

    async def bulk(self, jobs: int) -> float:
        began = time.perf_counter()
        await self.task.enqueue_many([{"n": 0}] * jobs)
        return time.perf_counter() - began

    async def drain(self, jobs: int) -> float:
        queued = jobs + max(50, jobs // 40)  # the jobs that `single` enqueued are still queued, and run as well
        async with self.app.worker(pool_size=100) as pool:
            began = time.perf_counter()
            await _until(lambda: self.done >= queued and pool.idle, f"{queued} jobs")
            return (time.perf_counter() - began) * jobs / queued

    async def pickup(self) -> list[float]:
        """From enqueue to the handler's first line, one job at a time."""
        async with self.app.worker() as pool:
            await _until(lambda: pool.idle, "an idle worker")
            for number in range(PINGS):
                await self.task.enqueue(n=time.perf_counter())
                await _until(lambda wanted=number: len(self.seen) > wanted, "a job to be picked up")
        return self.seen


async def _until(reached: Callable[..., bool], what: str, seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited for {what} for {seconds:.0f} s")
        await asyncio.sleep(0.002)


class _Postgres:
    """Bare SQL on two connections, so that one batch is finished while the next is claimed."""

    CLAIM = f"""
        UPDATE raw_jobs SET state = 'running', worker = 'raw', claimed_at = now()
        WHERE id = ANY(ARRAY({READY} FOR UPDATE SKIP LOCKED)) RETURNING id, args"""
    FINISH = """
        WITH gone AS (DELETE FROM raw_jobs WHERE id = ANY($1::bigint[]) RETURNING id, args)
        INSERT INTO raw_finished SELECT id, args, now() FROM gone"""

    def __init__(self, claiming: Any, finishing: Any) -> None:
        self._claiming, self._finishing = claiming, finishing

    async def single(self, jobs: int) -> float:
        insert = await self._claiming.prepare("INSERT INTO raw_jobs (args) VALUES ($1)")
        began = time.perf_counter()
        for _ in range(jobs):
            await insert.fetch(ARGS)
        return time.perf_counter() - began

    async def bulk(self, jobs: int) -> float:
        began = time.perf_counter()
        await self._claiming.execute("INSERT INTO raw_jobs (args) SELECT unnest($1::text[])", [ARGS] * jobs)
        return time.perf_counter() - began

    async def drain(self, _: int) -> float:
        began, finishing = time.perf_counter(), asyncio.ensure_future(asyncio.sleep(0))
        while rows := await self._claiming.fetch(self.CLAIM):
            await finishing
            finishing = asyncio.ensure_future(self._finishing.execute(self.FINISH, [row[0] for row in rows]))
        await finishing
        return time.perf_counter() - began


class _Sqlite:
    """Bare SQL on one connection; a batch is finished in the commit that claims the next."""

    CLAIM = f"UPDATE raw_jobs SET state = 'running', worker = 'raw', claimed_at = 0 WHERE id IN ({READY}) RETURNING id"
    COPY = "INSERT INTO raw_finished SELECT id, args, 0 FROM raw_jobs WHERE id IN (SELECT value FROM json_each(?))"
    REMOVE = "DELETE FROM raw_jobs WHERE id IN (SELECT value FROM json_each(?))"

    def __init__(self, file: str) -> None:
        import apsw

        self.connection = apsw.Connection(file)
        for pragma in ("journal_mode=WAL", "synchronous=FULL"):
            self.connection.execute(f"PRAGMA {pragma}").fetchall()
        self.connection.execute(TABLES.format(serial="integer PRIMARY KEY", text="text", time="real"))

    async def single(self, jobs: int) -> float:
        began = time.perf_counter()
        for _ in range(jobs):
            self.connection.execute("INSERT INTO raw_jobs (args) VALUES (?)", (ARGS,))
        return time.perf_counter() - began

    async def bulk(self, jobs: int) -> float:
        began = time.perf_counter()
        with self.connection:
            self.connection.executemany("INSERT INTO raw_jobs (args) VALUES (?)", [(ARGS,)] * jobs)
        return time.perf_counter() - began

    async def drain(self, _: int) -> float:
        began, taken = time.perf_counter(), [0]
        while taken:
            with self.connection:
                done = json.dumps(taken)
                taken = [int(str(row[0])) for row in self.connection.execute(self.CLAIM)]
                self.connection.execute(self.COPY, (done,))
                self.connection.execute(self.REMOVE, (done,))
        return time.perf_counter() - began
