"""Day partitions of the finished jobs, on PostgreSQL.

The column `drop_on` of a finished job is the first day on which it may be deleted. Each such day has a partition, so
that one DROP TABLE deletes all of its rows, however many there are. Rows whose day has no partition (because the role
may not create tables, or the job is kept unusually long) are in the default partition. All functions here wait only
briefly for locks; the next call retries.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, timedelta

from rowlock.core.errors import StoreError
from rowlock.core.policy import DAY
from rowlock.store.engine.operation import Call, Steps, operation
from rowlock.store.engine.store import Store
from rowlock.store.jobs.settle import Keep

# By default jobs are kept for at most 30 days. Two more, so that a day's partition exists before its first row.
DAYS_AHEAD = 32
LOCK_TIMEOUT = "200ms"  # short, because later statements of other sessions queue behind ours

# Errors of PostgreSQL that are expected, by SQLSTATE.
REFUSALS = {
    "42501": "denied",  # the role lacks the right
    "55P03": "busy",  # another session holds the lock
    "40P01": "busy",  # deadlock
    "23514": "taken",  # a row of this day has just been inserted into the default partition
    "42P07": "exists",  # a table has this name
    "42710": "exists",  # the table's row type exists
    "23505": "exists",  # another process has just created it
}


Partitions = dict[date, str]  # the result for each day that had no partition


async def first_partitions(store: Store, keep: Keep) -> Partitions:
    """Create the partitions for jobs that finish today. Must be called before the first job finishes: once the default
    partition has a row of some day, that day can't get a partition, and creating another one reads all of its rows."""
    return await _ensure(store, sorted({int(seconds / DAY) + n for seconds in keep for n in (0, 1)}))


async def ensure_partitions(store: Store, days_ahead: int = DAYS_AHEAD) -> Partitions:
    """Create partitions for jobs that are kept for up to `days_ahead` days. Several processes may call it at once."""
    return await _ensure(store, range(days_ahead + 1))


async def _ensure(store: Store, ahead: Iterable[int]) -> Partitions:
    made: Partitions = {}
    if not store.dialect.partitions:
        return made
    first, there = await store.run(_days())
    missing = [day for n in ahead if _name(day := first + timedelta(n)) not in there]
    taken = await store.run(_default_days(first)) if missing else []
    for day in missing:
        # If the default partition has rows of the day, they will be deleted one by one.
        answer = "taken" if day in taken else await _create(store, day)
        if answer == "exists":  # another process has created the partition, or some other table has its name
            answer = "there" if _name(day) in (await store.run(_days()))[1] else "taken"
        made[day] = answer
        if answer in ("denied", "busy"):  # the next call tries again
            break
    return made


async def _create(store: Store, day: date) -> str:
    name = _name(day)
    # CREATE … PARTITION OF would make readers of jobs_finished wait. ATTACH PARTITION alone would let writers go on,
    # but a concurrent insert into the default partition would then fail. So LOCK TABLE makes writers wait, not readers.
    return await _change(
        store,
        f"CREATE TABLE rowlock.{name} (LIKE rowlock.jobs_finished INCLUDING ALL);"
        " LOCK TABLE ONLY rowlock.jobs_finished IN SHARE ROW EXCLUSIVE MODE;"
        f" ALTER TABLE rowlock.jobs_finished ATTACH PARTITION rowlock.{name}"
        f" FOR VALUES FROM ('{day}') TO ('{day + timedelta(1)}');",
        "created",
    )


async def drop_partitions(store: Store) -> tuple[list[str], set[str]]:
    """Drop the partitions whose day has come. Returns their names, and the results of all tries."""
    first, there = await store.run(_days())
    dropped, answers = [], set()
    for name in sorted(there):
        if name < _name(first):
            answers.add(answer := await _change(store, f"DROP TABLE IF EXISTS rowlock.{name};", "dropped"))
            if answer == "dropped":
                dropped.append(name)
    return dropped, answers


async def _change(store: Store, statements: str, done: str) -> str:
    """Change the schema, waiting only briefly for locks. Returns `done`, or why it was refused. Runs as one statement,
    because a worker that froze between two statements would hold locks that every settle waits for."""
    try:
        await store.execute(
            f"DO $$ BEGIN PERFORM set_config('lock_timeout', '{LOCK_TIMEOUT}', true); {statements} END $$"
        )
    except StoreError as error:
        return _refusal(error)
    return done


def _refusal(error: Exception) -> str:
    for cause in (error, error.__cause__):  # the driver's error has the SQLSTATE
        if answer := REFUSALS.get(getattr(cause, "sqlstate", None) or ""):
            return answer
    raise error


def _name(day: date) -> str:
    return f"jobs_finished_{day:%Y%m%d}"


@operation(read=True)
def _days() -> Steps[tuple[date, set[str]]]:
    """Tomorrow's date, and the names of the day partitions."""
    (tomorrow,) = yield Call("tomorrow")
    names = {row.relname for row in (yield Call("partitions"))}
    return date.fromisoformat(tomorrow.day), {name for name in names if name.removeprefix("jobs_finished_").isdigit()}


@operation(read=True)
def _default_days(first: date) -> Steps[list[date]]:
    """Days from `first` on that have rows in the default partition."""
    days = [row.day for row in (yield Call("default_days", first=str(first)))]
    return [date.fromisoformat(day) for day in days if len(day) == len("2026-01-01")]  # skip years after 9999
