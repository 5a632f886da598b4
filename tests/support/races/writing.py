"""Somebody who writes, so that nobody else can: in a transaction on SQLite, with the table locked on PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from rowlock import Rowlock, Session
from rowlock.core.config import Settings, WorkerSettings


def patient(url: str) -> Settings:
    """Settings with which a transaction on SQLite may last for half a minute."""
    return Settings(database=url, worker=WorkerSettings(lease_seconds=300, heartbeat_seconds=90))


@asynccontextmanager
async def nobody_else_writes(url: str) -> AsyncIterator[tuple[Rowlock, Session]]:
    """An app on the database in a transaction for which every other write to jobs waits, until the block ends."""
    async with Rowlock(settings=patient(url)) as other, other.transaction() as tx:
        if url.startswith("postgresql"):
            await tx.execute("LOCK TABLE rowlock.jobs_live IN EXCLUSIVE MODE")
        yield other, tx


async def until_nothing_is_written(app: Rowlock) -> None:
    """Whatever was sent to the database before has happened, or will not."""
    if app.settings.database.startswith("sqlite"):
        async with app.transaction():  # comes after all that the writer was given
            return
    active = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND pid <> $1"
    while True:
        async with app.transaction() as tx:
            ((me,),) = await tx.fetch("SELECT pg_backend_pid()")
            if not await tx.fetch(active, me):
                return


async def until_writers_wait(app: Rowlock, number: int) -> None:
    """In `nobody_else_writes`: wait until so many writes of this app wait for its end."""
    store: Any = await app.store()
    blocked = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    async with asyncio.timeout(20):
        while True:
            found = store._writer._unanswered if store.writers == 1 else len(await app.fetch(blocked))
            if found == number:
                return
            await asyncio.sleep(0.01)
