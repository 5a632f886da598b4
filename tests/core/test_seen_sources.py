"""Which sources a worker claims from, without a database or a clock: a model of the table stands in for them."""

from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import islice, pairwise, takewhile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rowlock.core.claiming import survey
from rowlock.core.claiming.actions import Claim, ClaimResult, ClaimSourced, Fill, Look
from rowlock.core.claiming.pick import Found, deal
from rowlock.core.claiming.plan import Plan
from rowlock.core.claiming.ranges import PLAIN, Position, QueueTask, Sighting, SourceRange
from rowlock.core.claiming.survey import SeenSources
from rowlock.core.config import WorkerSettings
from rowlock.core.job import Claimed
from rowlock.core.sources.admission import Gate, admit, class_of
from support.each import each
from support.rigs.gates import OPEN

NOBODY = Claimed(id="", task="")


@dataclass
class Table:
    """Ready jobs, and the sources with their limits, as the database would have them."""

    jobs: dict[tuple[str, int, str], int] = field(default_factory=lambda: defaultdict(int))  # task, priority, source
    gates: dict[str, Gate] = field(default_factory=dict)
    tokens_at: dict[str, float] = field(default_factory=dict)
    running: Counter[str] = field(default_factory=Counter)
    running_of_class: Counter[str] = field(default_factory=Counter)
    started: list[tuple[str, int, str]] = field(default_factory=list)
    _index: list[tuple[str, int, str]] = field(default_factory=list)  # the keys of `jobs` in order

    def gate(self, source: str, now: float) -> Gate:
        gate = self.gates.get(source, OPEN)
        if gate.paused_for is not None:  # most of 10,000 sources: this is quick
            return gate._replace(paused_for=gate.paused_for - now)  # kept as the moment of its end
        elapsed = now - self.tokens_at[source] if source in self.tokens_at else None
        return gate._replace(
            elapsed=elapsed,
            running=self.running[source],
            class_running=self.running_of_class[class_of(source)],
        )

    def look(self, ranges: list[SourceRange], now: float) -> list[Sighting]:
        if len(self._index) != len(self.jobs):
            self._index = sorted(self.jobs)
        sightings = list[Sighting]()
        for one in ranges:
            start = bisect_right(self._index, (one.task, one.low_priority, one.low_source))
            behind = islice(self._index, start, None)
            own = takewhile(lambda key, task=one.task: key[0] == task, behind)
            ready = (key for key in own if key[2] and self.jobs[key])
            sightings += [
                Sighting(Position(one.queue, *key), self.gate(key[2], now), last=nth == one.most)
                for nth, key in enumerate(islice(ready, one.most), 1)
            ]
        return sorted(sightings, key=lambda one: one.position.priority)

    def claim(self, action: ClaimSourced, sightings: list[Sighting], n: int, now: float) -> ClaimResult:
        """As store/sources/claim.py: count anew, deal, claim."""
        gates = {one.source: self.gate(one.source, now) for one in sightings}
        room = {source: admit(gate).room for source, gate in gates.items()}
        names = {(one.position.task, one.position.priority, one.source) for one in sightings if room[one.source] > 0}
        if action.plain:
            names |= {name for name in self.jobs if not name[2] and name[1] < action.plain[0].high_priority}
        found = [
            Found(f"{k:04}{task}", priority, source or None, "default", task)
            for task, priority, source in names
            for k in range(min(self.jobs[task, priority, source], n))
        ]
        picks = deal(found, n, order=action.order, room=room, class_room={}, asked={})
        for job in picks:
            name = (job.task, job.priority, job.source or PLAIN)
            self.jobs[name] -= 1
            self.running[name[2]] += 1
            self.running_of_class[class_of(name[2])] += 1
            self.started.append(name)
            if job.source and (gate := self.gates.get(job.source)) is not None and gate.rate is not None:
                self.gates[job.source] = gate._replace(tokens=(gates[job.source].level or 0) - 1)
                gates[job.source] = gates[job.source].after(1, 1)
                self.tokens_at[job.source] = now
        left = {
            position for position, _, _ in sightings if self.jobs[position.task, position.priority, position.source]
        }
        claimed = [NOBODY._replace(id=j.id, task=j.task, priority=j.priority, source=j.source) for j in picks]
        now_gates = {source: self.gate(source, now) for source in gates}
        return ClaimResult(claimed, any(not job.source for job in found), left, now_gates, ())


