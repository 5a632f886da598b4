"""Snapshots as tests of conditions need them: a few facts, and nothing wrong besides."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from rowlock.store.read.counts import QueueStats
from rowlock.store.read.snapshot import Snapshot
from rowlock.store.workers import Worker

AT = datetime(2026, 1, 1, tzinfo=UTC)


def worker(*queues: str, alive: bool = True) -> Worker:
    return Worker("w-1", "host", 7, "1", queues, ("t",), 5, 0, False, AT, AT, alive)


def snapshot(
    ready: Mapping[str, int] = {},
    oldest: Mapping[str, float] = {},
    paused: Iterable[str] = (),
    listed: tuple[Worker, ...] = (),
    **more: Any,
) -> Snapshot:
    """Queues with so many ready jobs, the oldest of which has waited so long."""
    stopped = dict.fromkeys(paused, AT)
    queues = tuple(
        QueueStats(name, ready.get(name, 0), 0, 0, 0, oldest.get(name), name in stopped, None)
        for name in sorted({*ready, *oldest, *stopped})
    )
    alive = [one for one in listed if one.alive]
    slots = sum(one.pool_size for one in alive)
    return Snapshot(queues, True, len(alive), slots, AT, listed=listed, paused=stopped, **more)
