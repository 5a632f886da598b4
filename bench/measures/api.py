"""The job API beside many jobs of many owners: how long answers take, how soon events arrive, what clients cost.

Clients are in this process, the server in one of its own. Everything goes over HTTP and WebSockets.
"""

import asyncio
import os
import random
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg

from bench.api import client, rows
from bench.api.client import Ask, Socket
from bench.catalog import Candidate
from bench.processes import Broken, Child
from bench.runner import Bench
from bench.stats import percentile
from bench.usage import resident_mb
from rowlock import Rowlock
from rowlock.api.access import tokens
from rowlock.api.schemas import cursor_of

LIST, FILTERED, GET, DEEP, EVERYBODY = "list", "filtered list", "get", "cursor page", "operator's list"
RATE = "get, 4 connections"
EVENTS = "event after the call that commits it"
STALLED = "memory for a stalled reader"
IDLE, ONE = "operations, all sockets idle", "operations, one socket idle"
FILTERS = ("status=FAILED", "status=CANCELLED", "jobType=task-3", "status=SUCCEEDED&jobType=task-7", "status=QUEUED")
STALL_BYTES = 4096  # receive buffer of the stalled reader
EVENT_ROWS = """
INSERT INTO {t}events (job_id, owner, type, task, state, attempt, message, at)
SELECT {id}, 'owner-0', 'job.completed', 'task-1', 'succeeded', 1, 'a message of a usual length for one event', {now}
FROM {series}"""
POSTGRES_EVENTS = EVENT_ROWS.format(
    t="rowlock.", id="gen_random_uuid()", now="now()", series="generate_series(1, 1000)"
)
SQLITE_EVENTS = (
    "WITH RECURSIVE series (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM series WHERE n < 1000)"
    + EVENT_ROWS.format(t="rowlock_", id="'job-' || n", now="(julianday('now') - 2440587.5) * 86400", series="series")
)


@dataclass(frozen=True)
class Program(Candidate):
    """A server to start."""

    def command(self) -> list[str]:
        return [*super().command()[:-1], "bench.api.server"]


@dataclass(frozen=True)
class Filled:
    """A database with jobs, and who may ask for them."""

    url: str
    jobs: Sequence[tuple[str, str]]  # some of them: (id, owner)
    tokens: dict[str, str]  # of each owner; "" is an operator's


def postgres(bench: Bench) -> None:
    """The job API on PostgreSQL."""
    measure(bench, "postgres")


def sqlite(bench: Bench) -> None:
    """The job API on SQLite."""
    measure(bench, "sqlite")


def measure(bench: Bench, engine: str) -> None:
    """All of it on one engine."""
    plan, system = bench.plan, bench.one(engine, "rowlock")
    bench.results.note(f"{plan.api_jobs:,} jobs of {plan.api_owners} owners; {plan.api_sockets} sockets")
    bench.results.note(f"load of the machine before: {os.getloadavg()[0]:.1f}")
    with bench.database(system) as url:
        bench.say(f"filling in {plan.api_jobs:,} jobs")
        found = filled(bench, url)
        with serving(bench, engine, url) as server, serving(bench, engine, url, "--bare") as bare:
            asyncio.run(answers(bench, found, server))
            asyncio.run(rates(bench, found, server, bare))
        with serving(bench, engine, url) as server:
            asyncio.run(idle_sockets(bench, found, server))
            asyncio.run(events(bench, found, server))
        with serving(bench, engine, url) as server:
            asyncio.run(stalled(bench, found, server))
    bench.results.note(f"load of the machine after: {os.getloadavg()[0]:.1f}")


def filled(bench: Bench, url: str) -> Filled:
    plan = bench.plan
    jobs = rows.fill(url, plan.api_jobs, plan.api_owners)
    owners = [rows.owner_of(number, plan.api_owners) for number in range(plan.api_owners)]

    async def with_tokens() -> dict[str, str]:
        async with Rowlock(url) as app:
            store, made = await app.store(), {}
            for owner in [*owners, ""]:
                made[owner] = tokens.new_secret()
                scope = "jobs" if owner else "operator:read"
                await store.run(tokens.create(made[owner], owner or None, scope, None))
            return made

    return Filled(url, jobs, asyncio.run(with_tokens()))


@contextmanager
def serving(bench: Bench, engine: str, url: str, *flags: str) -> Iterator[tuple[Child, int]]:
    """A server and its port, for as long as the block lasts."""
    child = Child(Program("server", engine, "server", 0), [url, *flags], bench.folder)
    bench.adopt(child)
    try:
        yield child, int(told(child, "port"))
    finally:
        child.stop()


def told(child: Child, fact: str, times: int = 1) -> float:
    """The last of the `times` answers of a server about a fact."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if not child.alive:
            raise child.broken("has ended")
        found = [line[fact] for line in child.said() if fact in line]
        if len(found) >= times:
            return float(found[times - 1])
        time.sleep(0.02)
    raise child.broken(f"said nothing of its {fact}")


# --- answers


def questions(found: Filled) -> dict[str, Ask]:
    """What is asked for, as a function of the request's number."""
    owners, jobs = sorted(owner for owner in found.tokens if owner), found.jobs

    def listed(number: int, more: str = "") -> tuple[str, str]:
        return f"/api/jobs?size=20{more}", found.tokens[owners[number * 7 % len(owners)]]

    def deep(number: int) -> tuple[str, str]:
        job_id, owner = jobs[number * 13 % len(jobs)]
        return f"/api/jobs?size=20&cursor={cursor_of(job_id)}", found.tokens[owner]

    def got(number: int) -> tuple[str, str]:
        job_id, owner = jobs[number * 13 % len(jobs)]
        return f"/api/jobs/{job_id}", found.tokens[owner]

    return {
        LIST: listed,
        FILTERED: lambda number: listed(number, f"&{FILTERS[number % len(FILTERS)]}"),
        GET: got,
        DEEP: deep,
        EVERYBODY: lambda number: (f"/api/jobs?size=20&{FILTERS[number % len(FILTERS)]}", found.tokens[""]),
    }


