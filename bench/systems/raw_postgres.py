"""The yardstick on PostgreSQL: a bare loop without features, to show what is possible and not what is useful.

Claims of up to 500 rows in one round trip, one asyncio task per job, completions group-committed on a second
connection (whatever finished while the last flush was in flight goes in the next), LISTEN as wake-up, and a
low-water mark on the claim order. No leases, tokens, retries, priorities or lanes. Finished rows are kept by
moving them, because Rowlock keeps them too.
"""

import asyncio
import json
import time
from collections import deque
from contextlib import suppress

import asyncpg

from bench.adapter import System, Tally, run

BATCH = 500
LOW_WATER = 10_000  # ids below the last claim that are still looked at
RESET_SECONDS = 1.0  # how often the claim looks at everything again
MOST_UNSETTLED = 4 * BATCH

COLUMNS = """
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task text NOT NULL DEFAULT 'job', queue text NOT NULL DEFAULT 'default', state text NOT NULL DEFAULT 'ready',
    priority smallint NOT NULL DEFAULT 0, args json NOT NULL, attempt integer NOT NULL DEFAULT 0,
    max_attempts integer NOT NULL DEFAULT 5, run_after timestamptz NOT NULL DEFAULT now(), locked_by text,
    locked_at timestamptz, created_at timestamptz NOT NULL DEFAULT now()"""
SETUP = f"""
CREATE TABLE jobs ({COLUMNS}) WITH (fillfactor = 70);
CREATE INDEX jobs_ready ON jobs (queue, priority, id) WHERE state = 'ready';
CREATE TABLE finished (LIKE jobs, finished_at timestamptz NOT NULL, PRIMARY KEY (id));
"""
INSERT = "INSERT INTO jobs (args) VALUES ($1)"
INSERT_AND_WAKE = f"WITH added AS ({INSERT}) SELECT pg_notify('jobs', '')"
INSERT_MANY = "INSERT INTO jobs (args) SELECT unnest($1::text[])::json"
CLAIM = """
UPDATE jobs SET state = 'running', attempt = attempt + 1, locked_by = $1, locked_at = now()
WHERE id = ANY(ARRAY(
    SELECT id FROM jobs
    WHERE state = 'ready' AND queue = 'default' AND priority = 0 AND id > $2
    ORDER BY priority, id LIMIT $3 FOR UPDATE SKIP LOCKED))
RETURNING id, args"""
FINISH = """
WITH gone AS (DELETE FROM jobs WHERE id = ANY($1::bigint[]) RETURNING *)
INSERT INTO finished SELECT *, now() FROM gone"""


def arguments(sleep_ms: int, sent_ns: int) -> str:
    return json.dumps({"sleep_ms": sleep_ms, "sent_ns": sent_ns})


class RawPostgres(System):
    name = "raw"
    engine = "postgres"
    settings = "asyncpg and uvloop, claims of 500, finished rows moved; no features"
    left_sql = "SELECT count(*) FROM jobs"

    def version(self) -> str:
        return "-"

    async def setup(self) -> None:
        connection = await asyncpg.connect(self.url)
        await connection.execute(SETUP)
        await connection.close()

    async def open(self, producers: int = 1) -> None:
        self.connections = [await asyncpg.connect(self.url) for _ in range(producers)]
        self.inserts = [await connection.prepare(INSERT) for connection in self.connections]
        self.wakes = [await connection.prepare(INSERT_AND_WAKE) for connection in self.connections]

    async def close(self) -> None:
        for connection in self.connections:
            await connection.close()

    async def enqueue(self, sleep_ms: int = 0, sent_ns: int = 0, producer: int = 0) -> None:
        # Only what is to be picked up at once needs a NOTIFY; the plain INSERT is what enqueueing is held against.
        insert = (self.wakes if sent_ns else self.inserts)[producer]
        await insert.fetch(arguments(sleep_ms, sent_ns))

    async def bulk(self, jobs: int, sleep_ms: int = 0) -> None:
        await self.connections[0].execute(INSERT_MANY, [arguments(sleep_ms, 0) for _ in range(jobs)])

    async def work(self, tally: Tally, concurrency: int, stop: asyncio.Event) -> None:
        await Worker(self.url, tally, concurrency).run(stop)


class Worker:
    """Two loops on two connections, and the tasks between them."""

    def __init__(self, url: str, tally: Tally, concurrency: int) -> None:
        self.url, self.tally, self.concurrency = url, tally, concurrency
        self.waiting: deque[asyncpg.Record] = deque()
        self.running: set[asyncio.Task[None]] = set()
        self.done: list[int] = []
        self.room, self.finished = asyncio.Event(), asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        self.claims, self.completions = await asyncpg.connect(self.url), await asyncpg.connect(self.url)
        await self.claims.add_listener("jobs", lambda *_: self.room.set())
        loops = [asyncio.create_task(self.claim()), asyncio.create_task(self.complete())]
        stopping = asyncio.create_task(stop.wait())
        ended, _ = await asyncio.wait([*loops, stopping], return_when=asyncio.FIRST_COMPLETED)
        for task in (*loops, stopping):
            task.cancel()
        for task in ended:
            task.result()

    async def claim(self) -> None:
        low, reset_at = 0, 0.0
        while True:
            self.room.clear()
            if len(self.waiting) > BATCH // 2 or len(self.done) > MOST_UNSETTLED:
                await self.room.wait()
                continue
            if time.monotonic() > reset_at:
                low, reset_at = 0, time.monotonic() + RESET_SECONDS
            rows = await self.claims.fetch(CLAIM, "raw", low, BATCH)
            low = max(0, min(row["id"] for row in rows) - LOW_WATER) if rows else 0
            self.waiting.extend(rows)
            self.start()
            if not rows:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.room.wait(), RESET_SECONDS)

    def start(self) -> None:
        while self.waiting and len(self.running) < self.concurrency:
            task = asyncio.create_task(self.handle(self.waiting.popleft()))
            self.running.add(task)
            task.add_done_callback(self.ended)
        if len(self.waiting) <= BATCH // 2:
            self.room.set()

    def ended(self, task: asyncio.Task[None]) -> None:
        self.running.discard(task)
        self.start()

    async def handle(self, row: asyncpg.Record) -> None:
        job = json.loads(row["args"])
        self.tally.handled(job["sent_ns"])
        if job["sleep_ms"]:
            await asyncio.sleep(job["sleep_ms"] / 1000)
        self.done.append(row["id"])
        self.finished.set()

    async def complete(self) -> None:
        while True:
            await self.finished.wait()
            self.finished.clear()
            ids, self.done = self.done, []
            await self.completions.execute(FINISH, ids)
            self.room.set()


if __name__ == "__main__":
    run(RawPostgres)
