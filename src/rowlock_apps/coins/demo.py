"""`rowlock demo coins`: twelve coins and four markets, of which one works, one fails at first, one limits its rate and
one is gone."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rich.console import Console

from rowlock import JobHandle, State
from rowlock_apps.coins.app import Coins, Submission
from rowlock_apps.coins.coin import Coin
from rowlock_apps.coins.markets import Markets, flaky, metered, steady
from rowlock_apps.coins.report import as_table
from rowlock_apps.stage import Stage, stage

LOOK_SECONDS = 0.2
LONGEST_SECONDS = 25.0  # of one pass
WAITING = (State.QUEUED, State.RETRYABLE)
LIVING, DEAD = ("steady", "flaky", "metered"), "dead"
FOUND = 6  # listings that a stand-in has of each coin
COINS = [
    Coin(year=year, mintmark=mintmark, series=series, denomination=denomination)
    for year, mintmark, series, denomination in [
        (1881, "S", "Morgan", "Dollar"),
        (1889, "CC", "Morgan", "Dollar"),
        (1921, "D", "Morgan", "Dollar"),
        (1922, "", "Peace", "Dollar"),
        (1928, "S", "Peace", "Dollar"),
        (1916, "D", "Mercury", "Dime"),
        (1942, "", "Mercury", "Dime"),
        (1909, "S", "Lincoln", "Cent"),
        (1914, "D", "Lincoln", "Cent"),
        (1932, "D", "Washington", "Quarter"),
        (1917, "S", "Walking Liberty", "Half Dollar"),
        (1937, "D", "Buffalo", "Nickel"),
    ]
]


async def play(database: str, live: bool) -> list[str]:
    """Collect prices twice; returns the mistakes."""
    with tempfile.TemporaryDirectory(prefix="rowlock-coins-") as folder:
        # Delays are seconds instead of minutes; everything else is as in the config.
        coins = Coins(database, base_delay=timedelta(seconds=0.4), cache_file=Path(folder) / "cache.db")
        await coins.app.migrate()
        async with coins.app, Markets() as markets:
            show = Show(coins, markets)
            await show.prepare()
            async with coins.app.worker(shutdown_timeout_seconds=1):
                with stage(live) as screen:
                    await show.first_pass(screen)
                    await show.second_pass(screen)
            await show.clear_up()
            worths = [worth for worth in await coins.report() if worth.coin in COINS]
            Console().print(as_table(worths))
            show.check(len(worths) == len(COINS), f"{len(worths)} coins are reported, not {len(COINS)}")
            for worth in worths:
                right = worth.points == FOUND * len(LIVING) and worth.cents is not None
                show.check(right, f"{worth.coin} has {worth.points} points and is worth {worth.cents} cents")
            show.summarise()
    return show.mistakes


class Show:
    """Two passes over all coins, watched."""

    def __init__(self, coins: Coins, markets: Markets) -> None:
        self._coins, self._app, self._markets = coins, coins.app, markets
        self._told: Counter[str] = Counter()  # by job: how many failed attempts were shown
        self._bars: dict[str, tuple[int, int]] = {}
        self._breaker_told = False
        self._waiting: list[JobHandle[Any]] = []
        self._intakes: list[int] = []
        self.mistakes: list[str] = []
        self.summary: list[str] = []

    def check(self, right: bool, otherwise: str) -> None:
        """Record a mistake unless the condition holds."""
        if not right:
            self.mistakes.append(otherwise)

    async def prepare(self) -> None:
        """Open the markets. An earlier demo on this database may have left jobs, and a breaker open."""
        known = {source.name for source in await self._app.sources.list()}
        for market in [*LIVING, DEAD]:
            for job in await self._app.jobs(state=WAITING, source=f"api:{market}", limit=500):
                await self._app.cancel(job.id)  # left by a demo that was interrupted
        for market, url in {
            "steady": self._markets.add("steady", steady(0.05)),
            "flaky": self._markets.add("flaky", flaky(3)),
            "metered": self._markets.add("metered", metered(6)),
            DEAD: self._markets.add_dead(DEAD),
        }.items():
            await self._coins.set_market(market, url)
            if f"api:{market}" in known:
                await self._app.sources.resume(f"api:{market}")
        # The rate is a little higher than the market allows, so that the demo shows Retry-After.
        await self._app.sources.set("api:metered", rate="6/s", burst=7)

    async def clear_up(self) -> None:
        """Cancel what is left and reset the limits: the database may be kept."""
        for job in self._waiting:
            if not (await job.refresh()).record.final:
                await self._app.cancel(job.id)
        await self._app.sources.reset("api:metered")

    # --- the two passes

    async def first_pass(self, screen: Stage) -> None:
        """Everything is asked for the first time."""
        screen.say(f"{len(COINS)} coins, {len(LIVING) + 1} markets: one scrape job for each pair")
        submitted = [await self._coins.submit(coin, [*LIVING, DEAD]) for coin in COINS]
        self._intakes = [submission.intake_id for submission in submitted]
        jobs = await self._watch(screen, submitted)
        self._waiting = [job for job in jobs if job.source == f"api:{DEAD}"]
        answered = [job for job in jobs if job not in self._waiting]
        retried = [job for job in answered if job.attempt > 1]
        untouched = [job for job in self._waiting if job.attempt == 0]
        refused = self._markets.asked["metered"] - len(COINS)
        self.check(len(answered) == len(COINS) * len(LIVING), f"{len(answered)} jobs of living markets")
        for job in answered:
            self.check(job.state == State.SUCCEEDED, f"{job.source}: {job.state}: {first_line(job.error_message)}")
        self.check(self._markets.asked["flaky"] > len(COINS), "the flaky market was never asked again")
        self.check(refused > 0, "the metered market was never asked too often")
        self.check(self._breaker_told, "the dead market's breaker did not open")
        self.check(bool(untouched), "every job of the dead market was tried")
        self.summary += [
            f"{len(answered)} of {len(jobs)} jobs succeeded, {len(retried)} of them after failures that passed",
            f"the metered market said 'slow down' {refused} ×, and was left alone as long as it asked",
            f"the dead market's breaker opened; {len(untouched)} jobs wait for it and have used up no try",
        ]

    async def second_pass(self, screen: Stage) -> None:
        """The same again: the cache answers, and nothing is written twice."""
        screen.say("once more: what was answered within the hour is cached, and no price is written twice")
        before = self._markets.asked.total()
        jobs = await self._watch(screen, [await self._coins.collect(intake, LIVING) for intake in self._intakes])
        results = [job.result or {} for job in jobs]
        hits, kept = sum(r.get("cached", False) for r in results), sum(r.get("kept", 0) for r in results)
        self.check(hits == len(jobs), f"{hits} of {len(jobs)} answers came from the cache")
        self.check(self._markets.asked.total() == before, "a market was asked although its answer was cached")
        self.check(sum(r.get("written", 0) for r in results) == 0, "a price point was written a second time")
        rate = 100 * hits // max(len(jobs), 1)
        self.summary.append(f"second pass: {rate} % from the cache, no request, {kept} price points known already")

    async def _watch(self, screen: Stage, submitted: list[Submission]) -> list[JobHandle[Any]]:
        """Show the jobs until all are done that can be."""
        wanted = {job.id for submission in submitted for job in submission.jobs}
        deadline = time.monotonic() + LONGEST_SECONDS
        while True:
            jobs = [job for job in await self._app.jobs(task="coins.scrape", limit=500) if job.id in wanted]
            self._show(screen, jobs)
            await self._show_failures(screen, jobs)
            await self._show_breaker(screen)
            left = [job for job in jobs if not job.record.final]
            stuck = self._breaker_told and all(job.source == f"api:{DEAD}" and job.state != "running" for job in left)
            if not left or stuck or time.monotonic() > deadline:
                return jobs
            await asyncio.sleep(LOOK_SECONDS)

    def _show(self, screen: Stage, jobs: list[JobHandle[Any]]) -> None:
        for market in sorted({job.source for job in jobs}):
            ended = [job.state == State.SUCCEEDED for job in jobs if job.source == market]
            if self._bars.get(market) != (sum(ended), len(ended)):
                self._bars[market] = (sum(ended), len(ended))
                screen.bar(market.removeprefix("api:"), *self._bars[market])
        screen.numbers("jobs", Counter(str(job.state) for job in jobs))

    async def _show_failures(self, screen: Stage, jobs: list[JobHandle[Any]]) -> None:
        """From the history: between two looks a job may have failed and succeeded."""
        for job in jobs:
            failed = job.attempt - (job.state in (State.RUNNING, State.SUCCEEDED))
            if failed > self._told[job.id]:
                for attempt in (await self._app.attempts(job.id))[self._told[job.id] :]:
                    self._told[job.id] += 1
                    screen.say(f"{first_line(attempt.error_message)} (attempt {attempt.attempt}); will be tried again")

    async def _show_breaker(self, screen: Stage) -> None:
        for source in await self._app.sources.list():
            if source.name == f"api:{DEAD}" and source.state(datetime.now(UTC)) == "broken" and not self._breaker_told:
                self._breaker_told = True
                until = f"{source.paused_until:%H:%M:%S}" if source.paused_until else "further notice"
                screen.say(f"{source.failure_streak} failures in a row: {DEAD} is left alone until {until} UTC")

    def summarise(self) -> None:
        """What a newcomer should take home."""
        for number, line in enumerate(self.summary):
            print(f"{'           ' if number else 'done       '}{line}")


def first_line(message: str | None) -> str:
    """What went wrong; the other lines name the place in the code."""
    return (message or "").partition("\n")[0]
