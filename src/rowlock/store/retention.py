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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from rowlock.core.errors import StoreError
from rowlock.core.policy import DAY
from rowlock.store import aside, audit, batches, bulk, events, job_logs, requests, schedules, sources, tokens, webhooks
from rowlock.store.claim import NO_ID
from rowlock.store.engines.engine import Store
from rowlock.store.engines.operation import Call, Row, Steps, operation
from rowlock.store.jobs import Keep

# The longest default keep is 30 days. Two more, so that a day's partition is there before its first row.
DAYS_AHEAD = 32
BATCH = 1_000
TICK_DAYS = 31  # how long rows of fired ticks are kept; older ticks cannot fire again: `next_tick` is later
SMALLEST_BATCH = 20
BATCH_SECONDS = 0.05
KEYS_AT_ONCE = 10_000  # per search, which reads the whole table; they are deleted in batches
LOCK_TIMEOUT = "200ms"  # statements that queue behind ours for the lock wait as long as it does
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Errors of PostgreSQL that are expected, by SQLSTATE.
REFUSALS = {
    "42501": "denied",  # the role lacks the right
    "55P03": "busy",  # another session holds the lock
    "40P01": "busy",  # deadlock
    "23514": "taken",  # a row for this day has just come into the default partition
    "42P07": "exists",  # a table of this name is there
    "42710": "exists",  # the table's row type exists
    "23505": "exists",  # another process has just created it
}


@dataclass(frozen=True, slots=True)
class Partitions:
    """What `ensure_partitions` did."""

    created: tuple[str, ...] = ()
    skipped: tuple[date, ...] = ()  # days that stay in the default partition, because it has rows for them
    allowed: bool = True  # False: this role may not create partitions
    busy: bool = False  # another session held a lock; the next call goes on


@dataclass(frozen=True, slots=True)
class Pruned:
    """What `prune` removed."""

    partitions: tuple[str, ...] = ()
    jobs: int = 0  # one by one; a partition's rows are not counted
    attempts: int = 0
    keys: int = 0
    busy: bool = False  # a partition is still there because another session held a lock


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
        """Adapt to the batch that began at this moment, then sleep for as long as it took: other writers get their
        turn."""
        took = time.monotonic() - began
        self.learn(took)
        await asyncio.sleep(took)


async def first_partitions(store: Store, keep: Keep) -> Partitions:
    """Make the partitions for jobs that finish today. Call it before a first job finishes: once the default partition
    has a row of a day, that day can have no partition, and making any other one reads the whole default partition."""
    return await _ensure(store, sorted({int(seconds / DAY) + n for seconds in keep for n in (0, 1)}))


async def ensure_partitions(store: Store, days_ahead: int = DAYS_AHEAD) -> Partitions:
    """Make partitions for jobs that are kept for up to `days_ahead` days. Several processes may call it at once."""
    return await _ensure(store, range(days_ahead + 1))


async def _ensure(store: Store, ahead: Iterable[int]) -> Partitions:
    if not store.dialect.partitions:
        return Partitions()
    first, there = await store.run(_days())
    missing = [day for n in ahead if _name(day := first + timedelta(n)) not in there]
    taken = await store.run(_default_days(first)) if missing else []
    created, skipped, answer = [], [], ""
    for day in missing:
        # With rows in the default partition it cannot be done; they are deleted when their day has come.
        answer = "taken" if day in taken else await _create(store, day)
        if answer == "exists":  # made by another process meanwhile, unless it is no partition at all
            answer = "there" if _name(day) in (await store.run(_days()))[1] else "taken"
        if answer == "created":
            created.append(_name(day))
        elif answer == "taken":
            skipped.append(day)
        elif answer in ("denied", "busy"):
            break
    return Partitions(tuple(created), tuple(skipped), allowed=answer != "denied", busy=answer == "busy")


async def _create(store: Store, day: date) -> str:
    name = _name(day)
    # Not CREATE … PARTITION OF, which shuts the finished jobs to readers too. ATTACH alone would let writers go on, but
    # one that is on its way into the default partition then fails; so they wait.
    return await _change(
        store,
        f"CREATE TABLE rowlock.{name} (LIKE rowlock.jobs_finished INCLUDING ALL);"
        " LOCK TABLE ONLY rowlock.jobs_finished IN SHARE ROW EXCLUSIVE MODE;"
        f" ALTER TABLE rowlock.jobs_finished ATTACH PARTITION rowlock.{name}"
        f" FOR VALUES FROM ('{day}') TO ('{day + timedelta(1)}');",
        "created",
    )


async def _change(store: Store, statements: str, done: str) -> str:
    """Change the schema in one statement and wait for its locks only briefly. One statement, because a worker that
    froze between two would hold locks that every settle waits for."""
    try:
        await store.execute(
            f"DO $$ BEGIN PERFORM set_config('lock_timeout', '{LOCK_TIMEOUT}', true); {statements} END $$"
        )
    except StoreError as error:
        return _refusal(error)
    return done


