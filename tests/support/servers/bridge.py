"""The app of bridge processes that are killed: KILL_AT names the point at which the process ends as by kill -9."""

import os
import signal
from collections.abc import Mapping, Sequence
from typing import Any

from rowlock import Rowlock
from rowlock.bridge.messages import REQUESTS
from rowlock.bridge.reports import Judged, ReportWriter
from rowlock.bridge.streams import StreamEntry, Streams, Unwritten
from support.web.remote import with_tasks

app = with_tasks(Rowlock())
POINT = os.environ.get("KILL_AT", "")


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


_add_many, _acknowledge, _write = Streams.add_many, Streams.acknowledge, ReportWriter.write


async def add_many(self: Streams, name: str, messages: Sequence[Mapping[str, str]]) -> list[str]:
    if name == REQUESTS and messages and POINT == "before XADD":
        _die()
    added = await _add_many(self, name, messages)
    if name == REQUESTS and messages and POINT == "after XADD":
        _die()
    return added


async def acknowledge(self: Streams, *what: Any) -> Unwritten:
    if POINT == "before XACK":
        _die()
    return await _acknowledge(self, *what)


async def write(self: ReportWriter, entries: Sequence[StreamEntry]) -> list[Judged]:
    if POINT == "kill" and any(entry.fields.get(b"errorCode") == b"kill" for entry in entries):
        _die()
    return await _write(self, entries)


Streams.add_many = add_many  # type: ignore[method-assign]
Streams.acknowledge = acknowledge  # type: ignore[method-assign]
ReportWriter.write = write  # type: ignore[method-assign]