async def answers(bench: Bench, found: Filled, server: tuple[Child, int]) -> None:
    """How long each kind of answer takes on a warm database."""
    for case, ask in questions(found).items():
        await client.latencies(server[1], ask, bench.plan.api_requests // 2)
        for number in range(bench.plan.pairs):
            taken = await client.latencies(server[1], ask, bench.plan.api_requests)
            bench.record(f"{case}, p95", "rowlock", number, percentile(taken, 0.95), "ms")


async def rates(bench: Bench, found: Filled, server: tuple[Child, int], bare: tuple[Child, int]) -> None:
    """Requests a second for one job, and requests a second of a bare route, measured by turns."""
    ask = questions(found)[GET]
    for _, port in (server, bare):
        await client.rate(port, ask, 1.0)
    for number in range(bench.plan.pairs):
        turns = [("rowlock", server[1]), ("raw", bare[1])]
        for name, port in turns if number % 2 else reversed(turns):
            bench.record(RATE, name, number, await client.rate(port, ask, bench.plan.api_seconds), "/s")


# --- events and sockets


async def events(bench: Bench, found: Filled, server: tuple[Child, int]) -> None:
    """How soon each socket sees its owner's events: jobs are cancelled by another process than the server."""
    plan, owners = bench.plan, sorted(owner for owner in found.tokens if owner)
    each = [owners[number % len(owners)] for number in range(plan.api_sockets)]
    opened = await client.sockets(server[1], [found.tokens[owner] for owner in each])
    seen: list[tuple[str, float]] = []

    async def listen(socket: Socket) -> None:
        while True:
            message = await socket.next()
            seen.append((message["jobId"], time.perf_counter()))

    listening = [asyncio.ensure_future(listen(socket)) for socket in opened]
    async with Rowlock(found.url) as app:
        task = app.task("bench_api")(nothing)
        for number in range(plan.pairs):
            seen.clear()
            wanted, began = 0, {}
            for count in range(plan.api_events):
                owner = owners[(number * plan.api_events + count) % len(owners)]
                job = await task.using(owner=owner).enqueue()
                await asyncio.sleep(random.uniform(0.01, 0.05))
                began[job.id] = time.perf_counter()
                await app.cancel(job.id)
                wanted += each.count(owner)
            end = time.perf_counter() + 20
            while len(seen) < wanted and time.perf_counter() < end:
                await asyncio.sleep(0.05)
            if len(seen) != wanted:
                raise Broken(f"{len(seen)} of {wanted} events have arrived")
            taken = [(at - began[job_id]) * 1000 for job_id, at in seen]
            bench.record(f"{EVENTS}, p95", "rowlock", number, percentile(taken, 0.95), "ms")
    for one in listening:
        one.cancel()
    await asyncio.gather(*listening, return_exceptions=True)
    for socket in opened:
        socket.close()


async def nothing() -> None:
    """A task that is never run."""


async def idle_sockets(bench: Bench, found: Filled, server: tuple[Child, int]) -> None:
    """Operations on the database a second, with one idle socket and with many."""
    child, port = server
    owners, counted = [token for owner, token in found.tokens.items() if owner], 0
    for case, number in ((ONE, 1), (IDLE, bench.plan.api_sockets)):
        opened = await client.sockets(port, [owners[one % len(owners)] for one in range(number)])
        await asyncio.sleep(1)
        asked = []
        for _ in range(2):
            os.kill(child.pid, signal.SIGUSR1)
            counted += 1
            asked.append((time.perf_counter(), await asyncio.to_thread(told, child, "asked", counted)))
            await asyncio.sleep(bench.plan.api_seconds * 3 if len(asked) == 1 else 0)
        (began, first), (ended, last) = asked
        bench.record(case, "rowlock", 0, (last - first) / (ended - began), "/s")
        for socket in opened:
            socket.close()
        await asyncio.sleep(0.5)


async def stalled(bench: Bench, found: Filled, server: tuple[Child, int]) -> None:
    """What the server's memory grows by while a client does not read and many events come for it."""
    child, port = server
    witness = await Socket.open(port, found.tokens["owner-1"])
    await told_events(bench, found, witness, 10_000)  # what reading events costs anyway
    stuck = await Socket.open(port, found.tokens["owner-0"], STALL_BYTES)
    before = most = resident_mb(child.pid)
    for _ in range(10):
        await told_events(bench, found, witness, bench.plan.api_stalled // 10)
        most = max(most, resident_mb(child.pid))
    bench.record(STALLED, "rowlock", 0, most - before, "MB")
    stuck.close()
    witness.close()


async def told_events(bench: Bench, found: Filled, witness: Socket, number: int) -> None:
    """Write events of owner-0 that nobody reads, and one of owner-1 that tells that the server has read them all."""
    is_file = found.url.startswith("sqlite")
    statement = SQLITE_EVENTS if is_file else POSTGRES_EVENTS
    for _ in range(max(1, number // 1000)):
        await asyncio.to_thread(bench.query, found.url, statement)
    last = statement.replace("owner-0", "owner-1").replace("(1, 1000)", "(1, 1)").replace("n < 1000", "n < 1")
    await asyncio.to_thread(bench.query, found.url, last)
    if not is_file:
        with psycopg.connect(found.url, autocommit=True) as connection:
            connection.execute("NOTIFY rowlock, 'events'")
    async with asyncio.timeout(60):
        while (await witness.next())["jobType"] != "task-1":
            pass
