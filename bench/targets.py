"""The targets as data: which series is divided by which, and what the median of the paired ratios must reach."""

from collections.abc import Callable
from dataclasses import dataclass

from bench.catalog import CANDIDATES, OURS
from bench.measures import (
    api,
    batches,
    blocked,
    crowd,
    depth,
    enqueue,
    idle,
    pickup,
    pinned,
    sources,
    steady,
    waiting,
    wakeups,
)
from bench.results import Results
from bench.stats import Spread, paired, spread

LOWEST_PEER = "the peer with the lowest median"
EVERY_PEER = "every peer"
PEERS = tuple(dict.fromkeys(one.name for one in CANDIDATES if one.name not in OURS))
CLOSED = 10_000  # sources that must not hold up an open one
FLAT = 1.10  # memory: "flat" leaves room for an allocator's whims


@dataclass(frozen=True)
class Series:
    """Where numbers come from."""

    measure: str
    case: str
    system: str = "rowlock"


@dataclass(frozen=True)
class Target:
    """`value`, or value / `per` within each round, must be at least or at most `bound` in the median."""

    id: str
    text: str
    value: Series
    bound: float
    at_least: bool
    per: Series | None = None
    unit: str = "×"


@dataclass(frozen=True)
class Verdict:
    """What came of a target; no spread means that it was not measured."""

    target: Target
    measured: Spread | None
    against: str
    note: str = ""

    @property
    def met(self) -> bool | None:
        if self.measured is None:
            return None
        value, bound = self.measured.median, self.target.bound
        return value >= bound if self.target.at_least else value <= bound

    @property
    def word(self) -> str:
        return {True: "met", False: "missed", None: "not measured"}[self.met]


def at_least(number: str, text: str, value: Series, bound: float, per: Series | None = None) -> Target:
    return Target(number, text, value, bound, True, per)


def at_most(number: str, text: str, value: Series, bound: float, per: Series | None = None, unit: str = "×") -> Target:
    return Target(number, text, value, bound, False, per, unit)


ONE, TWO = "1 process", "2 processes"
DRAIN, FILE = "drain-postgres", "drain-sqlite"
PUT, PUT_FILE = "enqueue-postgres", "enqueue-sqlite"
PICK, PICK_FILE = "pickup-postgres", "pickup-sqlite"


def like(series: Series, system: str) -> Series:
    return Series(series.measure, series.case, system)


