"""Rows that make a statement fail: find them by halving the batch, and set them aside so that the other rows go on.

The bad row stays unchanged. A row in `set_aside` records the operation that failed and the error; `doctor`, `stats` and
`explain` show it, and sweeps skip the job. After an hour it is tried again, because an operator may have repaired it. A
job whose outcome could not be stored is the exception: it would run twice, so it waits until its row in `set_aside` is
deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from rowlock.core.errors import SchemaError, StorageFull, StoreUnavailable, TransactionConflict
from rowlock.store.engine.operation import Call, Operation, Steps, operation
from rowlock.store.engine.records import record
from rowlock.store.engine.store import Runs, Store
from rowlock.store.jobs.claim import Undone, ready_ids, try_claim

T = TypeVar("T")
Item = TypeVar("Item")
log = logging.getLogger("rowlock.store")

AGAIN_SECONDS = 3600.0
ERROR_LIMIT = 500
OUTAGE = (StoreUnavailable, StorageFull, SchemaError, TransactionConflict)  # errors that no single row has caused


@dataclass(frozen=True, slots=True)
class Aside:
    """A job or batch that was set aside: the operation that failed for it, and why."""

    id: str
    doing: str  # claim, promote, reclaim, expire, settle, prune; end (of a batch)
    error: str
    times: int
    since: datetime
    again_at: datetime | None  # when to try again; None: not until its row in `set_aside` is deleted


async def in_halves(
    items: Sequence[Item], change: Callable[[Sequence[Item]], Awaitable[T]]
) -> tuple[list[T], list[tuple[Item, Exception]]]:
    """Change these items. If that fails, change each half of them, and so on. Returns the results, and the single items
    that can't be changed, with their errors."""
    if not items:
        return [], []
    try:
        return [await change(items)], []
    except OUTAGE:
        raise
    except Exception as error:
        if len(items) == 1:
            return [], [(items[0], error)]
    middle = len(items) // 2
    done, failed = await in_halves(items[:middle], change)
    more_done, more_failed = await in_halves(items[middle:], change)
    return done + more_done, failed + more_failed


async def change_all(
    store: Store, doing: str, ids: Sequence[str], change: Callable[[Sequence[str]], Operation[T]]
) -> list[T]:
    """Change these rows, and set aside each row that can't be changed. Returns the results."""
    done, failed = await in_halves(ids, lambda part: store.run(change(part)))
    for row_id, error in failed:
        await put(store, row_id, doing, error)
    return done


async def change_next(
    store: Store, doing: str, change: Callable[[Sequence[str] | None], Operation[T]], ids: Operation[list[str]]
) -> list[T]:
    """Run `change(None)`, which changes the next rows that it finds. If it fails, change the rows that `ids` finds, and
    set aside each row that can't be changed. Returns the results."""
    try:
        return [await store.run(change(None))]
    except OUTAGE:
        raise
    except Exception as error:
        log.warning("%s failed for a batch (%s); looking for the row that made it fail", doing, error)
    found = await store.run(ids)
    return await change_all(store, doing, found, change)


@operation()
def next_ids(statement: str, **values: Any) -> Steps[list[str]]:
    """The ids of the rows that a batch operation would change next: the first column of what `statement` returns."""
    return [row[0] for row in (yield Call(statement, **values))]


async def attempt(store: Runs, trial: Operation[None]) -> None:
    """Run a trial operation. If it works, it raises `Undone`, which rolls it back and is swallowed here."""
    with suppress(Undone):
        await store.run(trial)


async def put_unclaimable(store: Store, lanes: Sequence[tuple[str, str]], page: int = 1000) -> int:
    """Set aside jobs of these (queue, task) pairs whose rows make a claim fail; returns how many. Reads page by page,
    because thousands of good rows, such as those of a paused source, may precede the bad one."""
    count, ids = 0, await store.run(ready_ids(lanes, page))
    while ids and not count:
        _, failed = await in_halves(ids, lambda part: attempt(store, try_claim(part)))
        for job_id, error in failed:
            count += await put(store, job_id, "claim", error)
        ids = await store.run(ready_ids(lanes, page, ids[-1]))
    return count


async def put(store: Store, row_id: str, doing: str, error: Exception, again: float | None = AGAIN_SECONDS) -> bool:
    """Set a row aside and log it, but only the first time. False if even setting it aside fails."""
    reason = f"{type(error).__name__}: {error}"[:ERROR_LIMIT].replace("\0", "")
    try:
        times = await store.run(_put(row_id, doing, reason, again))
    except OUTAGE:
        raise
    except Exception as failure:
        log.error("%s fails for %s (%s), which cannot be set aside either: %s", doing, row_id, reason, failure)
        return False
    if times == 1:
        log.error("%s fails for %s, which is set aside: %s; see: rowlock doctor", doing, row_id, reason)
    return True


@operation()
def _put(row_id: str, doing: str, error: str, again: float | None) -> Steps[int]:
    if doing == "claim":
        yield Call("hold_back", job_id=row_id)
    rows = yield Call("put_aside", job_id=row_id, doing=doing, error=error, again=again)
    return int(rows[0].times)


@operation(read=True)
def listed(n: int) -> Steps[list[Aside]]:
    """The rows that are set aside, newest first."""
    return [record(Aside, row) for row in (yield Call("list_aside", n=n))]


@operation(repeatable=True)
def forget() -> Steps[None]:
    """Delete rows of `set_aside` whose job or batch has moved on since."""
    yield Call("forget_aside")


def found(row_id: str) -> Steps[Aside | None]:
    """The `set_aside` row of a job or batch, if it has one. Part of other operations."""
    rows = yield Call("one_aside", job_id=row_id)
    return record(Aside, rows[0]) if rows else None
