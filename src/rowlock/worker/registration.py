"""A worker's name, and its row in the table of workers: what it serves and how it can be woken."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import time
from collections.abc import Collection
from dataclasses import dataclass

from rowlock.client.settings import VERSION
from rowlock.core.config import WorkerSettings
from rowlock.core.errors import StoreError
from rowlock.store import workers
from rowlock.store.engine.store import Store

log = logging.getLogger("rowlock.worker")


def worker_id() -> str:
    """Unique for every start of a worker: {hostname}-{pid}-{ms}-{random}, or {WORKER_ID}-{ms}-{random}."""
    name = os.environ.get("WORKER_ID") or f"{socket.gethostname()}-{os.getpid()}"
    return f"{name}-{int(time.time() * 1000)}-{secrets.token_hex(3)}"


def resident_bytes() -> int | None:
    """Resident memory of this process in bytes; None on systems without /proc/self/statm."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


@dataclass
class Registration:
    """The row of one worker, with the tasks that it serves."""

    settings: WorkerSettings
    worker: str
    tasks: Collection[str]
    slots: int
    wake_address: str | None = None  # where the worker listens for wake-ups

    async def write(self, store: Store) -> None:
        """Write the row, at the start and after another worker has removed it."""
        await store.run(
            workers.register(
                self.worker,
                socket.gethostname(),
                os.getpid(),
                VERSION,
                self.settings.queues,
                sorted(self.tasks),
                self.slots,
                self.wake_address,
                self.settings.lease_seconds,
            )
        )

    async def set_idle(self, store: Store, idle: bool) -> None:
        """Record in the row whether this worker waits for a wake-up. Rewrite the row if another worker removed it."""
        change = workers.set_idle(self.worker, idle, self.settings.lease_seconds)
        if not await store.run(change) and idle:
            await self.write(store)
            await store.run(change)

    async def sign_off(self, store: Store) -> None:
        """Remove the row of a stopped worker. If the database is down, another worker will remove it later."""
        try:
            await store.run(workers.remove(self.worker))
        except StoreError as error:
            log.warning("could not remove this worker's row: %s", error)
