"""Bare SQL: the least that a queue needs. `rowlock bench` compares Rowlock with it.

It has one table of jobs and one of finished jobs; one statement claims 500 jobs and another moves them to the second
table. The ratio of Rowlock's figures to these can be compared between machines.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

BATCH = 500
ARGS = '{"n":0}'

TABLES = """
CREATE TABLE raw_jobs (id {serial}, args {text} NOT NULL, queue {text} NOT NULL DEFAULT 'default',
    priority integer NOT NULL DEFAULT 0, state {text} NOT NULL DEFAULT 'ready', worker {text}, claimed_at {time});
CREATE INDEX raw_ready ON raw_jobs (queue, priority, id) WHERE state = 'ready';
CREATE TABLE raw_finished (id bigint PRIMARY KEY, args {text} NOT NULL, finished_at {time} NOT NULL);
"""
READY = "SELECT id FROM raw_jobs WHERE state = 'ready' AND queue = 'default' ORDER BY priority, id LIMIT 500"


class RawPostgres:
    """Two connections, so that one batch is finished while the next is claimed. Each measure returns its seconds."""

    CLAIM = f"""
        UPDATE raw_jobs SET state = 'running', worker = 'raw', claimed_at = now()
        WHERE id = ANY(ARRAY({READY} FOR UPDATE SKIP LOCKED)) RETURNING id, args"""
    FINISH = """
        WITH gone AS (DELETE FROM raw_jobs WHERE id = ANY($1::bigint[]) RETURNING id, args)
        INSERT INTO raw_finished SELECT id, args, now() FROM gone"""

    def __init__(self, claiming: Any, finishing: Any) -> None:
        self._claiming, self._finishing = claiming, finishing

    @classmethod
    async def open(cls, url: str) -> RawPostgres:
        """Connect and create the tables."""
        import asyncpg

        raw = cls(await asyncpg.connect(url), await asyncpg.connect(url))
        await raw._claiming.execute(TABLES.format(serial="bigserial PRIMARY KEY", text="text", time="timestamptz"))
        return raw

    async def close(self) -> None:
        """Disconnect."""
        await self._claiming.close()
        await self._finishing.close()

    async def single(self, jobs: int) -> float:
        """Insert one at a time, each with its own commit."""
        insert = await self._claiming.prepare("INSERT INTO raw_jobs (args) VALUES ($1)")
        began = time.perf_counter()
        for _ in range(jobs):
            await insert.fetch(ARGS)
        return time.perf_counter() - began

    async def bulk(self, jobs: int) -> float:
        """Insert all in one statement."""
        began = time.perf_counter()
        await self._claiming.execute("INSERT INTO raw_jobs (args) SELECT unnest($1::text[])", [ARGS] * jobs)
        return time.perf_counter() - began

    async def drain(self, jobs: int) -> float:
        """Claim and finish all, 500 at a time."""
        began = time.perf_counter()
        finishing: asyncio.Task[Any] | None = None
        while rows := await self._claiming.fetch(self.CLAIM):
            if finishing:
                await finishing
            finishing = asyncio.ensure_future(self._finishing.execute(self.FINISH, [row[0] for row in rows]))
        if finishing:
            await finishing
        return time.perf_counter() - began


class RawSqlite:
    """One connection; a batch is finished in the commit that claims the next. Each measure returns its seconds."""

    CLAIM = f"UPDATE raw_jobs SET state = 'running', worker = 'raw', claimed_at = 0 WHERE id IN ({READY}) RETURNING id"
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
        """Insert one at a time, each with its own commit."""
        began = time.perf_counter()
        for _ in range(jobs):
            self._connection.execute("INSERT INTO raw_jobs (args) VALUES (?)", (ARGS,))
        return time.perf_counter() - began

    async def bulk(self, jobs: int) -> float:
        """Insert all in one statement."""
        began = time.perf_counter()
        with self._connection:
            self._connection.executemany("INSERT INTO raw_jobs (args) VALUES (?)", [(ARGS,)] * jobs)
        return time.perf_counter() - began

    async def drain(self, jobs: int) -> float:
        """Claim and finish all, 500 at a time."""
        began, taken = time.perf_counter(), list[int]()
        while True:
            with self._connection:
                done = json.dumps(taken)
                taken = [int(str(row[0])) for row in self._connection.execute(self.CLAIM)]
                self._connection.execute(self.COPY, (done,))
                self._connection.execute(self.REMOVE, (done,))
            if not taken:
                return time.perf_counter() - began


Raw = RawPostgres | RawSqlite
