"""Slots of a worker that has no other parts: nothing claims for them."""

from typing import Any

from rowlock.core.claiming.plan import Plan
from rowlock.core.config import WorkerSettings
from rowlock.signals.events import Watcher
from rowlock.signals.logs import JobLog
from rowlock.worker.attempt.slots import Slots
from rowlock.worker.claimer import Claimer


def new_plan(settings: WorkerSettings | None = None, *, parallel: bool = False) -> Plan:
    return Plan(settings or WorkerSettings(), prefetchable=["t"], in_process=[], parallel=parallel)


def new_claimer() -> Claimer:
    """A claimer without a database: other parts report to it, and it makes no round."""
    nothing: Any = None
    return Claimer(nothing, new_plan(), nothing, nothing, nothing, Watcher())


def new_slots(size: int = 1, claimer: Claimer | None = None, watcher: Watcher | None = None) -> Slots:
    return Slots("w", size, claimer or new_claimer(), watcher or JobLog("w"))
