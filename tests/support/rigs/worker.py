"""Parts of a worker without the rest: slots for which nothing claims, and an executor whose outcomes are kept here
instead of written."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rowlock import Rowlock
from rowlock.core.claiming.plan import Plan
from rowlock.core.config import WorkerSettings
from rowlock.signals.events import Watcher
from rowlock.signals.logs import JobLog
from rowlock.worker.attempt.attempt import LiveAttempt
from rowlock.worker.attempt.executor import Executor
from rowlock.worker.attempt.quarantine import Suspects
from rowlock.worker.attempt.slots import Slots
from rowlock.worker.claimer import Claimer
from rowlock.worker.processes.children import Children

# For what a worker does by itself. What it asks of the store is promised on both engines by tests/conformance.
on_one_engine = pytest.mark.parametrize("engine", ["sqlite"])


def new_plan(settings: WorkerSettings | None = None, *, parallel: bool = False) -> Plan:
    return Plan(settings or WorkerSettings(), prefetchable=["t"], in_process=[], parallel=parallel)


def new_claimer() -> Claimer:
    """A claimer without a database: other parts report to it, and it makes no round."""
    nothing: Any = None
    return Claimer(nothing, new_plan(), nothing, nothing, nothing, Watcher())


def new_slots(size: int = 1, claimer: Claimer | None = None, watcher: Watcher | None = None) -> Slots:
    return Slots("w", size, claimer or new_claimer(), watcher or JobLog("w"))


class RecordingSlots(Slots):
    """Slots that remember which attempts had nothing to settle."""

    def __init__(self, size: int, settled: list[LiveAttempt], claimer: Any) -> None:
        super().__init__("w", size, claimer, JobLog("w"))
        self._settled = settled

    def nothing_to_settle(self, attempt: LiveAttempt) -> None:
        self._settled.append(attempt)


class ExecutorRig:
    """Runs attempts and remembers how they ended."""

    def __init__(self, app: Rowlock, size: int = 1) -> None:
        self.ends: list[Any] = []  # what was settled
        self.settled: list[LiveAttempt] = []  # what had nothing to settle
        self.pauses = 0
        part: Any = self
        self.slots = RecordingSlots(size, self.settled, part)
        self.executor = Executor(
            app,
            self.slots,
            {},
            claimer=part,
            settler=part,
            stopping=part,
            progress=part,
            batches=part,
            children=Children(app, size, spare=True),
            suspects=Suspects(self.slots, part, part, Children(app, 1)),
        )

    async def execute(self, running: LiveAttempt) -> Any:
        """How an attempt ended; None when it had nothing to settle."""
        self.slots.occupied += 1
        await self.executor.execute(running)
        return self.ends.pop() if self.ends else None

    def start(self, running: LiveAttempt) -> asyncio.Task[Any]:
        """Start an attempt as the executor does, so that it can be stopped."""
        running.task = asyncio.create_task(self.execute(running))
        return running.task

    async def close(self) -> None:
        await self.executor.close()

    # --- claimer

    @contextmanager
    def paused(self) -> Iterator[None]:
        self.pauses += 1
        yield

    def returned(self, seconds: float, waiting: int) -> None: ...

    # --- settler

    def settle(self, running: LiveAttempt, end: Any) -> None:
        self.ends.append(end)

    # --- stopping, progress, batches

    def stop(self, running: LiveAttempt, reason: str) -> None: ...

    def reporter(self, running: LiveAttempt) -> Callable[..., None]:
        return lambda *_: None

    def started(self, batch_id: str) -> None: ...

    def settled_itself(self, batch_id: str) -> None: ...
