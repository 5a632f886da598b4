"""The rows of workers: register, renew, mark as idle, ask to stop."""

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
    memory_bytes: int | None = None  # resident memory, as the worker last reported it
    stop_requested: StopHow | None = None  # by an operator
    stop_requested_at: datetime | None = None


class Seen(NamedTuple):
    """What a worker learns when it renews its row."""

    there: bool  # False: the row is gone, and the worker must register again
    stop: StopHow | None  # the stop that an operator has requested


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
    """Renew a worker's row. Returns whether the row still exists, and whether the worker was asked to stop."""
    rows = yield Call("worker_seen", id=worker, running=running, lease=lease, memory=memory)
    return Seen(bool(rows), rows[0].stop_requested if rows else None)


@operation(single=True, repeatable=True)
def set_idle(worker: str, idle: bool, lease: float) -> Steps[bool]:
    """Turn wake-ups by enqueues on or off for a worker."""
    return bool((yield Call("worker_idle", id=worker, idle=idle, lease=lease)))


@operation(single=True, repeatable=True)
def remove(worker: str) -> Steps[None]:
    yield Call("remove_worker", id=worker)


@operation(single=True, repeatable=True)
def forget(n: int) -> Steps[int]:
    """Delete up to `n` rows of workers that have been silent for long; returns how many. A worker that is alive after
    all notices it in `seen`, and registers again."""
    return len((yield Call("forget_workers", n=n)))


@operation(read=True)
def workers() -> Steps[list[Worker]]:
    return [record(Worker, row) for row in (yield Call("list_workers"))]


@operation(repeatable=True)
def ask_to_stop(worker: str, how: StopHow) -> Steps[None]:
    """Ask a worker to take no more jobs and to exit: after its running jobs (drain), or at once, releasing them (stop).
    The worker reads the request at its next heartbeat."""
    if (yield Call("ask_worker_to_stop", id=worker, how=how)):
        return
    there = [row for row in (yield Call("list_workers")) if row.id == worker]
    if not there:
        raise WorkerNotFound(worker)
    if there[0].version == "sql":
        raise NotAllowed(f"worker {worker!r} calls the SQL functions, which have no stop request: stop its program")
    raise NotAllowed(f"worker {worker!r} has sent no heartbeat lately and would not see the request: end its process")