async def prune(store: Store, keep: Keep | None = None) -> Pruned:
    """Delete finished jobs whose retention is over, then attempts whose job is gone, and expired keys."""
    longest = max(keep or Keep())
    dropped, answers = await _drop_partitions(store) if store.dialect.partitions else ([], set())
    # A partition that is locked now is left for the next call, which drops it as a whole.
    partitioned = store.dialect.partitions and "denied" not in answers
    jobs = await _delete(store, "prune_default" if partitioned else "prune_finished")
    attempts = await _prune_attempts(store, longest)
    keys = await _prune_keys(store)
    for forget, age in ((batches.prune, longest), (sources.prune, longest), (schedules.prune, TICK_DAYS * DAY)):
        while await store.run(forget(age, BATCH)) == BATCH:
            await asyncio.sleep(BATCH_SECONDS)
    for forget_old in (
        events.prune,
        requests.prune,
        tokens.prune,
        webhooks.prune,
        audit.prune,
        bulk.prune,
        job_logs.prune,
    ):
        while await store.run(forget_old(BATCH)) == BATCH:
            await asyncio.sleep(BATCH_SECONDS)
    return Pruned(tuple(dropped), jobs, attempts, keys, busy="busy" in answers)


async def _drop_partitions(store: Store) -> tuple[list[str], set[str]]:
    first, there = await store.run(_days())
    dropped, answers = [], set()
    for name in sorted(there):
        if name < _name(first):
            answers.add(answer := await _drop(store, name))
            if answer == "dropped":
                dropped.append(name)
    return dropped, answers


async def _drop(store: Store, name: str) -> str:
    return await _change(store, f"DROP TABLE IF EXISTS rowlock.{name};", "dropped")


def _refusal(error: Exception) -> str:
    for cause in (error, error.__cause__):  # the driver's own error has the code
        if answer := REFUSALS.get(getattr(cause, "sqlstate", None) or ""):
            return answer
    raise error


async def _delete(store: Store, statement: str) -> int:
    pace, total = Pace(), 0
    while True:
        began, size = time.monotonic(), pace.size
        answers = await aside.all_or_each(
            store, "prune", _batch(statement, size), _old_finished(size), lambda job_id: _batch("prune_one", 1, job_id)
        )
        gone = sum(answers)
        total += gone
        if gone < size:
            return total
        await pace.rest(began)


async def _prune_attempts(store: Store, longest: float) -> int:
    pace, total, last = Pace(), 0, (EPOCH, NO_ID, 0)
    while True:
        began, size = time.monotonic(), pace.size
        rows = await store.run(_old_attempts(longest, last, size))
        if gone := [(row.job_id, row.attempt) for row in rows if not row.has_job]:
            await store.run(_remove("prune_attempts", gone))
            total += len(gone)
        if len(rows) < size:
            return total
        last = (rows[-1].finished_at, rows[-1].job_id, rows[-1].attempt)
        await pace.rest(began)


async def _prune_keys(store: Store) -> int:
    pace, total = Pace(), 0
    while True:
        found = [tuple(row) for row in await store.run(_old_keys())]
        more = len(found) == KEYS_AT_ONCE
        while found:
            began, size = time.monotonic(), pace.size
            total += await store.run(_remove("prune_keys", found[:size]))
            found = found[size:]
            await pace.rest(began)
        if not more:
            return total


def _name(day: date) -> str:
    return f"jobs_finished_{day:%Y%m%d}"


@operation(read=True)
def _days() -> Steps[tuple[date, set[str]]]:
    """Tomorrow, and the names of the day partitions."""
    (tomorrow,) = yield Call("tomorrow")
    names = {row.relname for row in (yield Call("partitions"))}
    return date.fromisoformat(tomorrow.day), {name for name in names if name.removeprefix("jobs_finished_").isdigit()}


@operation(read=True)
def _default_days(first: date) -> Steps[list[date]]:
    """Days from `first` on that have rows in the default partition."""
    days = [row.day for row in (yield Call("default_days", first=str(first)))]
    return [date.fromisoformat(day) for day in days if len(day) == len("2026-01-01")]  # none of the year 20000


@operation(single=True, repeatable=True)
def _batch(statement: str, n: int, job_id: str | None = None) -> Steps[int]:
    """Delete up to `n` rows, or that of one job."""
    return len((yield Call(statement, n=n, job_id=job_id)))


@operation(read=True)
def _old_finished(n: int) -> Steps[list[str]]:
    """Jobs whose day has come."""
    return [row.id for row in (yield Call("old_finished", n=n))]


@operation(single=True, repeatable=True)
def _remove(statement: str, gone: Sequence[tuple[Any, ...]]) -> Steps[int]:
    """Delete these rows."""
    return len((yield Call(statement, gone=gone)))


@operation(read=True)
def _old_attempts(longest: float, last: tuple[Any, ...], n: int) -> Steps[list[Row]]:
    """The next `n` old attempts after `last`, and whether their job is still there."""
    finished_at, job_id, attempt = last
    return (yield Call("old_attempts", ago=-longest, finished_at=finished_at, job_id=job_id, attempt=attempt, n=n))


@operation(read=True)
def _old_keys() -> Steps[list[Row]]:
    """Keys that have run out."""
    return (yield Call("old_keys", n=KEYS_AT_ONCE))
