"""Retention: delete old rows, namely finished jobs, their attempts and keys, batches, ticks, events, log lines.

The column `drop_on` of a finished job is the first day on which it may be deleted. On PostgreSQL each day has a
partition, which is dropped as a whole (partitions.py). Rows of the default partition, and all rows on SQLite, are
deleted in small batches, and after each batch the pruner sleeps for as long as the batch took.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from rowlock.core.policy import DAY
from rowlock.store import audit
from rowlock.store.engine.operation import Call, Row, Steps, operation
from rowlock.store.engine.store import Store
from rowlock.store.jobs.claim import NO_ID
from rowlock.store.jobs.settle import Keep
from rowlock.store.read import job_logs
from rowlock.store.upkeep import bad_rows
from rowlock.store.upkeep.partitions import drop_partitions

BATCH = 1_000  # the most rows that one transaction deletes
TICK_DAYS = 31  # for fired ticks; `next_tick` is past them, so they can't fire again even without their rows
SMALLEST_BATCH = 20  # rows, however slow the database is
BATCH_SECONDS = 0.05  # the target duration of a batch, during which all other writers on SQLite wait
KEYS_AT_ONCE = 10_000  # expired keys that one scan of the table finds; they are deleted in batches
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Other statements that delete up to :n rows, each with the age in seconds from which rows are deleted. None: the
# statement has its own rule. LONGEST stands for the longest retention of finished jobs.
LONGEST = -1.0
OTHERS = {
    "prune_audit": audit.KEEP_SECONDS,
    "prune_batches": LONGEST,
    "prune_events": None,
    "prune_logs": job_logs.SECONDS,
    "prune_previews": None,
    "prune_requests": None,
    "prune_sources": LONGEST,
    "prune_ticks": TICK_DAYS * DAY,
    "prune_tokens": None,
    "prune_webhooks": None,
}


@dataclass(frozen=True, slots=True)
class Pruned:
    partitions: tuple[str, ...] = ()
    jobs: int = 0  # deleted row by row; rows of dropped partitions are not counted
    attempts: int = 0
    keys: int = 0
    busy: bool = False  # a partition could not be dropped, because another session held a lock


class Pace:
    """The size of the next batch: smaller if the last one took too long, larger if it was fast."""

    def __init__(self) -> None:
        self.size = BATCH

    def learn(self, took: float) -> None:
        """Adapt the size to the duration of the last batch, in seconds."""
        if took > BATCH_SECONDS:
            self.size = max(SMALLEST_BATCH, self.size // 2)
        elif took < BATCH_SECONDS / 4:
            self.size = min(BATCH, self.size * 2)

    async def rest(self, began: float) -> None:
        """Adapt the size to the duration of the batch that started at `began`, then sleep as long, so that other
        processes can write."""
        took = time.monotonic() - began
        self.learn(took)
        await asyncio.sleep(took)


async def prune(store: Store, keep: Keep | None = None) -> Pruned:
    """Delete finished jobs whose retention is over, then attempts whose job is gone, expired keys, and what OTHERS
    lists."""
    longest = max(keep or Keep())
    dropped, answers = await drop_partitions(store) if store.dialect.partitions else ([], set())
    # Locked partitions are left to the next call. A role that may not drop partitions deletes their rows instead.
    partitioned = store.dialect.partitions and "denied" not in answers
    jobs = await _delete(store, "prune_default" if partitioned else "prune_finished")
    attempts = await _prune_attempts(store, longest)
    keys = await _prune_keys(store)
    for statement, age in OTHERS.items():
        while await store.run(forget(statement, BATCH, longest if age is LONGEST else age)) == BATCH:
            await asyncio.sleep(BATCH_SECONDS)
    return Pruned(tuple(dropped), jobs, attempts, keys, busy="busy" in answers)


async def _delete(store: Store, statement: str) -> int:
    pace, total = Pace(), 0
    while True:
        began, size = time.monotonic(), pace.size
        old = bad_rows.next_ids("old_finished", n=size)
        gone = sum(await bad_rows.change_next(store, "prune", partial(forget, statement, size, None), old))
        total += gone
        if gone < size:
            return total
        await pace.rest(began)


async def _prune_attempts(store: Store, longest: float) -> int:
    pace, total, last = Pace(), 0, {"finished_at": EPOCH, "job_id": NO_ID, "attempt": 0}
    while True:
        began, size = time.monotonic(), pace.size
        rows = await store.run(_old("old_attempts", size, ago=-longest, **last))
        if gone := [(row.job_id, row.attempt) for row in rows if not row.has_job]:
            await store.run(_remove("prune_attempts", gone))
            total += len(gone)
        if len(rows) < size:
            return total
        last = {name: getattr(rows[-1], name) for name in last}
        await pace.rest(began)


async def _prune_keys(store: Store) -> int:
    pace, total = Pace(), 0
    while True:
        found = [tuple(row) for row in await store.run(_old("old_keys", KEYS_AT_ONCE))]
        more = len(found) == KEYS_AT_ONCE
        while found:
            began, size = time.monotonic(), pace.size
            total += await store.run(_remove("prune_keys", found[:size]))
            found = found[size:]
            await pace.rest(began)
        if not more:
            return total


@operation(single=True, repeatable=True)
def forget(statement: str, n: int, age: float | None = None, only: Sequence[str] | None = None) -> Steps[int]:
    """Delete up to `n` rows older than `age` seconds, or by the statement's own rule if `age` is None. If `only`
    has ids of jobs, delete those whose retention is over. Returns the number of deleted rows."""
    if only is not None:
        return len((yield Call("prune_these", asked=[(job_id,) for job_id in only])))
    return len((yield Call(statement, n=n, ago=None if age is None else -age)))


@operation(single=True, repeatable=True)
def _remove(statement: str, gone: Sequence[tuple[Any, ...]]) -> Steps[int]:
    return len((yield Call(statement, gone=gone)))


@operation(read=True)
def _old(statement: str, n: int, **given: Any) -> Steps[list[Row]]:
    """Up to `n` rows that may have to be deleted."""
    return (yield Call(statement, n=n, **given))
