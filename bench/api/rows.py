"""Fills a database with jobs of many owners, as a server that has run for a week has them."""

import asyncio
import json
import sqlite3
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from rowlock import Rowlock
from rowlock.store.upkeep.partitions import ensure_partitions

TASKS = 10
DAYS = 7
WAITING = 50  # of each 1,000 jobs; 30 more are dead, 20 cancelled, the rest has succeeded
FINISHED = (
    *("id", "task", "queue", "state", "priority", "args", "owner", "attempt", "max_attempts", "releases", "losses"),
    *("convictions", "run_after", "progress", "result", "error_code", "error_message", "last_worker", "created_at"),
    *("started_at", "finished_at", "updated_at", "drop_on"),
)
LIVE = (
    *("id", "task", "queue", "state", "ready", "priority", "args", "owner", "max_attempts", "run_after"),
    *("created_at", "updated_at"),
)
TRIGGERS = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"


def owner_of(number: int, owners: int) -> str:
    """Whose the job with this number is."""
    return f"owner-{number % owners}"


def task_of(number: int, owners: int) -> str:
    """Its task: another one for each of an owner's jobs in turn."""
    return f"task-{number // owners % TASKS}"


def fill(url: str, jobs: int, owners: int) -> list[tuple[str, str]]:
    """As many jobs, and of some of them (id, owner)."""
    asyncio.run(_prepare(url))
    rows = _rows(jobs, owners)
    if url.startswith("sqlite"):
        _fill_sqlite(url.removeprefix("sqlite:///"), rows)
    else:
        _fill_postgres(url, rows)
    step = max(1, jobs // 2_000)
    return [(_id(number, jobs), owner_of(number, owners)) for number in range(0, jobs, step)]


async def _prepare(url: str) -> None:
    app = Rowlock(url)
    await app.migrate()
    async with app:
        await ensure_partitions(await app.store())


def _id(number: int, jobs: int) -> str:
    """A UUIDv7 whose time tells the number."""
    made = int((_began() + number * DAYS * 86_400 / jobs) * 1000)
    return str(uuid.UUID(int=made << 80 | 7 << 76 | (number & 0xFFF) << 64 | 2 << 62 | number))


def _began() -> float:
    return datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0).timestamp() - DAYS * 86_400


def _rows(jobs: int, owners: int) -> Iterator[tuple[bool, dict[str, Any]]]:
    """Whether a job has finished, and its row."""
    tomorrow, began = datetime.now(UTC).date() + timedelta(1), _began()
    args, result = json.dumps({"size": 3, "name": "film"}), json.dumps({"frames": 1200, "codec": "h264"})
    for number in range(jobs):
        kind, at = number * 7919 % 1000, began + number * DAYS * 86_400 / jobs
        row: dict[str, Any] = {
            "id": _id(number, jobs),
            "task": task_of(number, owners),
            "queue": "default",
            "priority": 0,
            "args": args,
            "owner": owner_of(number, owners),
            "max_attempts": 5,
            "run_after": at,
            "created_at": at,
            "updated_at": at,
        }
        if kind < WAITING:
            yield False, row | {"state": "queued", "ready": True}
            continue
        state = "dead" if kind < WAITING + 30 else "cancelled" if kind < WAITING + 50 else "succeeded"
        row |= dict.fromkeys(("releases", "losses", "convictions"), 0)
        row |= {"state": state, "attempt": 1, "last_worker": "bench", "drop_on": str(tomorrow + timedelta(number % 7))}
        row |= {"started_at": at + 0.1, "finished_at": at + 0.5, "progress": 100 if state == "succeeded" else 40}
        failed = state == "dead"
        row |= {"result": result if state == "succeeded" else None, "error_code": "BROKEN" if failed else None}
        yield True, row | {"error_message": "it is broken" if failed else None}


def _fill_sqlite(file: str, rows: Iterator[tuple[bool, dict[str, Any]]]) -> None:
    with closing(sqlite3.connect(file)) as database:
        triggers = database.execute(TRIGGERS).fetchall()  # each would write an event that is long forgotten
        for name, _ in triggers:
            database.execute(f"DROP TRIGGER {name}")
        into = "INSERT INTO rowlock_{} ({}) VALUES ({})"
        statements = {
            finished: into.format(table, ", ".join(columns), ", ".join("?" * len(columns)))
            for finished, table, columns in ((True, "jobs_finished", FINISHED), (False, "jobs_live", LIVE))
        }
        for finished, row in rows:
            columns = FINISHED if finished else LIVE
            database.execute(statements[finished], [row[column] for column in columns])
        for _, text in triggers:
            database.execute(text)
        database.execute("ANALYZE")
        database.commit()


def _fill_postgres(url: str, rows: Iterator[tuple[bool, dict[str, Any]]]) -> None:
    times = {"run_after", "created_at", "updated_at", "started_at", "finished_at"}

    def value(row: dict[str, Any], column: str) -> Any:
        found = row[column]
        return datetime.fromtimestamp(found, UTC) if column in times else found

    live: list[dict[str, Any]] = []
    with psycopg.connect(url) as connection:
        # Without triggers: each would write an event that is long forgotten.
        connection.execute("SET session_replication_role = replica")
        with connection.cursor().copy(f"COPY rowlock.jobs_finished ({', '.join(FINISHED)}) FROM STDIN") as copy:
            for finished, row in rows:
                if finished:
                    copy.write_row([value(row, column) for column in FINISHED])
                else:
                    live.append(row)
        with connection.cursor().copy(f"COPY rowlock.jobs_live ({', '.join(LIVE)}) FROM STDIN") as copy:
            for row in live:
                copy.write_row([value(row, column) for column in LIVE])
        connection.commit()
        connection.autocommit = True
        connection.execute("VACUUM ANALYZE")


if __name__ == "__main__":
    import sys

    began = time.monotonic()
    fill(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    print(f"{time.monotonic() - began:.0f} s")