@dataclass
class Worker:
    """A plan that is carried out on the table; each job runs for `seconds`."""

    table: Table
    slots: int
    tasks: list[str]
    now: float = 0.0
    ends: list[tuple[float, str]] = field(default_factory=list)
    statements: int = 0

    def __post_init__(self) -> None:
        self.plan = Plan(WorkerSettings(), self.tasks, [], True, lambda: 0.5)
        self.plan.idle = True

    def run(self, until: float, seconds: float = 0.05, look_seconds: float = 0.0) -> None:
        while self.now < until:
            free = self.slots - len(self.ends)
            action = self.plan._next_sourced(free, self.now)
            if isinstance(action, Look):
                began = self.now
                self.now += look_seconds
                self.statements += 1
                heads = self.table.look(action.ranges, self.now)
                self.plan.sources.saw(action.ranges, heads, began, self.now)
            elif isinstance(action, ClaimSourced):
                self.statements += 1
                taken = [self.table.claim(action, heads, n, self.now) for heads, n in action.parts]
                self.plan.claimed_sourced(action, taken, self.now)
                self.ends += [(self.now + seconds, job.source or PLAIN) for one in taken for job in one.jobs]
            else:
                # Without a free slot, only the end of an attempt makes a difference.
                opens = [self.plan.sources.next_at(self.now)] if free > 0 else []
                self.end(min([until, *(at for at, _ in self.ends), *opens]))

    def end(self, at: float) -> None:
        """Move the clock, and end the attempts that are over."""
        self.now = max(self.now + 1e-6, at)
        for over in [one for one in self.ends if one[0] <= self.now]:
            self.ends.remove(over)
            self.table.running[over[1]] -= 1
            self.table.running_of_class[class_of(over[1])] -= 1
            self.plan.sources.freed(over[1], 1, self.now)


def closed(count: int, priority: int = 0, task: str = "a") -> Table:
    """Sources that an operator has paused for an hour, each with jobs."""
    table = Table()
    for n in range(count):
        table.jobs[task, priority, f"domain:{n:05}"] = 3
        table.gates[f"domain:{n:05}"] = OPEN._replace(paused_for=3600.0)
    return table


# Closed sources cost nothing and delay nobody


@each("count", [0, 500, 10_000])
def test_beside_closed_sources_a_source_of_60_a_minute_starts_a_job_each_second(count: int) -> None:
    table = closed(count)
    table.jobs["a", 0, "zeta:limited"] = 100
    table.gates["zeta:limited"] = OPEN._replace(rate=60.0, burst=1)
    worker = Worker(table, 10, ["a"])
    worker.run(until=10.0, look_seconds=0.05)
    assert 9 <= len(table.started) <= 11


def test_a_worker_before_10000_closed_sources_looks_at_most_once_a_second() -> None:
    table = closed(10_000)
    worker = Worker(table, 10, ["a"])
    worker.run(until=10.0, look_seconds=0.05)
    worker.statements = 0
    worker.run(until=40.0, look_seconds=0.05)
    assert worker.statements <= 32


def test_the_end_of_a_pause_is_noticed_at_once_among_10000_closed_sources() -> None:
    table = closed(10_000)
    table.gates["domain:07777"] = OPEN._replace(paused_for=12.5)
    worker = Worker(table, 10, ["a"])
    worker.run(until=12.5, look_seconds=0.05)
    assert table.started == []
    worker.run(until=12.6, look_seconds=0.05)
    assert {name[2] for name in table.started} == {"domain:07777"}


def test_a_source_that_this_worker_keeps_full_goes_on_among_10000_closed_sources() -> None:
    table = closed(10_000)
    table.jobs["a", 0, "zeta:full"] = 1000
    table.gates["zeta:full"] = OPEN._replace(concurrency=2)
    worker = Worker(table, 10, ["a"])
    worker.run(until=5.0, seconds=0.1, look_seconds=0.05)
    assert len(table.started) >= 0.8 * 2 * 5 / 0.1


def test_a_new_source_is_found_behind_10000_closed_ones_after_a_wake_up() -> None:
    table = closed(10_000)
    worker = Worker(table, 10, ["a"])
    worker.run(until=30.0, look_seconds=0.05)
    table.jobs["a", 0, "zeta:new"] = 1
    worker.plan.woken(worker.now)
    worker.run(until=33.0, look_seconds=0.05)
    assert table.started == [("a", 0, "zeta:new")]


# What a worker knows is out of date


def at(source: str, priority: int = 0) -> Position:
    return Position("default", "a", priority, source)


def seen(source: str, **gate: object) -> Sighting:
    return Sighting(at(source), OPEN._replace(**gate))


