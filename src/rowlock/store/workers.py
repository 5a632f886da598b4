"""The rows of workers: registered, alive, idle, asked to stop."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from rowlock.core.errors import NotAllowed, WorkerNotFound
from rowlock.store.engine.operation import Call, Steps, operation
from rowlock.store.engine.records import record

StopHow = Literal["drain", "stop"]


@dataclass(frozen=True, slots=True)
class Worker:
    id: str
    hostname: str
    pid: int
    version: str
    queues: tuple[str, ...]
    tasks: tuple[str, ...]
    pool_size: int
    running: int
    idle: bool
    started_at: datetime
    seen_at: datetime
    alive: bool
    memory_bytes: int | None = None  # resident, when it was last heard of
    stop_requested: StopHow | None = None  # by an operator
    stop_requested_at: datetime | None = None


class Seen(NamedTuple):
    """What a worker's sign of life found in its row."""

    there: bool  # False: the row is gone and must be registered again
    stop: StopHow | None  # what an operator asks of the worker


@operation(single=True, repeatable=True)
def register(
    worker: str,
    hostname: str,
    pid: int,
    version: str,
    queues: Sequence[str],
    tasks: Sequence[str],
    pool_size: int,
    wake_address: str | None,
    lease: float,
) -> Steps[None]:
    yield Call(
        "register_worker",
        id=worker,
        hostname=hostname,
        pid=pid,
        version=version,
        queues=json.dumps(list(queues)),
        tasks=json.dumps(list(tasks)),
        pool_size=pool_size,
        address=wake_address,
        lease=lease,
    )


@operation(single=True, repeatable=True)
def seen(worker: str, running: int, lease: float, memory: int | None = None) -> Steps[Seen]:
    """Note that a worker is alive; returns whether its row is still there, and whether it was asked to stop."""
    rows = yield Call("worker_seen", id=worker, running=running, lease=lease, memory=memory)
    return Seen(bool(rows), rows[0].stop_requested if rows else None)


@operation(single=True, repeatable=True)
def set_idle(worker: str, idle: bool, lease: float) -> Steps[bool]:
    """Ask to be woken by enqueues, or stop asking."""
    return bool((yield Call("worker_idle", id=worker, idle=idle, lease=lease)))


@operation(single=True, repeatable=True)
def remove(worker: str) -> Steps[None]:
    yield Call("remove_worker", id=worker)


@operation(single=True, repeatable=True)
def forget(n: int) -> Steps[int]:
    """Remove up to `n` rows of workers that have long been silent; returns how many. A worker
    that is alive after all learns it from `seen`, and registers again."""
    return len((yield Call("forget_workers", n=n)))


@operation(read=True)
def workers() -> Steps[list[Worker]]:
    return [record(Worker, row) for row in (yield Call("list_workers"))]


@operation(repeatable=True)
def ask_to_stop(worker: str, how: StopHow) -> Steps[None]:
    """Ask a worker to take no more jobs and to end: after those that it runs (drain), or now (stop), when it gives them
    back. It reads that with its next heartbeat."""
    if (yield Call("ask_worker_to_stop", id=worker, how=how)):
        return
    there = [row for row in (yield Call("list_workers")) if row.id == worker]
    if not there:
        raise WorkerNotFound(worker)
    if there[0].version == "sql":
        raise NotAllowed(f"worker {worker!r} calls the SQL functions and cannot be asked: stop its program")
    raise NotAllowed(f"worker {worker!r} has not been heard of lately and would not hear this: end its process")
