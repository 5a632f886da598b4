"""More checks of `rowlock doctor`: time zone data, result files, Redis and alerts."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from rowlock.bridge import outbox
from rowlock.cli.inspect.doctor import Finding
from rowlock.cli.kit.output import counted
from rowlock.core.errors import ConfigError
from rowlock.health import alerts

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.core.config import Settings

KNOWN_ZONES = ("Europe/Berlin", "Asia/Seoul", "America/New_York")
OVERDUE_SECONDS = 60.0
COUNT_LIMIT = 10_000


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
