"""Jobs that have ended in one way or another, how many rows are left, and a store that lets a test step in."""

import asyncio
from datetime import date
from typing import Any

from rowlock.core.outcome import Failed
from rowlock.store import Store
from rowlock.store.engine.operation import Operation
from support.rigs.rig import Rig

TODAY = date(2026, 1, 1)  # where the fake clock starts


# Whether somebody waits for a lock in this database: pg_locks shows those of all tests on the server.
IN_LINE = (
    "SELECT 1 FROM pg_locks WHERE NOT granted"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


async def dead(rig: Rig, **options: Any) -> str:
    """A job that failed for good, with one row in `attempts`."""
    job = await rig.running(**options)
    await rig.settle(job, Failed("E", "x", permanent=True))
    return job.id


async def cancelled(rig: Rig, count: int, **options: Any) -> list[str]:
    ids = await rig.enqueue_many(count, **options)
    await rig.cancel(*ids)
    return ids


async def left(rig: Rig, table: str = "jobs") -> int:
    return int((await rig.fetch(f"SELECT count(*) FROM {{t}}{table}"))[0][0])


class Watched:
    """A store that remembers what each operation answered, and lets a test step in between two statements of a
    change to the schema. Such a change is one DO block, so the test makes it wait for a lock in there."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.answers: list[tuple[str, Any]] = []
        self.executed: list[str] = []
        self.after: str = ""
        self.step_in: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def run(self, op: Operation[Any]) -> Any:
        answer = await self._store.run(op)
        self.answers.append((op.name, answer))
        return answer

    async def execute(self, sql: str) -> None:
        self.executed.append(sql)
        if self.step_in is None:
            await self._store.execute(sql)
            return
        end = sql.index(";", sql.index(self.after)) + 1
        gated = f"{sql[:end]} PERFORM pg_advisory_xact_lock(4242); {sql[end:]}".replace("'200ms'", "'20s'")
        async with self._store.transaction() as gate:
            await gate.execute("SELECT pg_advisory_xact_lock(4242)")
            changing = asyncio.create_task(self._store.execute(gated))
            async with asyncio.timeout(10):
                while not await gate.fetch(f"{IN_LINE} AND locktype = 'advisory'"):
                    await asyncio.sleep(0.01)
            await self.step_in()
        await changing
