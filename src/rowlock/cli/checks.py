"""The checks of `rowlock doctor`, each a question with one answer."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from rowlock.cli.doctor import Finding
from rowlock.core.states import State
from rowlock.store import aside, migrate, reads, workers
from rowlock.store.engine import Store
from rowlock.store.explain import unknown_tasks
from rowlock.store.operation import Call, Ring, Steps, operation
from rowlock.store.times import moment

if TYPE_CHECKING:
    from rowlock.core.config import Settings

# Older ones lack what the statements need, or have bugs that lose data (SQLite: WAL resets).
OLDEST = {"PostgreSQL": (14,), "SQLite": (3, 51, 3)}
RING_SECONDS = 5.0
AGAIN_SECONDS = 0.2
SKEW_WARN, SKEW_FAIL = 1.0, 30.0
RUNNING_LOOKED_AT = 10_000
ROWS_SHOWN = 20


def engine(about: dict[str, str]) -> Finding:
    """Is the engine new enough?"""
    name, version = about["engine"], about["version"]
    oldest = OLDEST[name]
    found = tuple(int(part) for part in re.findall(r"\d+", version)[: len(oldest)])
    if found < oldest:
        return Finding("fail", "database", f"{name} {version} is too old: {'.'.join(map(str, oldest))} is needed")
    return Finding("ok", "database", f"{name} {version} at {about['url']}")


def schema(store: Store) -> Finding:
    """It fits: the store would not have opened otherwise. Which one is it?"""
    newest = migrate.migrations(store.engine)[-1]
    return Finding("ok", "schema", f"migration {newest.number:04d}_{newest.name}, the newest this version knows")


def pooler(about: dict[str, str], settings: Settings) -> Finding:
    """How are connections pooled on the way?"""
    mode = about["pooler"]
    if mode != "transaction":
        return Finding("ok", "pooler", {"none": "none in between"}.get(mode, f"{mode} mode"))
    if settings.direct_url is None:
        return Finding("warn", "pooler", "transaction mode carries no wake-ups: workers only poll; set direct_url")
    return Finding("ok", "pooler", "transaction mode, with a direct_url for wake-ups")


async def wakeups(store: Store, settings: Settings) -> Finding:
    """Does a ring come back to the one who rang?"""
    name, heard = f"doctor-{secrets.token_hex(4)}", asyncio.Event()
    bell = await store.listen(lambda what: heard.set() if what == f"cancel:{name}" else None)
    began = time.monotonic()
    try:
        while not heard.is_set() and time.monotonic() - began < RING_SECONDS:
            rung = time.monotonic()
            await store.run(_ring_back(name, bell.address))
            try:
                await asyncio.wait_for(heard.wait(), AGAIN_SECONDS)  # again: it may not have listened yet
            except TimeoutError:
                continue
    finally:
        await bell.close()
    if heard.is_set():
        return Finding("ok", "wake-ups", f"heard after {(time.monotonic() - rung) * 1000:.0f} ms")
    every = f"{settings.worker.poll_interval_seconds:g} s"
    return Finding("warn", "wake-ups", f"none heard in {RING_SECONDS:g} s: idle workers only look every {every}")


@operation(repeatable=True)
def _ring_back(name: str, address: str | None) -> Steps[None]:
    """Ring as a cancel does, by name where the engine notifies and by address where it does not."""
    yield Call("ring_workers", told=[(name,)])
    if address is not None:
        yield Ring((address,), f"cancel:{name}")


async def clock(store: Store) -> tuple[datetime, Finding]:
    """The database's time, and how far this machine's is from it."""
    before = datetime.now(UTC)
    now = await store.run(_clock())
    after = datetime.now(UTC)
    ahead = (before + (after - before) / 2 - now).total_seconds()
    level = "ok" if abs(ahead) < SKEW_WARN else "warn" if abs(ahead) < SKEW_FAIL else "fail"
    where = "ahead of" if ahead >= 0 else "behind"
    return now, Finding(level, "clock", f"this machine is {abs(ahead):.1f} s {where} the database")


@operation(read=True)
def _clock() -> Steps[datetime]:
    ((now,),) = yield Call("clock")
    return moment(now)


async def work(store: Store) -> list[Finding]:
    """Is there work that nobody does: queues without workers, tasks that no worker knows, paused queues?"""
    alive = [worker for worker in await store.run(workers.workers()) if worker.alive]
    served = {queue for worker in alive for queue in worker.queues}
    waiting = await store.run(unknown_tasks())
    found = [Finding("ok", "workers", f"{len(alive)} alive, {sum(worker.pool_size for worker in alive)} slots")]
    for queue in sorted({queue for queue, _, _ in waiting} - served):
        number = sum(count for other, _, count in waiting if other == queue)
        found.append(Finding("warn", "queues", f"nobody serves {queue!r}; waiting there: {number:,}"))
    for queue, task, number in waiting:
        if queue in served:
            found.append(
                Finding("fail", "tasks", f"no worker of {queue!r} knows {task!r}; waiting for one: {number:,}")
            )
    for queue, since in (await store.run(workers.paused_queues())).items():
        found.append(Finding("warn", "queues", f"{queue!r} has been paused since {since:%Y-%m-%d %H:%M} UTC"))
    return found


async def rows(store: Store) -> list[Finding]:
    """Are there jobs or batches that something cannot be done for, or that wait for a time that never comes?"""
    found = [
        Finding("fail", "rows", f"{one.id} is set aside: {one.doing} failed for it, {one.error}; {_mend(one)}")
        for one in await store.run(aside.listed(ROWS_SHOWN))
    ]
    for job_id, task in await store.run(reads.never_due(ROWS_SHOWN)):
        text = f"{job_id} ({task}) waits for a time after 2199: set its run_after, or: rowlock jobs cancel {job_id}"
        found.append(Finding("warn", "rows", text))
    return found or [Finding("ok", "rows", "none is set aside")]


def _mend(one: aside.Aside) -> str:
    again = f" (else it is tried again at {one.again_at:%H:%M} UTC)" if one.again_at else ""
    return f"mend its row, then delete its row in the table set_aside{again}"


async def leases(store: Store, now: datetime, sweep: float) -> Finding:
    """Are there leases that ran out and that no sweep has ended?"""
    running = await store.run(reads.list_jobs(reads.JobFilter(states=(State.RUNNING,)), RUNNING_LOOKED_AT))
    horizon = now - timedelta(seconds=2 * sweep)
    stuck = [job for job in running if job.lease_expires_at is not None and job.lease_expires_at < horizon]
    if stuck:
        return Finding("fail", "leases", f"{len(stuck):,} ran out two sweeps ago or more, and no worker has ended them")
    return Finding("ok", "leases", f"{len(running):,} held, none of them overdue")
