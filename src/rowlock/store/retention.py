"""Forgetting finished jobs, so that a table that only grows does not.

Every finished row carries the day `drop_on` from which it may go. On PostgreSQL there is a partition for each such
day, and forgetting a day is one DROP TABLE, whatever it holds. Rows for which there was no partition (the role may
not create any, a job is kept unusually long) lie in the default partition and are deleted in batches, as all are on
SQLite. Nothing here is ever in a hurry: locks are waited for briefly, what is not done now is done the next time,
and batches are small and leave as much time to others as they take.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from rowlock.store.engine import Store
from rowlock.store.jobs import NO_ID, Keep
from rowlock.store.operation import Call, Row, Steps, operation

# The longest default keep is 30 days. Two more, so that a day's partition is there before its first row.
DAYS_AHEAD = 32
BATCH = 1_000
SMALLEST_BATCH = 20
BATCH_SECONDS = 0.05
KEYS_AT_ONCE = 10_000  # finding them reads the whole table; deleting them goes in batches
LOCK_TIMEOUT = "SET LOCAL lock_timeout = '200ms'"  # whoever comes after us in the line waits as long as we do
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# PostgreSQL's words for: not allowed; somebody holds the lock; a row for this day has just come into the default
# partition; a table of this name is there but is no partition.
NOT_ALLOWED, BUSY, HAS_ROWS, NAME_TAKEN = "42501", ("55P03", "40P01"), "23514", "42P07"


@dataclass(frozen=True, slots=True)
class Partitions:
    """What `ensure_partitions` did."""

    created: tuple[str, ...] = ()
    skipped: tuple[date, ...] = ()  # days that stay in the default partition, because it has rows for them
    allowed: bool = True  # False: this role may not create partitions
    busy: bool = False  # somebody held a lock; the next call goes on


@dataclass(frozen=True, slots=True)
class Pruned:
    """What `prune` removed."""

    partitions: tuple[str, ...] = ()
    jobs: int = 0  # one by one; a partition's rows are not counted
    attempts: int = 0
    keys: int = 0
    busy: bool = False  # a partition is still there because somebody held a lock


class Pace:
    """The size of the next batch: smaller when the last one took too long, larger when there was room."""

    def __init__(self) -> None:
        self.size = BATCH

    def learn(self, took: float) -> None:
        """Adapt to how long the last batch took, in seconds."""
        if took > BATCH_SECONDS:
            self.size = max(SMALLEST_BATCH, self.size // 2)
        elif took < BATCH_SECONDS / 4:
            self.size = min(BATCH, self.size * 2)

    async def rest(self, began: float) -> None:
        """Learn from the batch that began then, and leave others as much time as it took."""
        took = time.monotonic() - began
        self.learn(took)
        await asyncio.sleep(took)


async def ensure_partitions(store: Store, days_ahead: int = DAYS_AHEAD) -> Partitions:
    """Make partitions for the days on which jobs kept for up to `days_ahead` days may go. Many may call it at once."""
    if store.engine != "postgres":
        return Partitions()
    first, there = await store.run(_days())
    missing = [day for n in range(days_ahead + 1) if _name(day := first + timedelta(n)) not in there]
    taken = set(await store.run(_default_days(first))) if missing else set()
    created: list[str] = []
    for day in missing:
        if day in taken or _name(day) in there:
            continue
        try:
            async with store.transaction() as tx:
                await tx.execute("SELECT pg_advisory_xact_lock(hashtext('rowlock.partitions'))")
                there |= (await tx.run(_days()))[1]
                if _name(day) not in there:
                    await _create(tx, day)
                    created.append(_name(day))
        except Exception as error:
            code = getattr(error, "sqlstate", None)
            if code not in (NOT_ALLOWED, HAS_ROWS, NAME_TAKEN, *BUSY):
                raise
            created = [name for name in created if name != _name(day)]
            taken.add(day)
            if code != HAS_ROWS and code != NAME_TAKEN:
                break
    return Partitions()


async def _create(tx: Any, day: date) -> None:
    # CREATE … PARTITION OF would lock all finished jobs against reading; ATTACH lets them be read and written.
    name = _name(day)
    await tx.execute(LOCK_TIMEOUT)
    await tx.execute(f"CREATE TABLE rowlock.{name} (LIKE rowlock.jobs_finished INCLUDING ALL)")
    await tx.execute(
        f"ALTER TABLE rowlock.jobs_finished ATTACH PARTITION rowlock.{name}"
        f" FOR VALUES FROM ('{day}') TO ('{day + timedelta(1)}')"
    )
