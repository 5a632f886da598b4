"""Which dispatchers live, and which schedules each declares: one that no living dispatcher declares is retired."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rowlock.store.engine.operation import Call, Steps, operation
from rowlock.store.engine.records import names

Names = set[tuple[str]]


@operation(repeatable=True)
def register(dispatcher: str, declares: Sequence[str], lease: float, wake_address: str | None = None) -> Steps[Any]:
    """Write a dispatcher's row; returns when it started, by the database's clock."""
    listed = json.dumps(sorted(declares))
    rows = yield Call("register_dispatcher", id=dispatcher, declares=listed, lease=lease, address=wake_address)
    return rows[0].started_at


@operation(single=True, repeatable=True)
def seen(dispatcher: str, lease: float) -> Steps[bool]:
    """Note that a dispatcher is alive; False when its row is gone."""
    return bool((yield Call("dispatcher_seen", id=dispatcher, lease=lease)))


@operation(repeatable=True)
def leave(dispatcher: str) -> Steps[None]:
    yield from _touch((yield from _declared(0.0))[0], 0.0)
    yield Call("remove_dispatcher", id=dispatcher)


@operation(repeatable=True)
def retire(lease: float) -> Steps[list[str]]:
    """Retire what no living dispatcher has declared for two leases."""
    living, lately = yield from _declared(lease)
    yield from _touch(living, lease)
    return [row.id for row in (yield Call("retire_schedules", ago=-2 * lease, spared=sorted(lately)))]


def _declared(lately: float) -> Steps[tuple[Names, Names]]:
    """The schedules that living dispatchers declare, and those of dispatchers that lived within the last seconds."""
    living: Names = set()
    all_of_them: Names = set()
    for row in (yield Call("declarations", ago=-lately)):
        found = {(name,) for name in names(row.declares) or ()}
        all_of_them |= found
        living |= found if row.alive else set()
    return living, all_of_them


def _touch(declared: Names, every: float) -> Steps[None]:
    """Write the time of declaration of these schedules, unless it was written within the last `every` seconds."""
    if declared:
        yield Call("touch_declared", asked=sorted(declared), ago=-every)
