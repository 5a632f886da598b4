"""What the database does alone: the least SQL that a queue needs, without anything around it.

A yardstick for `rowlock bench`, so that its figures mean the same on every machine: one table of jobs and one of
finished ones, a claim of 500 by one statement, and their move by another.
"""

from __future__ import annotations

import asyncio
import json
import time
from abc import ABC, abstractmethod
from typing import Any

BATCH = 500
ARGS = '{"n":0}'

TABLES = """
CREATE TABLE raw_jobs (id {serial}, args {text} NOT NULL, queue {text} NOT NULL DEFAULT 'default',
    priority integer NOT NULL DEFAULT 0, state {text} NOT NULL DEFAULT 'ready', worker {text}, taken_at {time});
CREATE INDEX raw_ready ON raw_jobs (queue, priority, id) WHERE state = 'ready';
CREATE TABLE raw_finished (id bigint PRIMARY KEY, args {text} NOT NULL, finished_at {time} NOT NULL);
"""
READY = "SELECT id FROM raw_jobs WHERE state = 'ready' AND queue = 'default' ORDER BY priority, id LIMIT 500"


class Raw(ABC):
    """Each method answers the seconds it took."""

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def single(self, jobs: int) -> float:
        """Insert one at a time, each with its own commit."""

    @abstractmethod
    async def bulk(self, jobs: int) -> float:
        """Insert all in one statement."""

    @abstractmethod
    async def drain(self, jobs: int) -> float:
        """Take and finish all, 500 at a time."""


class RawPostgres(Raw):
    """Two connections, so that one batch is finished while the next is taken."""

    CLAIM = f"""
        UPDATE raw_jobs SET state = 'running', worker = 'raw', taken_at = now()
        WHERE id = ANY(ARRAY({READY} FOR UPDATE SKIP LOCKED)) RETURNING id, args"""
    FINISH = """
        WITH gone AS (DELETE FROM raw_jobs WHERE id = ANY($1::bigint[]) RETURNING id, args)
        INSERT INTO raw_finished SELECT id, args, now() FROM gone"""

    def __init__(self, taking: Any, finishing: Any) -> None:
        self._taking, self._finishing = taking, finishing

    @classmethod
    async def open(cls, url: str) -> RawPostgres:
        """Connect and make the tables."""
        import asyncpg

        raw = cls(await asyncpg.connect(url), await asyncpg.connect(url))
        await raw._taking.execute(TABLES.format(serial="bigserial PRIMARY KEY", text="text", time="timestamptz"))
        return raw

    async def close(self) -> None:
        """Disconnect."""
        await self._taking.close()
        await self._finishing.close()

    async def single(self, jobs: int) -> float:
        insert = await self._taking.prepare("INSERT INTO raw_jobs (args) VALUES ($1)")
        began = time.perf_counter()
        for _ in range(jobs):
            await insert.fetch(ARGS)
        return time.perf_counter() - began

    async def bulk(self, jobs: int) -> float:
        began = time.perf_counter()
        await self._taking.execute("INSERT INTO raw_jobs (args) SELECT unnest($1::text[])", [ARGS] * jobs)
        return time.perf_counter() - began

    async def drain(self, jobs: int) -> float:
        began = time.perf_counter()
        finishing: asyncio.Task[Any] | None = None
        while rows := await self._taking.fetch(self.CLAIM):
            if finishing:
                await finishing
            finishing = asyncio.ensure_future(self._finishing.execute(self.FINISH, [row[0] for row in rows]))
        if finishing:
            await finishing
        return time.perf_counter() - began


class RawSqlite(Raw):
    """One connection; a batch is finished in the commit that takes the next."""

    CLAIM = f"UPDATE raw_jobs SET state = 'running', worker = 'raw', taken_at = 0 WHERE id IN ({READY}) RETURNING id"
    COPY = "INSERT INTO raw_finished SELECT id, args, 0 FROM raw_jobs WHERE id IN (SELECT value FROM json_each(?))"
    REMOVE = "DELETE FROM raw_jobs WHERE id IN (SELECT value FROM json_each(?))"

    def __init__(self, file: str) -> None:
        import apsw

        self._connection = apsw.Connection(file)
        for pragma in ("journal_mode=WAL", "synchronous=FULL"):
            self._connection.execute(f"PRAGMA {pragma}").fetchall()
        self._connection.execute(TABLES.format(serial="integer PRIMARY KEY", text="text", time="real"))

    async def close(self) -> None:
        """Close the file."""
        self._connection.close()

    async def single(self, jobs: int) -> float:
        began = time.perf_counter()
        for _ in range(jobs):
            self._connection.execute("INSERT INTO raw_jobs (args) VALUES (?)", (ARGS,))
        return time.perf_counter() - began

    async def bulk(self, jobs: int) -> float:
        began = time.perf_counter()
        with self._connection:
            self._connection.executemany("INSERT INTO raw_jobs (args) VALUES (?)", [(ARGS,)] * jobs)
        return time.perf_counter() - began

    async def drain(self, jobs: int) -> float:
        began, taken = time.perf_counter(), list[int]()
        while True:
            with self._connection:
                done = json.dumps(taken)
                taken = [int(str(row[0])) for row in self._connection.execute(self.CLAIM)]
                self._connection.execute(self.COPY, (done,))
                self._connection.execute(self.REMOVE, (done,))
            if not taken:
                return time.perf_counter() - began
