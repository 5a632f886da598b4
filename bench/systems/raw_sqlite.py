"""The yardstick on SQLite: a bare loop without features, to show what is possible and not what is useful.

One database thread; the completions of the last batch and the claim of the next are one BEGIN IMMEDIATE, so
one fsync for up to 500 jobs. WAL, synchronous=FULL. A datagram socket is the doorbell. No leases, tokens,
retries, priorities or lanes. Finished rows are kept by moving them, because Rowlock keeps them too.
"""

import asyncio
import json
import os
import socket
import threading
from collections import deque
from contextlib import suppress
from pathlib import Path

import apsw

from bench.adapter import System, Tally, run
from bench.systems.raw_postgres import arguments

BATCH = 500
BUSY_MS = 30_000
POLL_SECONDS = 1.0

COLUMNS = """
    task TEXT NOT NULL DEFAULT 'job', queue TEXT NOT NULL DEFAULT 'default', state TEXT NOT NULL DEFAULT 'ready',
    priority INTEGER NOT NULL DEFAULT 0, args TEXT NOT NULL, attempt INTEGER NOT NULL DEFAULT 0,
    max_attempts INTEGER NOT NULL DEFAULT 5, run_after REAL NOT NULL DEFAULT 0, locked_by TEXT, locked_at REAL,
    created_at REAL NOT NULL DEFAULT (unixepoch('subsec'))"""
SETUP = f"""
CREATE TABLE jobs (id INTEGER PRIMARY KEY AUTOINCREMENT, {COLUMNS});
CREATE INDEX jobs_ready ON jobs (queue, priority, id) WHERE state = 'ready';
CREATE TABLE finished (id INTEGER PRIMARY KEY, {COLUMNS}, finished_at REAL NOT NULL);
"""
INSERT = "INSERT INTO jobs (args) VALUES (?)"
CLAIM = """
UPDATE jobs SET state = 'running', attempt = attempt + 1, locked_by = 'raw', locked_at = unixepoch('subsec')
WHERE id IN (SELECT id FROM jobs WHERE state = 'ready' AND queue = 'default' ORDER BY priority, id LIMIT ?)
RETURNING id, args"""
KEEP = "INSERT INTO finished SELECT *, unixepoch('subsec') FROM jobs WHERE id IN (SELECT value FROM json_each(?))"
REMOVE = "DELETE FROM jobs WHERE id IN (SELECT value FROM json_each(?))"


def connect(url: str) -> apsw.Connection:
    connection = apsw.Connection(url.removeprefix("sqlite:///"))
    connection.set_busy_timeout(BUSY_MS)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def bells(url: str) -> list[str]:
    file = Path(url.removeprefix("sqlite:///"))
    return [str(bell) for bell in file.parent.glob(f"{file.name}.bell-*")]


class RawSqlite(System):
    name = "raw"
    engine = "sqlite"
    settings = "apsw and uvloop, WAL, synchronous=FULL, claims of 500, finished rows moved; no features"
    left_sql = "SELECT count(*) FROM jobs"

    def version(self) -> str:
        return "-"

    async def setup(self) -> None:
        connection = connect(self.url)
        connection.execute(SETUP)
        connection.close()

    async def open(self, producers: int = 1) -> None:
        self.connection = connect(self.url)
        self.doorbell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    async def close(self) -> None:
        self.connection.close()
        self.doorbell.close()

    async def enqueue(self, sleep_ms: int = 0, sent_ns: int = 0, producer: int = 0) -> None:
        self.connection.execute(INSERT, (arguments(sleep_ms, sent_ns),))
        for bell in bells(self.url) if sent_ns else ():
            with suppress(OSError):
                self.doorbell.sendto(b"work", bell)

    async def bulk(self, jobs: int, sleep_ms: int = 0) -> None:
        with self.connection:
            self.connection.executemany(INSERT, ((arguments(sleep_ms, 0),) for _ in range(jobs)))

    async def work(self, tally: Tally, concurrency: int, stop: asyncio.Event) -> None:
        await Worker(self.url, tally, concurrency).run(stop)


class Worker:
    """The loop runs the jobs, one thread has the database."""

    def __init__(self, url: str, tally: Tally, concurrency: int) -> None:
        self.url, self.tally, self.concurrency = url, tally, concurrency
        self.waiting: deque[tuple[int, str]] = deque()
        self.running: set[asyncio.Task[None]] = set()
        self.done: deque[int] = deque()  # a deque, because the loop appends while the thread takes
        self.look, self.closed = threading.Event(), False

    async def run(self, stop: asyncio.Event) -> None:
        self.loop = asyncio.get_running_loop()
        bell = f"{self.url.removeprefix('sqlite:///')}.bell-{os.getpid()}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.bind(bell)
            sock.setblocking(False)
            self.loop.add_reader(sock.fileno(), lambda: (sock.recv(64), self.look.set()))
            database = asyncio.create_task(asyncio.to_thread(self.database))
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait([database, stopping], return_when=asyncio.FIRST_COMPLETED)
            self.closed = True
            self.look.set()
            await database
            self.loop.remove_reader(sock.fileno())
        os.unlink(bell)

    def database(self) -> None:
        connection = connect(self.url)
        while not self.closed:
            self.look.clear()
            done = [self.done.popleft() for _ in range(len(self.done))]
            room = BATCH if len(self.waiting) <= BATCH // 2 else 0
            claimed: list[tuple[int, str]] = []
            if done or room:
                connection.execute("BEGIN IMMEDIATE")
                if done:
                    connection.execute(KEEP, (json.dumps(done),))
                    connection.execute(REMOVE, (json.dumps(done),))
                if room:
                    claimed = connection.execute(CLAIM, (room,)).fetchall()
                connection.execute("COMMIT")
            if claimed:
                self.waiting.extend(claimed)
                self.loop.call_soon_threadsafe(self.start)
            if not self.done:
                self.look.wait(POLL_SECONDS)
        connection.close()

    def start(self) -> None:
        while self.waiting and len(self.running) < self.concurrency:
            task = asyncio.create_task(self.handle(*self.waiting.popleft()))
            self.running.add(task)
            task.add_done_callback(self.ended)

    def ended(self, task: asyncio.Task[None]) -> None:
        self.running.discard(task)
        self.start()

    async def handle(self, number: int, args: str) -> None:
        job = json.loads(args)
        self.tally.handled(job["sent_ns"])
        if job["sleep_ms"]:
            await asyncio.sleep(job["sleep_ms"] / 1000)
        self.done.append(number)
        if len(self.done) == 1 or not self.waiting:
            self.look.set()


if __name__ == "__main__":
    run(RawSqlite)
