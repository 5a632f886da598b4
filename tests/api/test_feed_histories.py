"""Random histories of transactions in PostgreSQL: clients of two servers, who come at any moment, miss no event."""

import asyncio
import contextlib
import dataclasses
import random
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from rowlock import Rowlock
from rowlock.api.live import reader
from support.servers.parts import PARTS
from support.servers.postgres import PostgresServer

SOAK_SECONDS = 330.0
STEPS = (
    *("begin", "begin", "write", "write", "write", "savepoint", "release", "roll back", "commit", "commit", "abort"),
    *("prepare", "finish", "come", "come", "leave", "return", "look", "look"),
)
WRITE = """
INSERT INTO rowlock.events (job_id, owner, type, task, state, attempt, message, at)
SELECT gen_random_uuid(), 'ana', 'job.cancelled', 'add', 'cancelled', 1, %s, now() FROM generate_series(1, %s)"""


@contextlib.contextmanager
def preparing(programs: Path | None = None) -> Iterator[str]:
    """A database of a server with prepared transactions."""
    with PostgresServer(programs=programs, fsync="off", max_prepared_transactions=10) as server:
        yield server.create_database("histories")


@dataclasses.dataclass
class Open:
    """A transaction that runs, or is prepared."""

    connection: psycopg.Connection[Any]
    parts: list[list[str]] = dataclasses.field(default_factory=lambda: [[]])  # what was written before each savepoint
    name: str = ""  # of a prepared transaction

    @property
    def messages(self) -> list[str]:
        return [message for part in self.parts for message in part]


class Client:
    """A client of one server at a time; `position` is what it sends when it comes back."""

    def __init__(self, came: int) -> None:
        self.seen, self.came, self.position = set[str | None](), came, ""
        self.stack: contextlib.AsyncExitStack | None = None

    async def come(self, server: reader.Feed, committed: list[str]) -> None:
        """Begin to watch, with what was missed since the position."""
        stack = contextlib.AsyncExitStack()
        self.watcher = await stack.enter_async_context(server.watching("ana"))
        self.stack = stack
        if self.position:
            missed = await server.missed(self.watcher, self.position)
            if missed is None:
                self.start_again(server, committed)
            else:
                self.note(missed)
        else:
            self.start_again(server, committed)

    def start_again(self, server: reader.Feed, committed: list[str]) -> None:
        """As for the first time, or after `resync`: it reads its jobs, and is owed what is committed from now on."""
        self.came, self.position = len(committed), str(server.position())

    def note(self, found: list[Any]) -> None:
        for event, position in found:
            self.seen.add(event.message)
            self.position = str(position)

    async def look(self) -> None:
        if self.stack is not None:
            self.note(await self.watcher.take(0.005))
            if self.watcher.overrun:  # it got `resync`, and comes back as for the first time
                self.position = ""
                await self.leave()

    async def leave(self) -> None:
        if self.stack is not None:
            await self.stack.aclose()
            self.stack = None