def targets() -> list[Target]:
    drain_one, drain_two, file_one = Series(DRAIN, ONE), Series(DRAIN, TWO), Series(FILE, ONE)
    single, single_file = Series(PUT, enqueue.ONE), Series(PUT_FILE, enqueue.ONE)
    bulk, bulk_file = Series(PUT, enqueue.BULK), Series(PUT_FILE, enqueue.BULK)
    p50, p99, p50_file = Series(PICK, pickup.P50), Series(PICK, pickup.P99), Series(PICK_FILE, pickup.P50)
    shallow, last = Series("depth", depth.SHALLOW), Series("pinned", pinned.CASE)
    found = [
        at_least("1a", "drain, PostgreSQL, 1 process, against PgQueuer", drain_one, 1.5, like(drain_one, "pgqueuer")),
        at_least("1b", "drain, PostgreSQL, 1 process, against Graphile", drain_one, 1.0, like(drain_one, "graphile")),
        at_least("1c", "drain, PostgreSQL, 2 processes, against Graphile", drain_two, 1.0, like(drain_two, "graphile")),
        at_least("1d", "drain, PostgreSQL, 2 processes against 1", drain_two, 1.0, drain_one),
        at_least("2a", "drain, SQLite, 1 process, against Huey", file_one, 6, like(file_one, "huey")),
        at_least("2b", "drain, SQLite, 2 processes against 1", Series(FILE, TWO), 0.9, file_one),
        at_least("3a", "enqueue one at a time, PostgreSQL, against raw INSERT", single, 0.7, like(single, "raw")),
        at_least("3b", "enqueue one at a time, SQLite, against raw INSERT", single_file, 0.7, like(single_file, "raw")),
        at_least("3c", "bulk, PostgreSQL, against PgQueuer", bulk, 1.5, like(bulk, "pgqueuer")),
        at_least("3d", "bulk, SQLite, against raw multi-row INSERT", bulk_file, 0.25, like(bulk_file, "raw")),
        at_most("4a", "pickup p50, PostgreSQL, against the best peer", p50, 0.8, like(p50, LOWEST_PEER)),
        at_most("4b", "pickup p99, PostgreSQL, against the best peer", p99, 1.25, like(p99, LOWEST_PEER)),
        at_most("4c", "pickup p50, SQLite, against Huey", p50_file, 0.5, like(p50_file, "huey")),
        at_most("4d", "idle worker's CPU, SQLite", Series("idle", f"sqlite: {idle.CPU}"), 1.0, unit="% of a core"),
    ]
    for letter, engine in (("e", "postgres"), ("f", "sqlite")):
        late = Series("delayed", f"{engine}, p99")
        found.append(at_most(f"4{letter}", f"delayed jobs, {engine}, p99 of the lateness", late, 250, unit="ms"))
    for letter, case in zip("abcdef", depth.CASES[1:], strict=True):
        text = f"depth: {case.name}, against {depth.SHALLOW}"
        found.append(at_least(f"5{letter}", text, Series("depth", case.name), 0.85, shallow))
    busy, quiet = Series("wakeups", wakeups.ON), Series("wakeups", wakeups.OFF)
    full, alone = Series("wakeups", wakeups.FULL), Series("wakeups", wakeups.ALONE)
    memory = Series("memory", idle.AFTER)
    return [
        *found,
        at_least("6a", "pinned horizon: last tenth against first", last, 0.7),
        at_least("6b", "pinned horizon: that ratio against every peer's", last, 1.0, like(last, EVERY_PEER)),
        at_most("6c", "steady load, pinned horizon: claim p50, last against first", Series("steady", steady.RATIO), 2),
        at_most("7", "waiting work: time against the ideal", Series("waiting", waiting.CASE), 1.1),
        at_most(
            "8a", "idle worker, PostgreSQL: statements", Series("idle", f"postgres: {idle.STATEMENTS}"), 1, unit="/s"
        ),
        at_most("8b", "idle worker: resident memory", Series("idle", f"postgres: {idle.RSS}"), 70, unit="MB"),
        # Not against an idle worker's: the first jobs load code and buffers once, and that is no growth.
        at_most("8c", "memory after all jobs against after a tenth", memory, FLAT, Series("memory", idle.EARLY)),
        at_least("9a", "8 enqueuers, worker draining: wake-ups on against off", busy, 0.85, quiet),
        at_least("9b", "8 enqueuers, worker with full slots against no worker", full, 0.85, alone),
        *governance(),
        *job_api(),
    ]


def job_api() -> list[Target]:
    """The job API beside many jobs, on both engines."""
    found: list[Target] = []
    for letter, engine in (("a", "postgres"), ("b", "sqlite")):
        name = f"api-{engine}"
        for number, case in ((16, api.LIST), (17, api.FILTERED), (18, api.GET)):
            text = f"API, {engine}: {case}, p95"
            found.append(at_most(f"{number}{letter}", text, Series(name, f"{case}, p95"), 50, unit="ms"))
        rate, arrived = Series(name, api.RATE), Series(name, f"{api.EVENTS}, p95")
        idle_many, idle_one = Series(name, api.IDLE), Series(name, api.ONE)
        found += [
            at_least(f"19{letter}", f"API, {engine}: get, against a bare route", rate, 0.5, like(rate, "raw")),
            at_most(f"20{letter}", f"API, {engine}: {api.EVENTS}, p95", arrived, 100, unit="ms"),
            at_most(f"21{letter}", f"API, {engine}: {api.STALLED}", Series(name, api.STALLED), 10, unit="MB"),
            at_most(f"22{letter}", f"API, {engine}: {api.IDLE}, against one", idle_many, FLAT, idle_one),
        ]
    return sorted(found, key=lambda target: target.id)


