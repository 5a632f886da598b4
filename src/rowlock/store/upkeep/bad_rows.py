"""Sets aside rows that make a statement fail, so that one bad row does not stop the others of its batch: the
statement is repeated for each row alone.

The job's row stays unchanged. A row in `set_aside` records what failed and why; `doctor`, `stats` and `explain` show
it, and sweeps skip the job. After an hour it is tried again, because an operator may have mended the row. The exception
is a job whose outcome could not be stored: it would run a second time, so it waits until its row in `set_aside` is
deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from rowlock.core.errors import SchemaError, StorageFull, StoreUnavailable, TransactionConflict
from rowlock.store.engine.operation import Call, Operation, Steps, operation
from rowlock.store.engine.records import record
from rowlock.store.engine.store import Runs, Store
from rowlock.store.jobs.claim import Undone, ready_ids, try_claim

T = TypeVar("T")
log = logging.getLogger("rowlock.store")

AGAIN_SECONDS = 3600.0
ERROR_LIMIT = 500
OUTAGE = (StoreUnavailable, StorageFull, SchemaError, TransactionConflict)  # no row is to blame for these


@dataclass(frozen=True, slots=True)
class Aside:
    """A job or batch that was set aside: the operation that failed for it, and why."""

    id: str
    doing: str  # claim, promote, reclaim, expire, settle, prune; end (of a batch)
    error: str
    times: int
    since: datetime
    again_at: datetime | None  # when it is tried again; None: not before its row in `set_aside` is deleted


async def all_or_each(
    store: Store, doing: str, batch: Operation[T], ids: Operation[list[str]], one: Callable[[str], Operation[T]]
) -> list[T]:
    """Run `batch`; if it fails, run `one` for each of the rows `ids`, and set aside the rows for which that fails.
    Returns the results."""
    try:
        return [await store.run(batch)]
    except OUTAGE:
        raise
    except Exception as error:
        log.warning("%s failed for a batch (%s); doing it for each row alone", doing, error)
    done = []
    for row_id in await store.run(ids):
        try:
            done.append(await store.run(one(row_id)))
        except OUTAGE:
            raise
        except Exception as error:
            await put(store, row_id, doing, error)
    return done


async def put_unclaimable(store: Store, lanes: Sequence[tuple[str, str]], page: int = 1000) -> int:
    """Set aside jobs of these (queue, task) whose rows make a claim fail; returns how many. Reads page by page, because
    thousands of good rows, such as those of a paused source, may lie before the bad one."""
    count, ids = 0, await store.run(ready_ids(lanes, page))
    while ids and not count:
        for job_id, error in (await failing(store, ids, try_claim)).items():
            count += await put(store, job_id, "claim", error)
        ids = await store.run(ready_ids(lanes, page, ids[-1]))
    return count


async def failing(
    store: Runs, ids: Sequence[str], trial: Callable[[Sequence[str]], Operation[None]]
) -> dict[str, Exception]:
    """The rows for which `trial` fails, with the error of each: halves of `ids` are tried, and halves of these. A trial
    that works raises Undone, which rolls it back."""
    try:
        await store.run(trial(ids))
    except Undone:
        return {}
    except OUTAGE:
        raise
    except Exception as error:
        if len(ids) == 1:
            return {ids[0]: error}
        middle = len(ids) // 2
        return await failing(store, ids[:middle], trial) | await failing(store, ids[middle:], trial)
    raise AssertionError("unreachable")


async def put(store: Store, row_id: str, doing: str, error: Exception, again: float | None = AGAIN_SECONDS) -> bool:
    """Set a row aside, and log that the first time; False if the row cannot be set aside either."""
    reason = f"{type(error).__name__}: {error}"[:ERROR_LIMIT].replace("\0", "")
    try:
        times = await store.run(_put(row_id, doing, reason, again))
    except OUTAGE:
        raise
    except Exception as failure:
        log.error("%s cannot be done for %s (%s), and it cannot be set aside: %s", doing, row_id, reason, failure)
        return False
    if times == 1:
        log.error("%s cannot be done for %s, which is set aside: %s; see: rowlock doctor", doing, row_id, reason)
    return True


@operation()
def _put(row_id: str, doing: str, error: str, again: float | None) -> Steps[int]:
    if doing == "claim":
        yield Call("hold_back", job_id=row_id)
    rows = yield Call("put_aside", job_id=row_id, doing=doing, error=error, again=again)
    return int(rows[0].times)


@operation(read=True)
def listed(n: int) -> Steps[list[Aside]]:
    """Rows that are set aside, newest first."""
    return [record(Aside, row) for row in (yield Call("list_aside", n=n))]


@operation(repeatable=True)
def forget() -> Steps[None]:
    """Remove rows of `set_aside` whose job or batch has gone on since."""
    yield Call("forget_aside")


def found(row_id: str) -> Steps[Aside | None]:
    """The row of one job or batch that is set aside, or None, as part of another operation."""
    rows = yield Call("one_aside", job_id=row_id)
    return record(Aside, rows[0]) if rows else None
