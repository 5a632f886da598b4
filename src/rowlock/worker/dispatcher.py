"""Fires the ticks of schedules. Any number of dispatchers may run; they need no leader and keep all state in the
database.

A round asks when the next tick is due by the database's clock. It fires due ticks in batches; if none is due, it
returns the delay until the next one, at most a poll interval. A round also renews the dispatcher's row, retires
schedules that no live process declares any more, and repairs schedules that are stuck because the database's clock was
ahead for some time.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from rowlock.client.client import Client
from rowlock.client.tasks.registry import stored_task
from rowlock.client.tasks.task import Task
from rowlock.core.errors import StoreError
from rowlock.health.sender import Alerts
from rowlock.signals.metrics import Sample, Samples
from rowlock.store.jobs import tasks
from rowlock.store.schedules import dispatchers, fire, schedules
from rowlock.store.upkeep import bad_rows, clock_repair
from rowlock.worker.loops import Loops
from rowlock.worker.registration import worker_id

log = logging.getLogger("rowlock.dispatcher")

# Errors that a bad row can cause. Any other error is a bug, which may go away with a restart.
BAD_ROW = (StoreError, ValueError, TypeError, ArithmeticError, LookupError)

LOOK_AGAIN_SECONDS = 60.0  # before a schedule that could not be fired or read is tried again
REPAIR_SECONDS = 20.0  # between searches for schedules that a clock which was ahead has stuck in the future
POLL_SECONDS = 6.0  # longest sleep, because a wake-up may be lost
FEWEST, MOST = 20, 500  # schedules in one transaction
BATCH_SECONDS = 0.004  # target duration of a batch on SQLite, where claims wait for it
REST = 1.0  # pause after a batch on SQLite, as a multiple of its duration, for claims to get their turn


def _refused(error: Exception) -> None:
    log.error("%s; the other schedules go on", error)


class Dispatcher:
    """Declares the schedules of its app and fires due ticks. Any number of dispatchers may run."""

    def __init__(self, app: Client, now: Callable[[], float] | None = None) -> None:
        self.app, self.id, self._now = app, worker_id(), now or time.monotonic
        # Rows are renewed at least every POLL_SECONDS, so the lease must be longer even if the workers' lease is short.
        self._lease = max(app.settings.worker.lease_seconds, 10 * POLL_SECONDS)
        self._seen_at, self._declared = 0.0, False
        self._looked_at = self._now()  # for schedules to retire; not at once, as other dispatchers may be starting
        self._repair_at = self._look_again_at = 0.0
        self._started_at: Any = None  # by the database's clock
        self._left_out: set[fire.ScheduleRule] = set()  # cannot be fired here, so left to other dispatchers
        self._logged: set[fire.ScheduleRule] = set()  # left out with a line in the log
        self._wake = asyncio.Event()
        self.fired = self.passed_over = 0  # ticks

    async def start(self) -> None:
        """Declare the schedules in this app's code and config, and start to fire."""
        await self.open()
        self._loops.start("dispatch", self.round, self._wake)
        self._alerts.start(self._loops.start)
        log.info("Dispatcher started: %s", self.id)

    async def open(self) -> None:
        """Declare the schedules in this app's code and config. Nothing is fired before the first `round`."""
        self._store = await self.app.store()
        self._loops, self._alerts = Loops(self._store.outage), Alerts(self.app.settings.alerts, self._store, self.id)
        self._batch = MOST if self._store.writers > 1 else FEWEST
        self._wakeups = await self._store.listen(self._woken)
        await self._declare()
        self.app.meters.append(self._samples)

    def _samples(self) -> Samples:
        counts = (("rowlock_ticks_fired_total", self.fired), ("rowlock_schedule_missed_total", self.passed_over))
        return {name: [Sample((), count)] for name, count in counts}

    async def _declare(self) -> None:
        in_config = await self.app.schedules.in_config(self._task_named, _refused)
        places = {"code": self.app.schedules.in_code(), "config": in_config}
        every = [schedule.id for found in places.values() for schedule in found]
        registered = await self._store.run(dispatchers.register(self.id, every, self._lease, self._wakeups.address))
        # Set once: a process that was cut off for a day must not look newer than schedules declared meanwhile.
        self._started_at = self._started_at or registered
        for origin, found in places.items():
            if found:
                self._log_declared(origin, await self._store.run(schedules.declare(found, origin, self._started_at)))
        self._seen_at, self._declared = self._now(), True

    async def _task_named(self, name: str, source: str | None) -> Task[..., Any, Any] | str:
        """The task of a schedule in the config. Without the app's code, it gets the options that a worker stored."""
        if self.app.registry.all() or not isinstance(name, str):
            return name
        task = await stored_task(self.app, name, source, defaults=True)
        if await self._store.run(tasks.find(name)) is None:
            log.warning(
                "no worker has registered a task named %r yet: its scheduled jobs have default options until this"
                " dispatcher is started again; name your app with --app",
                name,
            )
        return task

    def _woken(self, what: str) -> None:
        if what == "schedules":
            self._left_out.clear()  # an operator may have fixed one
            self._wake.set()

    def _log_declared(self, origin: str, declared: schedules.Declared) -> None:
        for name, there in declared.refused.items():
            log.error("schedule %r of the %s is ignored: a schedule from %s has that name", name, origin, there)
        for name in sorted(declared.back):
            log.info("schedule %r of the %s is back from retirement", name, origin)
        for name in sorted(declared.retired):
            log.error(
                "schedule %r of the %s stays retired: a process that started later has redefined it",
                name,
                origin,
            )

    async def round(self) -> float:
        """Fire what is due; returns the delay before the next round."""
        await self._say_alive()
        await self._repair()
        if self._left_out and self._now() >= self._look_again_at:
            self._left_out.clear()  # try them again
        wait = await self._store.run(fire.next_due(tuple(self._left_out)))
        if wait is None:
            return POLL_SECONDS
        return await self._fire() if wait <= 0 else min(POLL_SECONDS, wait)

    async def _fire(self) -> float:
        """Fire one batch of due schedules; returns the delay before the next round."""
        began = time.monotonic()
        try:
            fired = await self._store.run(fire.fire(self._batch, tuple(self._left_out)))
        except bad_rows.OUTAGE:
            raise
        except BAD_ROW as error:
            log.warning("firing a batch of schedules failed (%s); firing it in halves", error)
            fired = await self._fire_halves()
        took = time.monotonic() - began
        self.fired += fired.jobs
        self.passed_over += fired.passed_over
        self._leave_out(fired.refused)
        if not fired.schedules:
            return random.uniform(0.05, 0.15)  # another dispatcher has locked the due schedules
        full = fired.schedules == self._batch or fired.jobs >= fire.MOST_JOBS
        if full and self._store.writers == 1:
            self._batch = min(max(int(self._batch * BATCH_SECONDS / took), FEWEST), MOST)
            return REST * took
        return 0.0

    async def _fire_halves(self) -> fire.Fired:
        """Bisect a batch that failed because of a bad row: fire all schedules but the bad ones."""
        every = await self._store.run(fire.due(self._batch, tuple(self._left_out)))

        def fire_part(part: Sequence[fire.ScheduleRule]) -> Awaitable[fire.Fired]:
            return self._store.run(fire.fire(len(part), tuple({*self._left_out, *every} - {*part})))

        fired, failed = await bad_rows.in_halves(every, fire_part)
        refused = {schedule: why for one in fired for schedule, why in one.refused.items()}
        for schedule, error in failed:
            refused[schedule] = why = f"its tick cannot be fired: {error}"
            with suppress(StoreError):  # so that `schedules list` shows it
                await self._store.run(fire.tell(schedule.id, why))
        return fire.Fired(
            sum(one.schedules for one in fired),
            sum(one.jobs for one in fired),
            sum(one.passed_over for one in fired),
            refused,
        )

    def _leave_out(self, refused: Mapping[fire.ScheduleRule, str]) -> None:
        """Skip schedules that cannot be fired here: they stay due for dispatchers that can fire them."""
        if refused:
            self._look_again_at = self._now() + LOOK_AGAIN_SECONDS
        for schedule, why in refused.items():
            if schedule not in self._logged:
                log.error("schedule %r is left to other dispatchers: %s", schedule.id, why)
        self._logged.update(refused)
        self._left_out.update(refused)

    async def _repair(self) -> None:
        """Reschedule ticks that were written while the database's clock was ahead and now are too far in the future."""
        if self._now() < self._repair_at:
            return
        self._repair_at = self._now() + REPAIR_SECONDS
        while names := await self._store.run(clock_repair.put_schedules_right(MOST)):
            shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
            log.warning("the database's clock was ahead and was set back; schedules corrected: %s", shown)

    async def _say_alive(self) -> None:
        """Renew this dispatcher's row, or rewrite it if it is gone. Retire schedules that no live process declares."""
        if self._now() < self._seen_at + self._lease / 2:
            return
        if self._declared and await self._store.run(dispatchers.seen(self.id, self._lease)):
            self._seen_at = self._now()
        else:
            self._declared = False  # if declaring fails half-way, the next round tries again
            await self._declare()
            # This was an outage of the database or of this process. Other dispatchers may not have come back yet.
            self._looked_at = self._now()
        if self._now() < self._looked_at + 2 * self._lease:
            return
        self._looked_at = self._now()
        for name in await self._store.run(dispatchers.retire(self._lease)):
            log.warning("schedule %r is retired: no live process has it in its code or config any more", name)

    async def stop(self) -> None:
        if self._samples in self.app.meters:
            self.app.meters.remove(self._samples)
        await self._loops.finish("dispatch", timeout=5.0)
        await self._loops.stop_all()
        await self._alerts.stop()
        await self._wakeups.close()
        try:
            await self._store.run(dispatchers.leave(self.id))
        except StoreError as error:
            log.warning("could not remove this dispatcher's row: %s", error)
        log.info("Dispatcher stopped: %s", self.id)

    async def join(self) -> None:
        """Wait until the dispatcher ends; raises the error that ended it."""
        await self._loops.join()