class History:
    """Transactions that begin, write, set savepoints and end, and clients that come and go meanwhile."""

    def __init__(self, url: str, app: Rowlock, dice: random.Random) -> None:
        self.url, self.app, self.dice = url, app, dice
        self.servers, self.stopped = [reader.Feed(app.store), reader.Feed(app.store)], list[reader.Feed]()
        self.running, self.prepared, self.committed, self.number = list[Open](), list[Open](), list[str](), 0
        self.served = 0  # clients that were owed events and saw all of them
        self.clients, self.coming = list[Client](), set[asyncio.Task[None]]()
        self.control = psycopg.connect(url, autocommit=True)

    async def run(self, steps: int) -> None:
        """Do this many steps, end everything, and see what each client has seen."""
        for _ in range(steps):
            await self.step(self.dice.choice(STEPS))
            # A reader that begins takes several looks at the database: the next step may come between any two of them.
            await asyncio.sleep(self.dice.choice([0, 0, 0.001, 0.003, 0.02]))
        await asyncio.gather(*self.coming)
        while self.running or self.prepared:
            self.end(commits=True)
        for client in self.clients:
            await client.leave()
            again = len(self.committed)  # `resync` now would owe it nothing
            owed = set(self.committed[client.came :])
            await client.come(self.server(), self.committed)
            if client.came < again:
                assert owed <= client.seen, client.position
                self.served += 1
            await client.leave()

    async def close(self) -> None:
        for task in self.coming:
            task.cancel()
        await asyncio.gather(*self.coming, return_exceptions=True)
        for server in [*self.servers, *self.stopped]:
            await server.close()
        for each in [*self.running, *self.prepared]:
            each.connection.close()
        for name, *_ in self.control.execute("SELECT gid FROM pg_prepared_xacts").fetchall():
            self.control.execute(f"ROLLBACK PREPARED '{name}'")
        self.control.close()

    async def step(self, what: str) -> None:
        some = self.dice.choice(self.running) if self.running else None
        if what == "begin" and len(self.running) < 6:
            self.running.append(Open(psycopg.connect(self.url)))
            self.running[-1].connection.execute("SELECT pg_current_xact_id()")  # as the job's own row is written first
        elif what == "write" and some is not None:
            self.number += 1
            some.connection.execute(WRITE, (f"event {self.number}", self.dice.choice([1, 1, 200])))
            some.parts[-1].append(f"event {self.number}")
        elif what == "savepoint" and some is not None:
            some.connection.execute(f"SAVEPOINT at_{len(some.parts)}")
            some.parts.append([])
        elif what in ("release", "roll back") and some is not None and len(some.parts) > 1:
            last = some.parts.pop()
            how = "RELEASE" if what == "release" else "ROLLBACK TO"
            some.connection.execute(f"{how} SAVEPOINT at_{len(some.parts)}")
            some.parts[-1] += last if what == "release" else []
        elif what == "prepare" and some is not None and len(self.prepared) < 8:
            self.number += 1
            some.name = f"held {self.number}"
            some.connection.execute(f"PREPARE TRANSACTION '{some.name}'")
            self.running.remove(some)
            self.prepared.append(some)
        elif what in ("commit", "abort", "finish"):
            self.end(
                commits=what == "commit" or (what == "finish" and self.dice.random() < 0.7), prepared=what == "finish"
            )
        else:
            await self.client_step(what)

    def end(self, *, commits: bool, prepared: bool | None = None) -> None:
        """End a transaction: one that is prepared, one that is not, or any."""
        among = [*self.running, *self.prepared] if prepared is None else self.prepared if prepared else self.running
        if not among:
            return
        one = self.dice.choice(among)
        if one.name:
            self.control.execute(f"{'COMMIT' if commits else 'ROLLBACK'} PREPARED '{one.name}'")
            self.prepared.remove(one)
        else:
            one.connection.commit() if commits else one.connection.rollback()
            self.running.remove(one)
        one.connection.close()
        self.committed += one.messages if commits else []
        if self.dice.random() < 0.5:
            self.control.execute("SELECT pg_notify('rowlock', 'events')")

    async def client_step(self, what: str) -> None:
        here = [client for client in self.clients if client.stack is not None]
        if what == "come" and len(self.clients) < 30:
            client = Client(len(self.committed))
            self.come(client)
        elif what == "leave" and here:
            await self.dice.choice(here).leave()
        elif what == "return" and (away := [one for one in self.clients if one.stack is None]):
            client = self.dice.choice(away)
            self.clients.remove(client)
            self.come(client)
        elif what == "look":
            self.control.execute("SELECT pg_notify('rowlock', 'events')")
            for client in here:
                await client.look()

    def server(self) -> reader.Feed:
        """One of the two servers, or one that takes its place: its reader begins with this client."""
        place = self.dice.randrange(2)
        if self.dice.random() < 0.5:
            self.stopped.append(self.servers[place])
            self.servers[place] = reader.Feed(self.app.store)
        return self.servers[place]

    def come(self, client: Client) -> None:
        """It comes while the steps go on."""

        async def arrive() -> None:
            await client.come(self.server(), self.committed)
            self.clients.append(client)

        task = asyncio.get_running_loop().create_task(arrive())
        self.coming.add(task)
        task.add_done_callback(lambda done: None if done.cancelled() or done.exception() else self.coming.discard(done))


@contextlib.asynccontextmanager
async def history(url: str, app: Rowlock, seed: int) -> AsyncIterator[History]:
    made = History(url, app, random.Random(seed))
    try:
        yield made
    finally:
        await made.close()


async def run_histories(url: str, seeds: Iterator[int], steps: int, seconds: float) -> int:
    """Histories one after the other, until the seeds or the time are used up; returns how many clients saw all that
    they were owed."""
    ends, served = time.monotonic() + seconds, 0
    await Rowlock(url).migrate()
    async with Rowlock(url) as app:
        for seed in seeds:
            try:
                async with history(url, app, seed) as one:
                    await one.run(steps)
            except BaseException as error:
                error.add_note(f"in the history of seed {seed}")
                raise
            served += one.served
            if time.monotonic() > ends:
                break
    return served


async def test_no_event_of_a_long_aborted_or_prepared_transaction_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "STALL_SECONDS", 0.05)
    with preparing() as url:
        assert await run_histories(url, iter(range(4)), 80, 20.0) > 10


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", ["new", pytest.param("older", marks=pytest.mark.needs("postgres"))])
async def test_no_event_is_missed_in_many_histories(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "STALL_SECONDS", 0.05)
    program = PARTS["postgres"].find() if version == "older" else None
    with preparing(None if program is None else Path(program).parent) as url:
        seeds = iter(lambda: random.randrange(10**9), -1)
        assert await run_histories(url, seeds, 300, SOAK_SECONDS) > 100
