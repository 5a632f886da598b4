"""`rowlock demo cronjobs`: two dispatchers, a pool of five, and cron jobs that fire every second."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from rowlock import InvalidArguments, Rowlock, ScheduleNotFound
from rowlock_apps.cronjobs import cron_jobs
from rowlock_apps.cronjobs.app import FOLDER, make_app
from rowlock_apps.cronjobs.demo_checks import EXPECTED, mistakes, summary
from rowlock_apps.cronjobs.executions import Execution, get_executions
from rowlock_apps.stage import Stage, stage

CONFIG = FOLDER / "config" / "demo.yaml"
ADDED = "added-later"
LOOK_SECONDS = 0.2
PAUSE_AT, RESUME_AT, END_AT = 1.5, 3.2, 4.8  # seconds into the show; later on a machine that is too busy
LONGEST_SECONDS = 30.0
DRAIN_SECONDS = 15.0


async def play(database: str, live: bool) -> list[str]:
    """Run the demo; returns its mistakes."""
    first, second = (make_app(database, config=CONFIG) for _ in range(2))
    await first.migrate()
    async with first, second:
        with stage(live) as screen:
            show = Show(first, screen)
            await show.begin()
            async with first.worker(shutdown_timeout_seconds=2):
                async with first.dispatcher() as one, second.dispatcher() as other:
                    await show.run()
                    screen.say(f"the first dispatcher fired {one.fired} ticks, the second {other.fired}")
                await show.drain()
    print(summary(show.seen))
    return mistakes(show.seen)


class Show:
    """What happens, in order."""

    def __init__(self, app: Rowlock, screen: Stage) -> None:
        self._app, self._screen = app, screen
        self._newest: str | None = None  # of the executions that an earlier show left in this database
        self._began = time.monotonic()
        self.seen: list[Execution] = []

    async def begin(self) -> None:
        """Remember what is there already."""
        self._newest = next((found.id for found in await get_executions(limit=1, app=self._app)), None)

    async def run(self) -> None:
        """Let the cron jobs fire, and do to them what an operator does."""
        for name in EXPECTED:
            with suppress(ScheduleNotFound):  # the one that is added below
                await self._app.schedules.resume(name)  # an earlier show has paused it
        self._screen.say("two dispatchers and a pool of 5 are at work on the cron jobs of demo.yaml")
        await self._refuse()
        await cron_jobs.add(ADDED, "sample", every="1s", missed="all", app=self._app)
        self._screen.say(f"{ADDED}: added while everything runs")
        await self._watch(PAUSE_AT, lambda: self._fired("heartbeat") >= 1)
        await self._app.schedules.pause("heartbeat")
        self._screen.say("heartbeat: paused")
        await self._watch(RESUME_AT)
        before = self._fired("heartbeat")
        await self._app.schedules.resume("heartbeat")
        self._screen.say("heartbeat: resumed")
        await self._watch(END_AT, lambda: self._fired("heartbeat") > before and all(map(self._fired, EXPECTED)))
        await self._put_away()

    async def _refuse(self) -> None:
        """Invalid cron jobs are refused at once and change nothing."""
        try:
            await cron_jobs.add("wrong", "sample", {"sleep": 1}, every="1s", app=self._app)
        except InvalidArguments as error:
            self._screen.say(f"refused: {error}")

    async def _put_away(self) -> None:
        """Remove the cron jobs: a kept database must not fire them when the next dispatcher starts."""
        for name in EXPECTED:
            await self._app.schedules.pause(name)
        await self._app.schedules.remove(ADDED)

    async def drain(self) -> None:
        """Stop the ticks and wait for the executions to end."""
        deadline = time.monotonic() + DRAIN_SECONDS
        while not all(found.status.final for found in await self._look()) and time.monotonic() < deadline:
            await asyncio.sleep(LOOK_SECONDS)

    async def _watch(self, until: float, shown: Callable[[], bool] = lambda: True) -> None:
        """Watch until this many seconds of the demo have passed and its subject has been shown."""
        while self._seconds() < until or (not shown() and self._seconds() < LONGEST_SECONDS):
            await self._look()
            await asyncio.sleep(LOOK_SECONDS)

    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def _fired(self, name: str) -> int:
        return sum(found.job_id == name for found in self.seen)

    async def _look(self) -> list[Execution]:
        self.seen = await get_executions(newer_than=self._newest, limit=10_000, app=self._app)
        for name in EXPECTED:
            counted = Counter(str(found.status) for found in self.seen if found.job_id == name)
            if counted:
                self._screen.numbers(name, counted)
        return self.seen