def governance() -> list[Target]:
    """Sources and batches, on both engines."""
    found: list[Target] = []
    for letter, engine in (("a", "postgres"), ("b", "sqlite")):
        head, many, batch = f"head-{engine}", f"sources-{engine}", f"batch-{engine}"
        beside, free = Series(head, sources.FREE_BESIDE), Series(head, sources.FREE_ALONE)
        spread_out, plain = Series(many, sources.MANY), Series(many, sources.NONE)
        counted, uncounted = Series(batch, batches.ONE_BATCH), Series(batch, batches.NO_BATCH)
        found += [
            at_least(f"10{letter}", f"{engine}: free sources beside a saturated one, against alone", beside, 0.8, free),
            at_least(f"11{letter}", f"{engine}: 1,000 sources, against none (wish: 0.5)", spread_out, 0.3, plain),
            at_least(f"13{letter}", f"{engine}: jobs of one batch, against those of none", counted, 0.7, uncounted),
        ]
        starts = [Series(f"crowd-{engine}", crowd.starts_beside(engine, number)) for number in (CLOSED, crowd.ALONE)]
        asked = Series(f"crowd-{engine}", crowd.idle_before(engine, CLOSED))
        found += [
            at_least(
                f"14{letter}",
                f"{engine}: an open source beside {CLOSED:,} closed ones, against alone",
                starts[0],
                0.9,
                starts[1],
            ),
            at_most(f"15{letter}", f"{engine}: idle before {CLOSED:,} closed sources", asked, 2, unit="/s"),
        ]
    cases = [f"{engine}: {case}, {what}" for engine, what in blocked.COUNTED.items() for case in blocked.CASES]
    for letter, case in zip("abcdef", cases, strict=True):
        found.append(at_most(f"12{letter}", f"idle before blocked jobs, {case}", Series("blocked", case), 2, unit="/s"))
    return sorted(found, key=lambda target: target.id)


def judge(results: Results) -> list[Verdict]:
    """A verdict for each target."""
    return [judged(target, results) for target in targets()]


def judged(target: Target, results: Results) -> Verdict:
    top = values(results, target.value)
    if target.per is None:
        return Verdict(target, spread(top.values()), "")
    if target.per.system == EVERY_PEER:
        return worst_rival(target, results, top)
    system = target.per.system
    if system == LOWEST_PEER:
        system = lowest_peer(results, target.per) or ""
    against = "" if system == target.value.system else system
    return Verdict(target, spread(paired(top, values(results, like(target.per, system)))), against)


def values(results: Results, series: Series) -> dict[int, float]:
    return results.series(series.measure, series.case, series.system)


def by_peer(results: Results, series: Series, of: Callable[[dict[int, float]], float]) -> dict[str, float]:
    found = {peer: values(results, like(series, peer)) for peer in PEERS}
    return {peer: of(rounds) for peer, rounds in found.items() if rounds}


def lowest_peer(results: Results, series: Series) -> str | None:
    """The best peer of all that were measured, by its median: the rounds are then paired with that one."""
    medians = by_peer(results, series, lambda rounds: spread(rounds.values()).median)  # type: ignore[union-attr]
    return min(medians, key=medians.__getitem__) if medians else None


def worst_rival(target: Target, results: Results, top: dict[int, float]) -> Verdict:
    """Against every peer means against the one that comes out best."""
    assert target.per is not None
    found = {peer: spread(paired(top, values(results, like(target.per, peer)))) for peer in PEERS}
    rivals = {peer: ratio for peer, ratio in found.items() if ratio}
    if not rivals:
        return Verdict(target, None, "")
    nearest = min(rivals, key=lambda peer: rivals[peer].median)
    return Verdict(target, rivals[nearest], nearest)
