"""Two sessions of one PostgreSQL, step by step in an order that the test chooses. Nothing sleeps for luck.

`play` lets one operation of each session advance by single statements; the last step is the commit. A statement that
waits for the other session's lock is left waiting until that session has moved on. `closed_gate` holds a statement
between the moment it took its snapshot and its first row.
"""

import asyncio
import itertools
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import asyncpg

from rowlock.store import Store
from rowlock.store.engine.operation import Call, Operation

PATIENCE = 20.0
GATE = 4711


def orders(first: int, second: int) -> Iterator[str]:
    """Every order of `first` steps of session A and `second` steps of session B, as "AABAB"."""
    for places in itertools.combinations(range(first + second), first):
        yield "".join("A" if place in places else "B" for place in range(first + second))


class Actor:
    """One session that runs one operation in a transaction and stops before each statement and the commit."""

    def __init__(self, store: Store, op: Operation[Any], roll_back: bool = False) -> None:
        self._store, self._op, self._roll_back = store, op, roll_back
        self._go, self._stopped = asyncio.Event(), asyncio.Event()
        self.pid = 0
        self.task = asyncio.create_task(self._play())
        self.task.add_done_callback(lambda _: self._stopped.set())

    async def _play(self) -> Any:
        execute = self._store._execute  # type: ignore[attr-defined]

        async def step(connection: Any, call: Call) -> Any:
            await self._turn()
            return await execute(connection, call)

        class Undone(Exception):
            pass

        try:
            async with self._store.transaction() as tx:
                self.pid = (await tx.fetch("SELECT pg_backend_pid()"))[0][0]
                self._store._execute = step  # type: ignore[attr-defined]
                try:
                    answer = await tx.run(self._op)
                finally:
                    self._store._execute = execute  # type: ignore[attr-defined]
                await self._turn()
                if self._roll_back:
                    raise Undone
        except Undone:
            pass
        return answer

    async def _turn(self) -> None:
        self._stopped.set()
        await self._go.wait()
        self._go.clear()

    async def reach_a_stop(self, watcher: Any) -> bool:
        """Wait for the next stop or the end; False when a lock of another session stands in the way."""
        async with asyncio.timeout(PATIENCE):
            while not self._stopped.is_set():
                stop = asyncio.create_task(self._stopped.wait())
                await asyncio.wait({stop}, timeout=0.003)
                stop.cancel()
                blocked = "SELECT pg_blocking_pids($1) <> '{}'"
                if not self._stopped.is_set() and self.pid and await watcher.fetchval(blocked, self.pid):
                    return False
        return True

    def move_on(self) -> None:
        if self._stopped.is_set() and not self.task.done():
            self._stopped.clear()
            self._go.set()


async def play(watcher: Any, order: str, a: Actor, b: Actor) -> tuple[Any, Any]:
    """Run both to their ends, in this order as far as locks allow it; the two answers."""
    actors = {"A": a, "B": b}
    for actor in (a, b):
        assert await actor.reach_a_stop(watcher)
    for name in order:
        actors[name].move_on()
        await actors[name].reach_a_stop(watcher)
    async with asyncio.timeout(PATIENCE):
        while not (a.task.done() and b.task.done()):
            for actor in (a, b):
                if await actor.reach_a_stop(watcher):
                    actor.move_on()
    return a.task.result(), b.task.result()


def rewrite(store: Store, name: str, old: str, new: str) -> None:
    """Change one statement of this store only; `old` is a pattern. One that no longer fits is an error: mutants
    must not rot."""
    holder: Any = {"postgres": lambda: store, "sqlite": lambda: store._runner}[store.engine]()  # type: ignore[attr-defined]
    attribute = {"postgres": "_queries", "sqlite": "queries"}[store.engine]
    queries = getattr(holder, attribute)
    sql, count = re.subn(old, new, queries[name].sql)
    assert count, f"{name} no longer says {old!r}:\n{queries[name].sql}"
    setattr(holder, attribute, {**queries, name: replace(queries[name], sql=sql)})


def add_gate(store: Store) -> None:
    """Let this store's claims wait at the gate after they took their snapshot."""
    rewrite(store, "claim", "WHERE NOT EXISTS", f"WHERE pg_advisory_xact_lock_shared({GATE})::text = '' AND NOT EXISTS")


@asynccontextmanager
async def closed_gate(watcher: Any) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Close the gate for the block; the value waits until somebody stands before it."""

    async def somebody_waits() -> None:
        # In this database: pg_locks shows those of the whole server, where another test may have closed its own gate.
        waiting = (
            "SELECT EXISTS (SELECT 1 FROM pg_locks l JOIN pg_database d ON d.oid = l.database"
            " WHERE d.datname = current_database() AND l.locktype = 'advisory' AND l.objid = $1 AND NOT l.granted)"
        )
        async with asyncio.timeout(PATIENCE):
            while not await watcher.fetchval(waiting, GATE):
                await asyncio.sleep(0.002)

    await watcher.execute("SELECT pg_advisory_lock($1)", GATE)
    try:
        yield somebody_waits
    finally:
        await watcher.execute("SELECT pg_advisory_unlock($1)", GATE)


@asynccontextmanager
async def watching(url: str) -> AsyncIterator[Any]:
    """A connection beside the sessions."""
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()