def full(source: str = "api:x") -> SeenSources:
    """A worker that knows one source with jobs, and has just filled its only slot."""
    sources = SeenSources([QueueTask("default", "a")], 5.0)
    sources.saw(sources.ranges(), [seen(source, concurrency=1, running=0)], 0.0, 0.0)
    head = seen(source, concurrency=1, running=1)
    job = NOBODY._replace(task="a", source=source)
    sources.claimed([head], ClaimResult([job], False, {at(source)}, {source: head.gate}), 0.1, 0.2)
    assert not sources.has_open(0.2)
    return sources


def test_a_look_that_began_before_an_attempt_ended_does_not_close_its_source() -> None:
    sources = full()
    sources.freed("api:x", 1, 1.05)
    sources.saw(sources.ranges(), [seen("api:x", concurrency=1, running=1)], 1.0, 1.1)
    assert sources.has_open(1.1)
    sources.saw(sources.ranges(), [seen("api:x", concurrency=1, running=1)], 1.2, 1.3)
    assert not sources.has_open(1.3), "a look that began later knows better"


def test_a_claim_that_began_before_an_attempt_ended_does_not_close_its_source() -> None:
    sources = full()
    sources.freed("api:x", 1, 1.05)
    sources.claimed([], ClaimResult([]), 1.0, 1.1)
    gates = {"api:x": OPEN._replace(concurrency=1, running=1)}
    left = {at("api:x")}
    sources.claimed([seen("api:x")], ClaimResult([NOBODY], False, left, gates), 1.0, 1.1)
    assert sources.has_open(1.1)


@each("ended", [1, 2])
def test_a_full_source_has_a_turn_of_as_many_jobs_as_attempts_of_it_have_ended(ended: int) -> None:
    """Else a claim would name twice as many sources as it needs."""
    sources, heads = (
        SeenSources([QueueTask("default", "a")], 5.0),
        [seen(f"api:{n}", concurrency=2, running=2) for n in range(80)],
    )
    sources.saw(sources.ranges(), heads, 0.0, 0.0)
    for head in heads:
        sources.freed(head.source, ended, 1.0)
    found = sources.next_turns(64, 1.0)
    assert found is not None
    assert len(found[0]) == 64 / ended


def test_a_full_class_opens_when_an_attempt_of_any_of_its_sources_ends() -> None:
    sources = SeenSources([QueueTask("default", "a")], 5.0)
    gate = {"total": 1, "class_running": 1}
    sources.saw(
        sources.ranges(), [seen("api:x", **gate), seen("api:y", **gate), seen("web:z", concurrency=0)], 0.0, 0.0
    )
    assert not sources.has_open(0.0)
    sources.freed("api:x", 1, 1.05)
    sources.saw(sources.ranges(), [seen("api:x", **gate), seen("api:y", **gate)], 1.0, 1.1)
    assert {head.source for head in sources.next_turns(9, 1.1)[0]} == {"api:x", "api:y"}


def test_a_source_whose_class_is_given_a_total_is_not_claimed_from_again_and_again() -> None:
    sources = SeenSources([QueueTask("default", "a")], 5.0)
    sources.saw(sources.ranges(), [seen("api:x")], 0.0, 0.0)
    gate = OPEN._replace(total=1, class_running=1)
    sources.claimed([seen("api:x")], ClaimResult([], False, {at("api:x")}, {"api:x": gate}), 0.1, 0.2)
    assert not sources.has_open(0.2)
    assert not sources.has_open(5.0)


@each("locked", [True, False], ids=["another worker claims from it", "its jobs cannot be claimed"])
def test_a_source_that_gave_nothing_is_tried_again_soon_and_ever_less_often_but_never_given_up(locked: bool) -> None:
    sources, tried, now = SeenSources([QueueTask("default", "a")], 5.0), list[float](), 0.0
    head = seen("api:x", opened=True)
    while now < 10.0:
        if now >= sources.look_at:
            sources.saw(sources.ranges(), [head], now, now)
        elif sources.next_turns(1, now) is not None:
            tried.append(now)
            sources.claimed(
                [head], ClaimResult([], False, (), {"api:x": head.gate}, {"api:x"} if locked else ()), now, now
            )
        now += 0.01
    assert tried[1] - tried[0] < 0.2
    assert 20 <= len(tried) <= 50
    assert max(after - before for before, after in pairwise(tried)) < 0.6


def test_a_source_that_gave_nothing_counts_as_open_again_after_it_gave_a_job() -> None:
    sources, head = SeenSources([QueueTask("default", "a")], 5.0), seen("api:x")
    sources.saw(sources.ranges(), [head], 0.0, 0.0)
    for now in (0.1, 1.1, 2.1):
        sources.claimed([head], ClaimResult([], False, (), {"api:x": head.gate}, {"api:x"}), now, now)
        assert not sources.has_open(now)
    left = {at("api:x")}
    sources.claimed([head], ClaimResult([NOBODY._replace(source="api:x")], False, left, {"api:x": head.gate}), 3.0, 3.0)
    assert sources.has_open(3.0)


