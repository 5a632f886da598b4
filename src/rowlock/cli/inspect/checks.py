"""The checks of `rowlock doctor`. Each returns its findings."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import tempfile
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from rowlock.bridge import outbox
from rowlock.cli.inspect.doctor import MAKE_ROOM, Finding
from rowlock.cli.kit.failures import first_line
from rowlock.cli.kit.output import counted
from rowlock.client.settings import VERSION
from rowlock.core.errors import ConfigError, StorageFull, StoreError
from rowlock.core.times import spell
from rowlock.health import alerts
from rowlock.health import conditions as health
from rowlock.store.engine import clock as database_clock
from rowlock.store.engine import migrate
from rowlock.store.engine.operation import Call, Steps, Wake, dialect, operation
from rowlock.store.engine.store import Store
from rowlock.store.read.snapshot import Snapshot
from rowlock.store.workers import Worker

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.core.config import Settings

KNOWN_ZONES = ("Europe/Berlin", "Asia/Seoul", "America/New_York")
OVERDUE_SECONDS = 60.0
COUNT_LIMIT = 10_000
# Older versions lack SQL that our statements use, or have bugs that lose data (SQLite: WAL resets).
OLDEST = {"PostgreSQL": (14,), "SQLite": (3, 51, 3)}
WAKEUP_SECONDS = 5.0
AGAIN_SECONDS = 0.2
SKEW_WARN, SKEW_FAIL = 1.0, 30.0
ROOM_WARN, ROOM_FAIL = 256 << 20, 8 << 20  # bytes
FORBIDDEN = "42501"  # SQLSTATE insufficient_privilege
WORKERS_SHOWN = 50


def zones(settings: Settings) -> Finding:
    """Does this machine know time zones?"""
    for name in (*KNOWN_ZONES, settings.api.zone):
        try:
            ZoneInfo(name)
        except (LookupError, OSError, ValueError):
            what = f"time zone {name!r} is unknown on this machine; schedules in zones cannot be read"
            return Finding("fail", "zones", what, "install the system's tzdata, or: pip install tzdata")
    return Finding("ok", "zones", "time zone data is installed")


def result_folder(settings: Settings) -> Finding:
    """Can result files be written here?"""
    folder = Path(settings.results.path)
    there = next((path for path in (folder, *folder.resolve().parents) if path.exists()), Path("/"))
    try:
        if not there.is_dir():
            raise NotADirectoryError(20, f"{there} is not a folder")
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        what = f"{folder} is not writable: {error.strerror or error}"
        return Finding("fail", "results", what, "make the folder writable for this user, or set results.path")
    made = "" if folder.exists() else "; it will be created with the first file"
    return Finding("ok", "results", f"{folder} is writable for user {os.getuid()}{made}")


async def redis(app: Rowlock) -> list[Finding]:
    """Is Redis reachable, if one is configured, and does the bridge keep up?"""
    if app.settings.redis.url is None:
        return []
    try:
        from rowlock.bridge.stats import numbers
        from rowlock.bridge.streams import opened_streams

        async with opened_streams(app.settings.redis) as streams:
            seen = await numbers(app, streams)
        text = f"reachable; {counted(seen.unread, 'request')} not answered, {counted(seen.dead_letters, 'dead letter')}"
        level, do = ("warn", "list them: rowlock deadletters list") if seen.dead_letters else ("ok", "")
        reached = Finding(level, "redis", text, do)
    except ConfigError as error:
        reached = Finding("fail", "redis", str(error), "check redis.url, the password, and that the server runs")
    number = await app.perform(outbox.overdue(OVERDUE_SECONDS, COUNT_LIMIT))
    if not number:
        return [reached, Finding("ok", "outbox", "no messages are waiting for Redis")]
    text = f"{counted(number, 'message')} unsent for more than {OVERDUE_SECONDS:g} s, because no bridge sends them"
    return [reached, Finding("fail", "outbox", text, "start a bridge: rowlock bridge, or rowlock up")]


async def alert_messages(app: Rowlock) -> list[Finding]:
    """Can alerts be sent, and do they arrive?"""
    settings = app.settings.alerts
    if not settings.rules:
        return []
    from rowlock.health.sender import check_webhook

    try:
        check_webhook(settings)
    except ConfigError as error:
        return [Finding("fail", "alerts", str(error), "correct the setting; until then workers do not start")]
    unsent = await app.perform(alerts.unsent(COUNT_LIMIT))
    late = [message for message in unsent if message.attempts]
    if late:
        what = f"{counted(len(late), 'message')} could not be delivered: {late[0].last_error}"
        return [Finding("fail", "alerts", what, "check alerts.webhook_url; test it with: rowlock alerts test")]
    where = "log and webhook" if settings.webhook_url else "log"
    return [Finding("ok", "alerts", f"{counted(len(settings.rules), 'rule')}; alerts go to the {where}")]


def engine(about: dict[str, str]) -> Finding:
    """Is the engine new enough?"""
    name, version = about["engine"], about["version"]
    oldest = OLDEST[name]
    found = tuple(int(part) for part in re.findall(r"\d+", version)[: len(oldest)])
    if found < oldest:
        text = f"{name} {version} is too old; the oldest supported version is {'.'.join(map(str, oldest))}"
        return Finding("fail", "database", text, "upgrade it" if name == "PostgreSQL" else "pip install --upgrade apsw")
    return Finding("ok", "database", f"{name} {version} at {about['url']}")


def schema(store: Store) -> Finding:
    """Always ok, with the newest migration: a store whose schema does not fit this version would not have opened."""
    newest = migrate.schema(store.engine).migrations[-1]
    return Finding("ok", "schema", f"up to date: migration {newest.title}")


async def disk(store: Store) -> Finding:
    """Does a write work now, and is there room for more? On a full disk, reads still work."""
    try:
        free = await store.try_write()
    except StorageFull as error:
        return Finding("fail", "disk", first_line(str(error)), MAKE_ROOM)
    except StoreError as error:
        if getattr(error.__cause__, "sqlstate", None) == FORBIDDEN:
            do = "to allow the test: GRANT TEMPORARY ON DATABASE … TO the role that runs doctor"
            return Finding("warn", "disk", f"writes were not tested: {first_line(str(error))}", do)
        do = "fix this first: until writes work, jobs cannot be enqueued, started or finished"
        return Finding("fail", "disk", first_line(str(error)), do)
    if free is None:
        return Finding("ok", "disk", "a test write worked")
    level = "fail" if free < ROOM_FAIL else "warn" if free < ROOM_WARN else "ok"
    text = f"a test write worked, {free / (1 << 20):,.0f} MiB are free"
    return Finding(level, "disk", text, "" if level == "ok" else MAKE_ROOM)


def pooler(about: dict[str, str], settings: Settings) -> Finding:
    """Is there a connection pooler between this process and PostgreSQL, and in which mode?"""
    mode = about["pooler"]
    if mode != "transaction":
        return Finding("ok", "pooler", {"none": "none, the connection is direct"}.get(mode, f"{mode} mode"))
    if settings.direct_url is None:
        text = "a pooler in transaction mode drops wake-ups, so workers only poll"
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
                await asyncio.wait_for(received.wait(), AGAIN_SECONDS)  # the first may be sent before our LISTEN
    finally:
        await listening.close()
    if received.is_set():
        return Finding("ok", "wake-ups", f"received after {(time.monotonic() - sent) * 1000:.0f} ms")
    every = f"{settings.worker.poll_interval_seconds:g} s"
    text = f"none received in {WAKEUP_SECONDS:g} s: idle workers only poll every {every}"
    do = "bypass the pooler with direct_url" if store.dialect.notifies else "make the temp folder writable"
    return Finding("warn", "wake-ups", text, do)


@operation(repeatable=True)
def _wake_self(name: str, address: str | None) -> Steps[None]:
    """Send this process the wake-up of a cancel: by NOTIFY under its name on PostgreSQL, to its socket on SQLite."""
    if (yield from dialect()).notifies:
        yield Call("notify_cancel", asked=[(name,)])
    elif address is not None:
        yield Wake((address,), f"cancel:{name}")


async def clock(store: Store) -> Finding:
    """How far does this machine's clock differ from the database's?"""
    before = datetime.now(UTC)
    now = await store.run(database_clock.now())
    after = datetime.now(UTC)
    ahead = (before + (after - before) / 2 - now).total_seconds()
    level = "ok" if abs(ahead) < SKEW_WARN else "warn" if abs(ahead) < SKEW_FAIL else "fail"
    where = "ahead of" if ahead >= 0 else "behind"
    do = "" if level == "ok" else "synchronise both clocks with NTP; leases use only the database's clock"
    return Finding(level, "clock", f"this machine is {abs(ahead):.1f} s {where} the database", do)


def conditions(found: Snapshot) -> list[Finding]:
    """Findings about workers, queues, tasks, sources, schedules, rows and leases, good and bad."""
    wrong: dict[str, list[Finding]] = {}
    for one in health.conditions(found):
        level, check, *_ = health.CONDITIONS[one.kind]
        wrong.setdefault(check, []).append(Finding(level, check, one.text, one.do))
    running = sum(queue.running for queue in found.queues)
    well = {
        "workers": [Finding("ok", "workers", f"{found.workers} alive, {counted(found.slots, 'slot')}")],
        "rows": [Finding("ok", "rows", "no rows set aside")],
        "leases": [Finding("ok", "leases", f"{running:,} held, none expired")],
    }
    alive = [_worker(worker, found.at) for worker in found.listed[:WORKERS_SHOWN] if worker.alive]
    return [
        finding
        for check in ("workers", "queues", "tasks", "worker", "sources", "schedules", "rows", "leases")
        for finding in [*(alive if check == "worker" else ()), *wrong.get(check, well.get(check, ()))]
    ]


def _worker(worker: Worker, now: datetime) -> Finding:
    """Does a worker run this version?"""
    busy = f"{worker.running} of {worker.pool_size} slots in use, queues {', '.join(worker.queues)}"
    if worker.version != VERSION:
        what = f"{worker.id} runs version {worker.version}, this is {VERSION}; {busy}"
        return Finding("warn", "worker", what, "finish the deploy: restart it with the new version")
    ago = max(0.0, (now - worker.seen_at).total_seconds())
    return Finding("ok", "worker", f"{worker.id}: {busy}, last heartbeat {spell(ago)} ago")


async def left_over_limits(app: Rowlock) -> list[Finding]:
    """Does the database have source limits that came from a config file but aren't in the current one?"""
    left = await app.sources.left_over(app.settings.sources)
    text = f"limits not in the current config: {', '.join(left)}"
    return [Finding("warn", "sources", text, "to remove one: rowlock sources set NAME --reset")] if left else []
