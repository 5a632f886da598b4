"""Wake waiting workers and dispatchers, by NOTIFY if the engine has it, else by messages to stored addresses.

Wake-ups are sent when the transaction commits, on a best-effort basis: a worker that misses one finds the job when it
polls.
"""

from __future__ import annotations

from collections.abc import Sequence

from rowlock.store.engine.operation import Call, Row, Steps, Wake, dialect


def wake_idle() -> Steps[None]:
    """Wake idle workers, because there is work to claim."""
    if (yield from dialect()).notifies:
        yield Call("notify_idle")
    else:
        yield from _send((yield Call("idle_addresses")), "work")


def wake_idle_after_insert() -> Steps[None]:
    """Wake idle workers for jobs that were just inserted, unless the INSERT itself notifies them."""
    if not (yield from dialect()).notifies and (idle := (yield Call("idle_addresses"))):
        yield from _send(idle, "work")


def wake_to_cancel(workers: Sequence[str]) -> Steps[None]:
    """Make these workers check the cancel flags of their jobs."""
    asked = [(worker,) for worker in workers]
    if (yield from dialect()).notifies:
        yield Call("notify_cancel", asked=asked)
    else:
        yield from _send((yield Call("worker_addresses", asked=asked)), "cancel")


def wake_dispatchers() -> Steps[None]:
    """Make dispatchers read the schedules again."""
    if (yield from dialect()).notifies:
        yield Call("notify_dispatchers")
    else:
        yield from _send((yield Call("dispatcher_addresses")), "schedules")


def _send(rows: Sequence[Row], message: str) -> Steps[None]:
    if rows:
        yield Wake(tuple(row.address for row in rows), message)