def test_after_a_source_has_given_a_job_earlier_misses_do_not_lengthen_its_next_pause() -> None:
    sources, head = SeenSources([QueueTask("default", "a")], 5.0), seen("api:x")
    nothing = ClaimResult([], False, (), {"api:x": head.gate}, {"api:x"})
    sources.saw(sources.ranges(), [head], 0.0, 0.0)
    for now in (0.1, 1.1, 2.1):
        sources.claimed([head], nothing, now, now)
    left = {at("api:x")}
    sources.claimed([head], ClaimResult([NOBODY._replace(source="api:x")], False, left, {"api:x": head.gate}), 3.0, 3.0)
    sources.claimed([head], nothing, 4.0, 4.0)
    assert not sources.has_open(4.0)
    assert sources.has_open(4.0 + 2 * survey.BUSY_SECONDS), "the pause after a first miss"


def test_a_survey_that_was_cut_short_goes_on_as_soon_as_what_it_showed_is_used_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(survey, "MOST", 2)
    sources, heads = SeenSources([QueueTask("default", "a")], 5.0), [seen("api:x"), seen("api:y")._replace(last=True)]
    sources.saw(sources.ranges(), heads, 0.0, 0.0)
    assert sources.look_at == survey.CLOSED_SECONDS, "while jobs can start, the next look can wait"
    jobs = [NOBODY._replace(source=head.source) for head in heads]
    sources.claimed(heads, ClaimResult(jobs, False, (), {head.source: head.gate for head in heads}), 0.1, 0.2)
    assert sources.look_at <= 0.2
    assert sources.ranges()[0].low_source == "api:y", "behind what it showed"


def test_between_the_looks_of_a_long_survey_jobs_without_a_source_are_claimed() -> None:
    """A survey of 10,000 sources takes a while, and plain jobs wait for half a second of the first one, not for its
    end."""
    plan, table, now = Plan(WorkerSettings(), ["a"], [], True, lambda: 0.5), closed(10_000), 0.0
    kinds = list[str]()
    for _ in range(24):
        action = plan.next(Fill(5, 0, 0), now)
        kinds.append(type(action).__name__)
        now += 0.1
        if isinstance(action, Look):
            plan.sources.saw(action.ranges, table.look(action.ranges, now), action.began, now)
        elif isinstance(action, Claim):
            plan.claimed(action, [NOBODY] * action.n, now, now)
    assert kinds.count("Look") >= 10
    assert "LookLookLook" not in "".join(kinds[5:])


def test_more_sources_than_one_survey_shows_all_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "MOST", 300)
    table = Table()
    for n in range(1000):
        table.jobs["a", 0, f"api:{n:05}"] = 1
    worker = Worker(table, 50, ["a"])
    while len(table.started) < len(table.jobs) and worker.now < 60:
        worker.run(until=worker.now + 1.0, seconds=0.01)
    assert len(table.started) == len(table.jobs)


# Round robin


@settings(max_examples=30, deadline=None)
@given(
    sources=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 500)), min_size=1, max_size=40, unique=True),
    slots=st.sampled_from([1, 2, 7, 64, 100]),
    seconds=st.sampled_from([0.001, 0.05, 3.0]),
    closed_count=st.sampled_from([0, 400]),
)
def test_no_open_source_of_a_priority_waits_for_more_than_twice_as_many_starts_as_there_are_sources(
    sources: list[tuple[str, int]], slots: int, seconds: float, closed_count: int
) -> None:
    table = closed(closed_count, task="b")
    names = {f"domain:open-{task}{n:04}": task for task, n in sources}
    for name, task in names.items():
        table.jobs[task, 0, name] = 10_000
    worker = Worker(table, slots, ["a", "b", "c"])
    while len(table.started) < 12 * len(names) + 2 * slots and worker.now < 500:
        worker.run(until=worker.now + max(seconds, 0.02), seconds=seconds, look_seconds=0.002)
    last = dict.fromkeys(names, 0)
    for at, (_, _, source) in enumerate(table.started, 1):
        assert at - last[source] <= 2 * len(names), f"{source} waited from start {last[source]} to {at}"
        last[source] = at
    assert all(len(table.started) - at <= 2 * len(names) for at in last.values())


