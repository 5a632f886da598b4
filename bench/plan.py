"""How much of everything a run does. `make bench` must end within 15 minutes, `make bench-full` within 60."""

from dataclasses import dataclass

from bench.catalog import Candidate

FAST = 10_000  # a system that drains as much a second gets all the jobs


@dataclass(frozen=True)
class Plan:
    """The counts of one kind of run."""

    mode: str
    pairs: int  # rounds of whatever decides a target
    context_rounds: int  # rounds of what decides none
    drain_jobs: int  # no-op jobs for a fast system
    slow_seconds: float  # about how long a slow one may work instead
    singles: int  # jobs enqueued one at a time
    bulk_jobs: int
    pings: int  # jobs picked up in one round
    delayed_jobs: int
    ballast: int  # rows that depth must not notice
    depth_rounds: int
    depth_windows: int  # in each round; each is a pair of its own
    window_jobs: int
    pinned_jobs: int
    pinned_rounds: int
    waiting_jobs: int
    idle_warmup_seconds: float
    idle_seconds: float
    memory_jobs: int
    memory_rounds: int
    enqueuers_seconds: float
    sources_rounds: int
    free_jobs: int  # of each source that is not saturated
    crowd_jobs: int  # of all the many sources together
    batch_jobs: int
    batch_rounds: int
    blocked_seconds: float
    steady_seconds: float  # of a load that every claim keeps up with
    steady_rounds: int
    crowds: tuple[int, ...]  # numbers of closed sources beside an open one
    crowd_seconds: float  # in which the open one's starts are counted
    crowd_rounds: int
    api_jobs: int
    api_owners: int
    api_sockets: int
    api_requests: int  # of each kind, in each round
    api_events: int  # in each round
    api_stalled: int  # events for a client that does not read
    api_seconds: float  # of each measured rate
    with_context: bool = True  # whether systems that decide no target are measured where that takes long, too
    without: tuple[str, ...] = ()  # measures that must be asked for by name

    def jobs_for(self, system: Candidate, jobs: int | None = None) -> int:
        """`jobs` for a fast system; what a slow one does in a few seconds."""
        jobs = self.drain_jobs if jobs is None else jobs
        return jobs if system.rate >= FAST else min(jobs, max(100, int(system.rate * self.slow_seconds)))

    def rounds_for(self, system: Candidate, rounds: int | None = None) -> int:
        rounds = self.pairs if rounds is None else rounds
        return rounds if system.decides else min(rounds, self.context_rounds)


SMOKE = Plan(
    mode="smoke",
    pairs=1,
    context_rounds=1,
    drain_jobs=4_000,
    slow_seconds=0.5,
    singles=200,
    bulk_jobs=2_000,
    pings=10,
    delayed_jobs=20,
    ballast=5_000,
    depth_rounds=1,
    depth_windows=1,
    window_jobs=4_000,
    pinned_jobs=10_000,
    pinned_rounds=1,
    waiting_jobs=400,
    idle_warmup_seconds=2,
    idle_seconds=3,
    memory_jobs=6_000,
    memory_rounds=1,
    enqueuers_seconds=0.5,
    sources_rounds=1,
    free_jobs=20,
    crowd_jobs=2_000,
    batch_jobs=4_000,
    batch_rounds=1,
    blocked_seconds=3,
    steady_seconds=4,
    steady_rounds=1,
    crowds=(500,),
    crowd_seconds=4,
    crowd_rounds=1,
    api_jobs=5_000,
    api_owners=20,
    api_sockets=40,
    api_requests=40,
    api_events=10,
    api_stalled=10_000,
    api_seconds=0.5,
)

QUICK = Plan(
    mode="quick",
    pairs=5,
    context_rounds=1,
    drain_jobs=60_000,
    slow_seconds=2,
    singles=1_500,
    bulk_jobs=50_000,
    pings=80,
    delayed_jobs=200,
    ballast=200_000,
    depth_rounds=3,
    depth_windows=2,
    window_jobs=20_000,
    pinned_jobs=300_000,
    pinned_rounds=2,
    waiting_jobs=5_000,
    idle_warmup_seconds=10,
    idle_seconds=20,
    memory_jobs=300_000,
    memory_rounds=1,
    enqueuers_seconds=1,
    sources_rounds=2,
    free_jobs=100,
    crowd_jobs=15_000,
    batch_jobs=50_000,
    batch_rounds=1,
    blocked_seconds=9,
    steady_seconds=40,
    steady_rounds=1,
    crowds=(10_000,),
    crowd_seconds=20,
    crowd_rounds=1,
    api_jobs=1_000_000,
    api_owners=100,
    api_sockets=500,
    api_requests=400,
    api_events=100,
    api_stalled=100_000,
    api_seconds=3,
    with_context=False,
    without=("head-sqlite", "sources-sqlite", "api-postgres", "api-sqlite"),
)

FULL = Plan(
    mode="full",
    pairs=7,
    context_rounds=2,
    drain_jobs=60_000,
    slow_seconds=4,
    singles=4_000,
    bulk_jobs=50_000,
    pings=200,
    delayed_jobs=500,
    ballast=1_000_000,
    depth_rounds=4,
    depth_windows=2,
    window_jobs=20_000,
    pinned_jobs=300_000,
    pinned_rounds=3,
    waiting_jobs=5_000,
    idle_warmup_seconds=10,
    idle_seconds=40,
    memory_jobs=300_000,
    memory_rounds=2,
    enqueuers_seconds=3,
    sources_rounds=3,
    free_jobs=1_000,
    crowd_jobs=50_000,
    batch_jobs=50_000,
    batch_rounds=3,
    blocked_seconds=30,
    steady_seconds=110,
    steady_rounds=1,
    crowds=(500, 3_000, 10_000),
    crowd_seconds=20,
    crowd_rounds=2,
    api_jobs=1_000_000,
    api_owners=100,
    api_sockets=500,
    api_requests=1_000,
    api_events=200,
    api_stalled=100_000,
    api_seconds=5,
)
