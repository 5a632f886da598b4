"""One class with two sources, as the contract sees it: slots, bucket and breaker, and games of random steps with them.

Written from the contract; shares no code with the store. Laws that need no model are checked beside it: at no instant
more than k run, no window sees more claims than burst + rate × window, a half-open source has one probe at most.
"""

import asyncio
import math
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rowlock.core.job import Claimed
from rowlock.core.outcome import AttemptEnd, Cancelled, Failed, Released, Succeeded, TimedOut
from rowlock.core.times import FakeClock
from rowlock.store import open_store
from rowlock.store.engine.store import StoreOptions
from support.rigs.rig import LEASE, TABLES, Rig
from support.rigs.sources import claim_turns, sources, succeed

NAMES = ["api:a", "api:b"]
QUARTER = 0.25  # times are multiples of it, so that they are exact as binary fractions
COOLDOWN = 8.0
ENDS: dict[str, AttemptEnd] = {
    "succeed": Succeeded(),
    "fail": Failed("HTTP_503", "down", fault="source"),
    "die": Failed("HTTP_500", "down", fault="source", permanent=True),
    "time out": TimedOut(3),
    "bug": Failed("ValueError", "bug"),
    "cancelled": Cancelled(),
    "release": Released(0),
}
SOURCES_FAULT = ("fail", "die", "time out")


