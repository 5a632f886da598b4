"""The checks of `rowlock doctor`. Each returns one finding or several."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from rowlock.cli.inspect.doctor import MAKE_ROOM, Finding
from rowlock.cli.kit.failures import first_line
from rowlock.cli.kit.output import counted
from rowlock.core.errors import StorageFull, StoreError
from rowlock.core.states import State
from rowlock.store import workers
from rowlock.store.engine.migrate import migrations
from rowlock.store.engine.operation import Call, Steps, Wake, dialect, operation
from rowlock.store.engine.store import Store
from rowlock.store.read import job_rows, search
from rowlock.store.read.explain import unknown_tasks
from rowlock.store.read.filter import JobFilter
from rowlock.store.upkeep import bad_rows, clock_repair

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.core.config import Settings

# Older versions lack SQL that the statements use, or have bugs that lose data (SQLite: WAL resets).
OLDEST = {"PostgreSQL": (14,), "SQLite": (3, 51, 3)}
WAKEUP_SECONDS = 5.0
AGAIN_SECONDS = 0.2
SKEW_WARN, SKEW_FAIL = 1.0, 30.0
ROOM_WARN, ROOM_FAIL = 256 << 20, 8 << 20  # bytes
FORBIDDEN = "42501"  # the role lacks a right
RUNNING_LOOKED_AT = 10_000
ROWS_SHOWN = 20


def engine(about: dict[str, str]) -> Finding:
    """Is the engine new enough?"""
    name, version = about["engine"], about["version"]
    oldest = OLDEST[name]
    found = tuple(int(part) for part in re.findall(r"\d+", version)[: len(oldest)])
    if found < oldest:
        text = f"{name} {version} is too old: {'.'.join(map(str, oldest))} is needed"
        return Finding("fail", "database", text, "upgrade it" if name == "PostgreSQL" else "pip install --upgrade apsw")
    return Finding("ok", "database", f"{name} {version} at {about['url']}")


def schema(store: Store) -> Finding:
    """Name the newest migration. The schema fits this version, else the store would have refused to open."""
    newest = migrations(store.engine)[-1]
    return Finding("ok", "schema", f"migration {newest.title}, the newest this version knows")


async def disk(store: Store) -> Finding:
    """Does the database take a write now, and is there room for more? Reads work while its disk is full."""
    try:
        free = await store.try_write()
    except StorageFull as error:
        return Finding("fail", "disk", first_line(str(error)), MAKE_ROOM)
    except StoreError as error:
        if getattr(error.__cause__, "sqlstate", None) == FORBIDDEN:
            do = "to have it tried: GRANT TEMPORARY ON DATABASE … TO the role that runs doctor"
            return Finding("warn", "disk", f"no write was tried: {first_line(str(error))}", do)
        do = "correct that: until writes work, no job is accepted, started or ended"
        return Finding("fail", "disk", first_line(str(error)), do)
    if free is None:
        return Finding("ok", "disk", "a trial write worked")
    level = "fail" if free < ROOM_FAIL else "warn" if free < ROOM_WARN else "ok"
    text = f"a trial write worked, {free / (1 << 20):,.0f} MiB are free"
    return Finding(level, "disk", text, "" if level == "ok" else MAKE_ROOM)


def pooler(about: dict[str, str], settings: Settings) -> Finding:
    """Is there a connection pooler between this process and PostgreSQL, and in which mode?"""
    mode = about["pooler"]
    if mode != "transaction":
        return Finding("ok", "pooler", {"none": "none, the connection is direct"}.get(mode, f"{mode} mode"))
    if settings.direct_url is None:
        text = "transaction mode passes no wake-ups on, so workers only poll"
        return Finding("warn", "pooler", text, "set direct_url to PostgreSQL's own address")
    return Finding("ok", "pooler", "transaction mode, with a direct_url for wake-ups")


async def wakeups(store: Store, settings: Settings) -> Finding:
    """Does a wake-up that this process sends to itself arrive?"""
    name, received = f"doctor-{secrets.token_hex(4)}", asyncio.Event()
    listening = await store.listen(lambda what: received.set() if what == f"cancel:{name}" else None)
    began = time.monotonic()
    try:
        while not received.is_set() and time.monotonic() - began < WAKEUP_SECONDS:
            sent = time.monotonic()
            await store.run(_wake_self(name, listening.address))
            with suppress(TimeoutError):
                await asyncio.wait_for(received.wait(), AGAIN_SECONDS)  # the first may precede our LISTEN
    finally:
        await listening.close()
    if received.is_set():
        return Finding("ok", "wake-ups", f"received after {(time.monotonic() - sent) * 1000:.0f} ms")
    every = f"{settings.worker.poll_interval_seconds:g} s"
    text = f"none received in {WAKEUP_SECONDS:g} s: idle workers only poll every {every}"
    do = "set direct_url past the pooler" if store.dialect.notifies else "make the temp folder writable"
    return Finding("warn", "wake-ups", text, do)


@operation(repeatable=True)
def _wake_self(name: str, address: str | None) -> Steps[None]:
    """Send a cancel wake-up: with NOTIFY by worker name on PostgreSQL, to the socket address on SQLite."""
    if (yield from dialect()).notifies:
        yield Call("notify_cancel", asked=[(name,)])
    elif address is not None:
        yield Wake((address,), f"cancel:{name}")


async def clock(store: Store) -> tuple[datetime, Finding]:
    """The database's time, and a finding about how far this machine's clock differs from it."""
    before = datetime.now(UTC)
    now = await store.run(clock_repair.now())
    after = datetime.now(UTC)
    ahead = (before + (after - before) / 2 - now).total_seconds()
    level = "ok" if abs(ahead) < SKEW_WARN else "warn" if abs(ahead) < SKEW_FAIL else "fail"
    where = "ahead of" if ahead >= 0 else "behind"
    do = "" if level == "ok" else "set both clocks by NTP; leases use the database's clock alone"
    return now, Finding(level, "clock", f"this machine is {abs(ahead):.1f} s {where} the database", do)


async def work(store: Store) -> list[Finding]:
    """Are there jobs that cannot start: in queues without workers, of unregistered tasks, in paused queues?"""
    alive = [worker for worker in await store.run(workers.workers()) if worker.alive]
    served = {queue for worker in alive for queue in worker.queues}
    waiting = await store.run(unknown_tasks())
    slots = sum(worker.pool_size for worker in alive)
    found = [Finding("ok", "workers", f"{len(alive)} alive, {counted(slots, 'slot')}")]
    for queue in sorted({queue for queue, _, _ in waiting} - served):
        number = sum(count for other, _, count in waiting if other == queue)
        do = f"start one: rowlock worker --queues {queue}"
        found.append(Finding("warn", "queues", f"no worker serves {queue!r}; jobs waiting: {number:,}", do))
    for queue, task, number in waiting:
        if queue in served:
            text = f"no worker of {queue!r} has the task {task!r}; jobs waiting: {number:,}"
            do = f"start a worker with code that has it, or: rowlock jobs cancel --task {task}"
            found.append(Finding("fail", "tasks", text, do))
    for queue, since in (await store.run(workers.paused_queues())).items():
        text = f"{queue!r} has been paused since {since:%Y-%m-%d %H:%M} UTC"
        found.append(Finding("warn", "queues", text, f"to go on: rowlock queues resume {queue}"))
    return found


async def left_over_limits(app: Rowlock) -> list[Finding]:
    """Are there source limits in the database that came from a config file and are not in the current one?"""
    left = await app.sources.left_over(app.settings.sources)
    text = f"limits not in the current config: {', '.join(left)}"
    return [Finding("warn", "sources", text, "to remove one: rowlock sources set NAME --reset")] if left else []


async def rows(store: Store) -> list[Finding]:
    """Are there rows that are set aside because an operation failed for them, or that wait for a time after 2199?"""
    found = [
        Finding("fail", "rows", f"{one.id} is set aside: {one.doing} failed for it, {one.error}", _mend(one))
        for one in await store.run(bad_rows.listed(ROWS_SHOWN))
    ]
    for job_id, task in await store.run(job_rows.never_due(ROWS_SHOWN)):
        text = f"{job_id} ({task}) waits for a time after 2199"
        found.append(Finding("warn", "rows", text, f"set its run_after, or: rowlock jobs cancel {job_id}"))
    return found or [Finding("ok", "rows", "no row is set aside")]


def _mend(one: bad_rows.Aside) -> str:
    again = f" (otherwise it is tried again at {one.again_at:%H:%M} UTC)" if one.again_at else ""
    return f"correct that row, then delete its entry in the table set_aside{again}"


async def leases(store: Store, now: datetime, sweep: float) -> Finding:
    """Are there expired leases that no sweep has ended?"""
    running = await store.run(search.list_jobs(JobFilter(states=(State.RUNNING,)), RUNNING_LOOKED_AT))
    horizon = now - timedelta(seconds=2 * sweep)
    stuck = [job for job in running if job.lease_expires_at is not None and job.lease_expires_at < horizon]
    if stuck:
        text = f"{counted(len(stuck), 'lease')} expired at least two sweeps ago, and no worker has reclaimed the jobs"
        return Finding("fail", "leases", text, "start a worker: any worker takes such jobs back")
    return Finding("ok", "leases", f"{len(running):,} held, none expired")
