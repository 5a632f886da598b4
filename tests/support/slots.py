"""Slots of a worker that has no other parts: nothing claims for them."""

from rowlock.core.config import WorkerSettings
from rowlock.signals.events import Watcher
from rowlock.signals.logs import JobLog
from rowlock.worker.attempt.slots import Slots
from rowlock.worker.claim.planner import Planner


def new_planner(settings: WorkerSettings | None = None, *, parallel: bool = False) -> Planner:
    return Planner(settings or WorkerSettings(), prefetchable=["t"], in_process=[], parallel=parallel)


def new_slots(size: int = 1, planner: Planner | None = None, watcher: Watcher | None = None) -> Slots:
    return Slots("w", size, planner or new_planner(), watcher or JobLog("w"))
