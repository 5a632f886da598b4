"""The rounds of `rowlock bench`: each measure with Rowlock, and with bare SQL.

Bare SQL is the minimum for a queue: a table of jobs and a table of finished jobs. One step claims 500 jobs and moves
the previous 500 to the second table, concurrently (PostgreSQL) or in one commit (SQLite).
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from secrets import token_hex
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

from rowlock.app import Rowlock
from rowlock.core.errors import ConfigError, RowlockError
from rowlock.store.engine.migrate import connected
from rowlock.store.engine.store import dialect_of, file_of, redact

PINGS = 100
PATIENCE_SECONDS = 600
ARGS = '{"n":0}'
TABLES = """
CREATE TABLE raw_jobs (id {serial} PRIMARY KEY, args text NOT NULL, queue text NOT NULL DEFAULT 'default',
    priority integer NOT NULL DEFAULT 0, state text NOT NULL DEFAULT 'ready', worker text, claimed_at {time});
CREATE INDEX raw_ready ON raw_jobs (queue, priority, id) WHERE state = 'ready';
CREATE TABLE raw_finished (id bigint PRIMARY KEY, args text NOT NULL, finished_at {time} NOT NULL);
"""
READY = "SELECT id FROM raw_jobs WHERE state = 'ready' AND queue = 'default' ORDER BY priority, id LIMIT 500"
CLAIM = "UPDATE raw_jobs SET state = 'running', worker = 'raw', claimed_at = {now} WHERE id {ready} RETURNING id"
MOVE = """WITH gone AS (DELETE FROM raw_jobs WHERE id = ANY($1::bigint[]) RETURNING id, args)
    INSERT INTO raw_finished SELECT id, args, now() FROM gone"""

Add = Callable[[list[str]], Awaitable[None]]  # adds jobs with these arguments, in one commit
Step = Callable[[list[int]], Awaitable[list[int]]]  # moves these jobs to the second table, and claims and returns more
Speeds = dict[str, list[tuple[float, float]]]  # by measure: jobs per second of Rowlock and of bare SQL


async def measure(url: str, jobs: int, rounds: int) -> dict[str, Any]:
    """Speeds of Rowlock and of bare SQL for each measure, and the time until an idle worker starts a job."""
    scratch = _beside_file if dialect_of(url).is_file else _on_server
    speeds: Speeds = defaultdict(list)
    pickups: list[float] = []
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
        async with scratch(url) as (place, add, step):
            pickups += await _round(place, add, step, jobs, speeds)
    found: dict[str, Any] = {"rounds": rounds}
    for name, pairs in speeds.items():
        ours, raw = zip(*pairs, strict=True)
        ratios = [one / other for one, other in pairs]
        found[name] = {"rowlock": median(ours), "raw": median(raw), "ratio": median(ratios), "ratios": ratios}
    p99 = sorted(pickups)[int(len(pickups) * 0.99)]
    return found | {"pickup_ms": {"p50": median(pickups) * 1000, "p99": p99 * 1000}}


async def _round(url: str, add: Add, step: Step, jobs: int, speeds: Speeds) -> list[float]:
    """Measure everything once; returns the seconds from each enqueue to its handler."""
    app, waits, few = Rowlock(url), list[float](), max(50, jobs // 40)
    every = few + jobs

    @app.task("bench")
    async def noop(n: float = 0) -> None:
        waits.append(time.perf_counter() - n)

    async def one_by_one(enqueue: Callable[[], Awaitable[Any]]) -> None:
        for _ in range(few):
            await enqueue()

    async def drain() -> None:
        taken = [0]
        while taken:
            taken = await step(taken)

    await app.migrate()
    async with app:
        speeds["single"].append(
            (await _speed(few, one_by_one(noop.enqueue)), await _speed(few, one_by_one(lambda: add([ARGS]))))
        )
        speeds["bulk"].append(
            (await _speed(jobs, noop.enqueue_many([{"n": 0}] * jobs)), await _speed(jobs, add([ARGS] * jobs)))
        )
        async with app.worker(pool_size=100) as pool:
            ours = await _speed(every, _until(lambda: len(waits) >= every and pool.idle))
            for number in range(every, every + PINGS):
                await noop.enqueue(n=time.perf_counter())
                await _until(lambda number=number: len(waits) > number)
        speeds["drain"].append((ours, await _speed(every, drain())))
    return waits[every:]


async def _speed(number: int, work: Awaitable[Any]) -> float:
    """Jobs per second, for work on this number of jobs."""
    began = time.perf_counter()
    await work
    return number / (time.perf_counter() - began)


async def _until(reached: Callable[..., bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not reached():
        if time.monotonic() > deadline:
            raise RowlockError(f"the jobs of the benchmark did not finish in {PATIENCE_SECONDS} s")
        await asyncio.sleep(0.002)


@asynccontextmanager
async def _beside_file(url: str) -> AsyncIterator[tuple[str, Add, Step]]:
    import apsw

    async def add(args: list[str]) -> None:
        with raw:
            raw.executemany("INSERT INTO raw_jobs (args) VALUES (?)", [(each,) for each in args])

    async def step(done: list[int]) -> list[int]:
        these = "FROM raw_jobs WHERE id IN (SELECT value FROM json_each(?))"
        with raw:
            taken = [int(str(row[0])) for row in raw.execute(CLAIM.format(now="0", ready=f"IN ({READY})"))]
            raw.execute(f"INSERT INTO raw_finished SELECT id, args, 0 {these}", (json.dumps(done),))
            raw.execute(f"DELETE {these}", (json.dumps(done),))
        return taken

    folder = file_of(url).parent
    if not folder.is_dir():
        raise ConfigError(f"{url!r}: the folder {folder} does not exist")
    with TemporaryDirectory(prefix="rowlock-bench-", dir=folder) as name:
        with closing(apsw.Connection(str(Path(name, "raw.db")))) as raw:
            raw.execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL").fetchall()
            raw.execute(TABLES.format(serial="integer", time="real"))
            yield f"sqlite:///{Path(name, 'jobs.db')}", add, step


@asynccontextmanager
async def _on_server(url: str) -> AsyncIterator[tuple[str, Add, Step]]:
    import asyncpg

    async def add(args: list[str]) -> None:
        await claiming.execute("INSERT INTO raw_jobs (args) SELECT unnest($1::text[])", args)

    async def step(done: list[int]) -> list[int]:
        claim = CLAIM.format(now="now()", ready=f"= ANY(ARRAY({READY} FOR UPDATE SKIP LOCKED))")
        taken, _ = await asyncio.gather(claiming.fetch(claim), moving.execute(MOVE, done))
        return [row[0] for row in taken]

    name = f"rowlock_bench_{token_hex(4)}"
    scratch = urlsplit(url)._replace(path=f"/{name}").geturl()
    async with connected(url, "cannot open a database at") as connection:
        try:
            await connection.execute(f"CREATE DATABASE {name}")
            claiming, moving = await asyncpg.connect(scratch), await asyncpg.connect(scratch)
            await claiming.execute(TABLES.format(serial="bigserial", time="timestamptz"))
            yield scratch, add, step
            await claiming.close()
            await moving.close()
        except asyncpg.InsufficientPrivilegeError:
            raise ConfigError(
                f"{redact(url)}: bench creates a temporary database, and this role lacks CREATEDB; "
                "grant it (ALTER ROLE … CREATEDB), or use another role in --database"
            ) from None
        finally:
            await connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