def test_a_source_whose_jobs_come_one_at_a_time_does_not_go_before_the_others_each_time() -> None:
    table = Table()
    table.jobs["a", 0, "api:busy"] = 1000
    worker = Worker(table, 1, ["a"])
    for _ in range(40):
        table.jobs["a", 0, "api:rare"] = 1
        worker.plan.woken(worker.now)
        worker.run(until=worker.now + 0.05)
    starts = Counter(name[2] for name in table.started)
    assert abs(starts["api:busy"] - starts["api:rare"]) <= 2


def test_jobs_without_a_source_have_one_turn_among_the_sources() -> None:
    table = Table()
    for source in ("api:a", "api:b", PLAIN):
        table.jobs["a", 0, source] = 1000
    worker = Worker(table, 1, ["a"])
    worker.run(until=3.0)
    starts = Counter(name[2] for name in table.started)
    assert max(starts.values()) - min(starts.values()) <= 2


# Priorities


@each("slots", [1, 100])
@each("better", [100, 3000])
def test_an_urgent_source_behind_many_closed_ones_comes_before_an_open_source_of_another_task(
    slots: int, better: int
) -> None:
    table = closed(better, priority=-5, task="b")
    table.jobs["b", -5, "zeta:urgent"] = 30
    for n in range(50):
        table.jobs["a", 0, f"api:{n:02}"] = 10
    worker = Worker(table, slots, ["a", "b"])
    while len(table.started) < 100:
        worker.run(until=worker.now + 0.1, look_seconds=0.002)
    assert [priority for _, priority, _ in table.started[:31]] == [-5] * 30 + [0]


@settings(max_examples=60, deadline=None)
@given(
    jobs=st.dictionaries(
        st.tuples(st.sampled_from("ab"), st.integers(-2, 2), st.integers(0, 60)), st.integers(1, 3), min_size=1
    ),
    slots=st.sampled_from([1, 5, 100]),
)
def test_sources_are_served_strictly_by_priority(jobs: dict[tuple[str, int, int], int], slots: int) -> None:
    table = Table()
    for (task, priority, n), count in jobs.items():
        table.jobs[task, priority, f"api:{n:02}"] = count
    worker = Worker(table, slots, ["a", "b"])
    total = sum(jobs.values())
    while len(table.started) < total and worker.now < 100:
        worker.run(until=worker.now + 0.1)
    priorities = [priority for _, priority, _ in table.started]
    assert len(priorities) == total
    assert priorities == sorted(priorities)


@each("slots", [1, 10])
@each("better", [300, 3000])
def test_jobs_without_a_source_do_not_overtake_an_urgent_source_between_the_looks_of_a_survey(
    slots: int, better: int
) -> None:
    table, now, overtaken = closed(better, priority=-5), 0.0, 0
    table.jobs["a", -4, "zeta:urgent"] = 200
    plan = Plan(WorkerSettings(), ["a"], [], True, lambda: 0.5)
    while table.jobs["a", -4, "zeta:urgent"] and now < 100:
        action = plan.next(Fill(slots, 0, 0), now)
        now += 0.002
        match action:
            case Look():
                plan.sources.saw(action.ranges, table.look(action.ranges, now), action.began, now)
            case ClaimSourced():
                taken = [table.claim(action, heads, n, now) for heads, n in action.parts]
                plan.claimed_sourced(action, taken, now)
            case Claim():  # there are always jobs without a source, of priority 0
                overtaken += 1
                plan.claimed(action, [NOBODY] * action.n, now, now)
    assert overtaken == 0


def test_a_source_without_more_jobs_of_one_priority_goes_on_with_those_of_the_next() -> None:
    sources = SeenSources([QueueTask("default", "a")], 5.0)
    urgent, later = [Sighting(at("api:x", priority), OPEN) for priority in (-20, -10)]
    sources.saw(sources.ranges(), [urgent, later], 0.0, 0.0)
    sources.claimed([urgent], ClaimResult([], False, (), {"api:x": OPEN}), 0.0, 0.01)
    found = sources.next_turns(1, 0.01)
    assert found is not None
    assert [one.position.priority for one in found[0]] == [-10]


def test_more_open_sources_than_are_remembered_all_have_their_turn() -> None:
    table = Table()
    for n in range(3000):
        table.jobs["a", 0, f"api:{n:04}"] = 2
    worker = Worker(table, 100, ["a"])
    while len(table.started) < 6000 and worker.now < 100:
        worker.run(until=worker.now + 0.1, seconds=0.01)
    assert Counter(table.started).most_common()[-1][1] == 2
    assert len(set(table.started[:4500])) >= 2200, "turns of two jobs, first turns before second ones"
