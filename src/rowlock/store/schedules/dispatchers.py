"""Live dispatchers and the schedules that they declare. A schedule that no live dispatcher declares is retired."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rowlock.store.engine.operation import Call, Steps, operation
from rowlock.store.engine.records import names

Names = set[tuple[str]]


@operation(repeatable=True)
def register(dispatcher: str, declares: Sequence[str], lease: float, wake_address: str | None = None) -> Steps[Any]:
    """Register a dispatcher; returns when it started, by the database's clock."""
    listed = json.dumps(sorted(declares))
    rows = yield Call("register_dispatcher", id=dispatcher, declares=listed, lease=lease, address=wake_address)
    return rows[0].started_at


@operation(single=True, repeatable=True)
def seen(dispatcher: str, lease: float) -> Steps[bool]:
    """Renew a dispatcher's lease. False if the lease has expired or the row is gone."""
    return bool((yield Call("dispatcher_seen", id=dispatcher, lease=lease)))


@operation(repeatable=True)
def leave(dispatcher: str) -> Steps[None]:
    yield from _touch((yield from _declared(0.0))[0], 0.0)
    yield Call("remove_dispatcher", id=dispatcher)


@operation(repeatable=True)
def retire(lease: float) -> Steps[list[str]]:
    """Retire the schedules that no live dispatcher has declared for the duration of two leases."""
    live, recent = yield from _declared(lease)
    yield from _touch(live, lease)
    return [row.id for row in (yield Call("retire_schedules", ago=-2 * lease, spared=sorted(recent)))]


def _declared(seconds: float) -> Steps[tuple[Names, Names]]:
    """The schedules that live dispatchers declare, and those of dispatchers that were alive within these seconds."""
    live: Names = set()
    recent: Names = set()
    for row in (yield Call("declarations", ago=-seconds)):
        found = {(name,) for name in names(row.declares) or ()}
        recent |= found
        live |= found if row.alive else set()
    return live, recent


def _touch(declared: Names, every: float) -> Steps[None]:
    """Update `declared_at` of these schedules, unless it was updated within the last `every` seconds."""
    if declared:
        yield Call("touch_declared", asked=sorted(declared), ago=-every)
