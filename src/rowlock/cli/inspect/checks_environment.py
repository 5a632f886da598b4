"""More checks of `rowlock doctor`: workers, time zone data, result files, Redis, schedules and alerts."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from rowlock.bridge import outbox
from rowlock.cli.inspect.doctor import Finding
from rowlock.cli.kit.output import counted
from rowlock.client.version import VERSION
from rowlock.core.config.alert_rules import parse_rules
from rowlock.core.durations import spell
from rowlock.core.errors import ConfigError
from rowlock.health import alerts
from rowlock.store import workers
from rowlock.store.engine.store import Store

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.core.config import Settings

WORKERS_SHOWN = 50
NAMED = 5
KNOWN_ZONES = ("Europe/Berlin", "Asia/Seoul", "America/New_York")
OVERDUE_SECONDS = 60.0
COUNT_LIMIT = 10_000
LOOKED_AT = parse_rules({"late": {"when": "missed_ticks"}, "broken": {"when": "breaker_open"}})


async def each_worker(store: Store, now: datetime) -> list[Finding]:
    """One finding for each recent worker: does it send heartbeats, and does it run this version?"""
    found = await store.run(workers.workers())
    return [_worker(worker, now) for worker in found[:WORKERS_SHOWN]]


def _worker(worker: workers.Worker, now: datetime) -> Finding:
    ago = max(0.0, (now - worker.seen_at).total_seconds())
    if not worker.alive:
        what = f"{worker.id} has not been heard of for {spell(ago)}; its jobs are taken back by any live worker"
        return Finding("warn", "worker", what, f"look for its process, pid {worker.pid} on {worker.hostname}")
    busy = f"{worker.running} of {worker.pool_size} slots in use, queues {', '.join(worker.queues)}"
    if worker.version != VERSION:
        what = f"{worker.id} runs version {worker.version}, this is {VERSION}; {busy}"
        return Finding("warn", "worker", what, "finish the deploy: restart it with the new version")
    return Finding("ok", "worker", f"{worker.id}: {busy}, heard of {spell(ago)} ago")


def zones(settings: Settings) -> Finding:
    """Does this machine know time zones?"""
    for name in (*KNOWN_ZONES, settings.api.zone):
        try:
            ZoneInfo(name)
        except (LookupError, OSError, ValueError):
            what = f"time zone {name!r} is unknown on this machine; schedules in zones cannot be read"
            return Finding("fail", "zones", what, "install the system's tzdata, or: pip install tzdata")
    return Finding("ok", "zones", "time zone data is there")


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
        what = f"{folder} cannot be written to: {error.strerror or error}"
        return Finding("fail", "results", what, "give this user the right to write there, or set results.path")
    made = "" if folder.exists() else "; it is made when the first file is written"
    return Finding("ok", "results", f"{folder} can be written to by user {os.getuid()}{made}")


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
        level, do = ("warn", "look at them: rowlock deadletters list") if seen.dead_letters else ("ok", "")
        reached = Finding(level, "redis", text, do)
    except ConfigError as error:
        reached = Finding("fail", "redis", str(error), "check redis.url, the password, and that the server runs")
    number = await app.perform(outbox.overdue(OVERDUE_SECONDS, COUNT_LIMIT))
    if not number:
        return [reached, Finding("ok", "outbox", "no message waits to be sent to Redis")]
    text = (
        f"{counted(number, 'message')} to Redis waiting for more than {OVERDUE_SECONDS:g} s; no bridge sends messages"
    )
    return [reached, Finding("fail", "outbox", text, "start one: rowlock bridge, or rowlock up")]


async def schedules_and_sources(store: Store) -> list[Finding]:
    """Are ticks late, and do breakers keep jobs from starting?"""
    facts = await store.run(alerts.facts(LOOKED_AT))
    found = []
    if facts.late:
        schedules = "a schedule has a tick that is" if len(facts.late) == 1 else "schedules have ticks that are"
        longest = spell(max(facts.late.values()))
        what = f"{schedules} due and not fired: {_names(facts.late)}, for {longest} by now"
        found.append(Finding("fail", "schedules", what, "start a dispatcher: rowlock dispatch, or rowlock up"))
    if facts.broken:
        first, (_, error) = next(iter(facts.broken.items()))
        because = f"; {first} failed last with: {error}" if error else ""
        which = "a breaker is" if len(facts.broken) == 1 else "breakers are"
        what = f"{which} open, and jobs wait for: {_names(facts.broken)}{because}"
        found.append(Finding("warn", "sources", what, f"if it works again: rowlock sources resume {first}"))
    return found


async def alert_messages(app: Rowlock) -> list[Finding]:
    """Can alerts be sent, and do they arrive?"""
    settings = app.settings.alerts
    if not settings.rules:
        return []
    from rowlock.health.sender import check_webhook

    try:
        check_webhook(settings)
    except ConfigError as error:
        return [Finding("fail", "alerts", str(error), "correct the setting; workers do not start with it")]
    unsent = await app.perform(alerts.unsent(COUNT_LIMIT))
    late = [message for message in unsent if message.attempts]
    if late:
        what = f"{counted(len(late), 'message')} did not arrive: {late[0].last_error}"
        return [Finding("fail", "alerts", what, "check alerts.webhook_url; to try it: rowlock alerts test")]
    where = "log and webhook" if settings.webhook_url else "log"
    return [Finding("ok", "alerts", f"{counted(len(settings.rules), 'rule')}, told by {where}")]


def _names(found: Iterable[str]) -> str:
    names = list(found)
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"