class World:
    """A store with an event loop and a clock of its own, used for many games."""

    def __init__(self, url: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.clock = FakeClock()
        store = self.loop.run_until_complete(open_store(url, StoreOptions(clock=self.clock)))
        self.rig = Rig(store, self.clock)

    def do(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def reset(self) -> None:
        for table in TABLES:
            self.do(self.rig.fetch(f"DELETE FROM {{t}}{table}"))
        self.do(self.rig.fetch("DELETE FROM {t}sources WHERE name LIKE 'api%'"))

    def close(self) -> None:
        self.do(self.rig.store.close())
        self.loop.close()


@dataclass
class Model:
    """One source. Times in seconds since the game began."""

    tokens: float
    filled_at: float = 0.0
    streak: int = 0
    opens: int = 0
    open_until: float | None = None
    era: int = 0  # grows when the breaker opens or closes
    running: dict[str, tuple[Claimed, int, float]] = field(default_factory=dict)  # lease, era, end of the lease
    claims: list[float] = field(default_factory=list)

    @property
    def probes(self) -> int:
        """Running jobs that were claimed since it opened."""
        return 0 if self.open_until is None else sum(era == self.era for _, era, _ in self.running.values())


class Game(RuleBasedStateMachine):
    """Steps that both games have. `world` is set by the test that plays it."""

    world: World

    def __init__(self) -> None:
        super().__init__()
        self.world.reset()
        self.began = self.world.clock.now()
        self.passed = 0.0  # time that has really passed, whatever the clock says
        self.models: dict[str, Model] = {}
        self.zombies: list[Claimed] = []

    def begin(
        self,
        k: int,
        total: int,
        rate: int | None = None,
        burst: int | None = None,
        threshold: int = 1000,
        factor: int = 1,
    ) -> None:
        self.k, self.total, self.threshold, self.factor = k, total, threshold, factor
        self.rate, self.burst = (math.inf, 10**6) if rate is None or burst is None else (rate / 60, burst)
        limits = {"concurrency": k, "total": total, "rate": None if rate is None else f"{rate}/min", "burst": burst}
        breaker = {"threshold": threshold, "factor": factor, "cooldown": COOLDOWN}
        self.world.do(sources(self.world.rig).set("api", **limits, **breaker))
        self.models = {name: Model(float(self.burst)) for name in NAMES}
        for name in NAMES:  # enough for the whole game
            self.world.do(self.world.rig.enqueue_many(200, source=name, max_attempts=1000))

    @property
    def now(self) -> float:
        return (self.world.clock.now() - self.began).total_seconds()

    def level(self, model: Model) -> float:
        elapsed = max(0.0, self.now - model.filled_at)
        return min(float(self.burst), model.tokens + (self.rate * elapsed if elapsed else 0.0))

    def room(self, model: Model) -> int:
        """How many may start now."""
        free = max(0, min(self.k - len(model.running), int(self.level(model))))
        if model.open_until is None:
            return free
        return 0 if model.probes or self.now < model.open_until else min(free, 1)

    @rule(n=st.integers(1, 6), worker=st.sampled_from(["w1", "w2"]))
    def claim(self, n: int, worker: str) -> None:
        rooms = {name: self.room(model) for name, model in self.models.items()}
        class_room = max(0, self.total - len(self.running()))
        claimed = self.world.do(claim_turns(self.world.rig, n, worker=worker))
        assert len(claimed) == min(n, class_room, sum(rooms.values()))
        for name, model in self.models.items():
            got = [job for job in claimed if job.source == name]
            assert len(got) <= rooms[name]
            if got:
                model.tokens, model.filled_at = self.level(model) - len(got), max(model.filled_at, self.now)
            model.running |= {job.id: (job, model.era, self.now + LEASE) for job in got}
            model.claims += [self.passed] * len(got)

    def running(self) -> list[Claimed]:
        return [job for model in self.models.values() for job, _, _ in model.running.values()]

    @precondition(lambda self: self.running())
    @rule(data=st.data(), ends=st.lists(st.sampled_from([*ENDS, *SOURCES_FAULT, "succeed"]), min_size=1, max_size=4))
    def end(self, data: Any, ends: list[str]) -> None:
        for how in ends[: len(self.running())]:
            self.end_one(data.draw(st.sampled_from(self.running())), how, data.draw(st.booleans()))

    def end_one(self, job: Claimed, how: str, shortest: bool) -> None:
        if how == "succeed" and shortest:
            self.world.do(succeed(self.world.rig, job))
        else:
            assert self.world.do(self.world.rig.settle(job, ENDS[how])) == "applied"
        model = self.models[job.source or ""]
        _, era, _ = model.running.pop(job.id)
        if era != model.era:
            return
        if how == "succeed":
            model.streak = 0
            if model.open_until is not None:
                model.open_until, model.opens, model.era = None, 0, model.era + 1
        elif how in SOURCES_FAULT:
            model.streak += 1
            if model.open_until is not None or model.streak >= self.threshold:
                model.open_until = self.now + COOLDOWN * self.factor**model.opens
                model.opens, model.era = model.opens + 1, model.era + 1

    @rule(quarters=st.sampled_from([1, 1, 2, 4, 16, 32, 64]))
    def wait(self, quarters: int) -> None:
        self.world.clock.move(quarters * QUARTER)
        self.passed += quarters * QUARTER

    @precondition(lambda self: self.running())
    @rule()
    def workers_die(self) -> None:
        self.wait(int(4 * LEASE) + 1)
        lost = {one.job.id for one in self.world.do(self.world.rig.reclaim(draw=0.0))}
        for model in self.models.values():
            over = {job_id for job_id, (_, _, end) in model.running.items() if end < self.now}
            assert over <= lost
            self.zombies += [model.running.pop(job_id)[0] for job_id in sorted(over)]
            lost -= over
        assert not lost

    @precondition(lambda self: self.zombies)
    @rule(data=st.data(), how=st.sampled_from([*ENDS]))
    def a_zombie_speaks(self, data: Any, how: str) -> None:
        zombie = data.draw(st.sampled_from(self.zombies))
        assert self.world.do(self.world.rig.settle(zombie, ENDS[how])) == "lost"

    @invariant()
    def the_running_rows_are_those_of_the_model_and_no_more_than_may(self) -> None:
        counted = "SELECT source, count(*) FROM {t}jobs_live WHERE state = 'running' GROUP BY 1"
        running = dict(self.world.do(self.world.rig.fetch(counted)))
        assert running == {name: len(model.running) for name, model in self.models.items() if model.running}
        assert all(count <= self.k for count in running.values())
        assert not running or sum(running.values()) <= self.total

    @invariant()
    def the_breakers_are_those_of_the_model_and_have_one_probe_at_most(self) -> None:
        for source in self.world.do(sources(self.world.rig).list(after="api:")):
            if model := self.models.get(source.name):
                assert (source.failure_streak, source.opens) == (model.streak, model.opens)
                until = None if source.paused_until is None else (source.paused_until - self.began).total_seconds()
                assert until == model.open_until
                assert model.probes <= 1

    @invariant()
    def no_window_sees_more_than_its_burst_and_what_the_rate_brings(self) -> None:
        for model in self.models.values():
            for first, start in enumerate(model.claims):
                for last in range(first + self.burst, len(model.claims)):
                    assert last - first + 1 <= self.burst + self.rate * (model.claims[last] - start)


class Limits(Game):
    """Slots and buckets, with a clock that is set back at times."""

    @initialize(
        k=st.integers(1, 4), total=st.integers(1, 6), rate=st.sampled_from([15, 60, 240]), burst=st.integers(1, 6)
    )
    def set_limits(self, k: int, total: int, rate: int, burst: int) -> None:
        self.begin(k, total, rate, burst)

    @rule(quarters=st.sampled_from([8, 40]))
    def set_the_clock_back(self, quarters: int) -> None:
        self.world.clock.move(-quarters * QUARTER)


class Breaker(Game):
    """The breaker, with hardly any other limit."""

    @initialize(threshold=st.integers(1, 3), factor=st.sampled_from([1, 2]))
    def set_breaker(self, threshold: int, factor: int) -> None:
        self.begin(6, 11, threshold=threshold, factor=factor)

    def cooling(self) -> list[float]:
        ends = [model.open_until for model in self.models.values() if model.open_until is not None]
        return [end for end in ends if end > self.now]

    @precondition(lambda self: self.cooling())
    @rule()
    def wait_for_the_cooldown(self) -> None:
        self.wait(math.ceil((min(self.cooling()) - self.now) / QUARTER))
