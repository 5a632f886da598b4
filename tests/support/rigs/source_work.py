"""Many sources, and the work that a claim among them is: pages on PostgreSQL, steps on SQLite. Never the time."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import apsw

from rowlock.core.job import NewJob
from rowlock.store import Store
from rowlock.store.engine.operation import Call, Steps, operation
from rowlock.store.engine.postgres.store import HOT
from rowlock.store.engine.statements import bind
from rowlock.store.jobs import enqueue as enqueue_jobs
from rowlock.store.jobs.enqueue import NewRow
from support.rigs.rig import look, numbered

LANES = [("default", "work")]


@operation()
def make_sources(names: list[str]) -> Steps[None]:
    """Rows for these sources."""
    yield Call("make_sources", made=[(name,) for name in names])


def site(n: int) -> str:
    """The n-th source."""
    return f"domain:site-{n:05}"


async def enqueue(store: Store, sources: list[str], first: int = 0, task: str = "work", priority: int = 0) -> None:
    """A job for each of these sources; one may come more than once. The first has the id `numbered(first)`."""
    rows = [NewRow(numbered(first + n), "{}", None, source) for n, source in enumerate(sources)]
    await store.run(enqueue_jobs.enqueue_rows(rows, NewJob(task=task, priority=priority)))


@asynccontextmanager
async def pages(store: Any) -> AsyncIterator[tuple[Any, Counter[str]]]:
    """PostgreSQL: a session, and the pages that each statement in it touches; all is undone in the end."""
    touched, execute = Counter[str](), store._execute

    async def explain(connection: Any, call: Call) -> Any:
        query = store._queries[call.name]
        await connection.execute("SAVEPOINT explained")
        text = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + query.sql
        ((plan,),) = await connection.fetch(text, *bind(query, call.params, store.clock))
        await connection.execute("ROLLBACK TO explained")
        top = json.loads(plan)[0]["Plan"]
        touched[call.name] += top["Shared Hit Blocks"] + top["Shared Read Blocks"]
        return await execute(connection, call)

    class Undone(Exception):
        pass

    try:
        async with store.transaction() as tx:
            for name, value in HOT.items():
                await tx.execute(f"SET LOCAL {name} = {value}")
            store._execute = explain
            yield tx, touched
            raise Undone
    except Undone:
        pass
    finally:
        store._execute = execute


@asynccontextmanager
async def steps(store: Any) -> AsyncIterator[tuple[Any, Counter[str]]]:
    """SQLite: the store, and the steps of its virtual machine."""
    touched, over = Counter[str](), False

    def profile(event: dict[str, Any]) -> None:
        touched["steps"] += 0 if over else event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

    await store.run(look(LANES, 1))  # opens the reader
    for connection in (store._runner.connection, store._reader.runner.connection):
        async with asyncio.timeout(10):
            while not traced(connection, profile):  # its thread copies the log back, after so many rows
                await asyncio.sleep(0.01)
    yield store, touched
    over = True


def traced(connection: apsw.Connection, profile: Any) -> bool:
    """Whether the connection had the time to be told."""
    try:
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, profile)
    except apsw.ThreadingViolationError:
        return False
    return True
