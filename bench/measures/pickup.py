"""How long a job waits on an idle queue, from the enqueue call to its handler's first line; and delayed jobs."""

import time

from bench.catalog import Described
from bench.processes import Broken, Worker
from bench.runner import Bench, Run
from bench.stats import percentile, spread
from bench.waits import follow

P50, P99 = "p50", "p99"
FAR = 2.0  # a peer whose p50 and p99 are both this many times the best peer's cannot become the best
DELAY_SECONDS = 6.0


def postgres(bench: Bench) -> None:
    """Pickup on PostgreSQL: all systems."""
    systems = bench.on("postgres")
    bench.interleave([pings(bench, system) for system in systems])


def sqlite(bench: Bench) -> None:
    """Pickup on SQLite, from one process to another."""
    systems = bench.on("sqlite")
    bench.interleave([pings(bench, system) for system in systems])


def delayed(bench: Bench) -> None:
    """How late jobs with a delay start, on both engines."""
    bench.interleave([lateness(bench, bench.one(engine, "rowlock")) for engine in ("postgres", "sqlite")])


def pings(bench: Bench, system: Described) -> Run:
    def once(number: int) -> None:
        if number and not system.is_ours and far_behind(bench, system):
            bench.results.note(f"{system.name} was far behind the best peer in the first round and was left at that")
            return
        with bench.database(system) as url, bench.workers(system, url) as workers:
            # The first few are for start-up, first plans and caches; their latencies are not taken.
            for jobs in (5, bench.plan.pings):
                bench.run(system, "ping", url, jobs=jobs, slot_file=workers[0].slot_file)
            latencies = taken(workers[0], 5 + bench.plan.pings)[5:]
        bench.record(P50, system.name, number, percentile(latencies, 0.5) * 1000, "ms")
        bench.record(P99, system.name, number, percentile(latencies, 0.99) * 1000, "ms")

    rounds = bench.plan.context_rounds if system.name == "raw" else bench.plan.pairs  # any peer may be the best
    return Run(f"{system.name}, pickup", system, once, rounds)


def far_behind(bench: Bench, system: Described) -> bool:
    """Whether this peer cannot be the best one, so that its rounds are better spent on the others."""
    measure = bench.results.measure

    def level(case: str, name: str) -> float:
        found = spread(bench.results.series(measure, case, name).values())
        return found.median if found else float("inf")

    peers = [one.name for one in bench.on(system.engine) if not one.is_ours]
    return all(level(case, system.name) > FAR * min(level(case, peer) for peer in peers) for case in (P50, P99))


def taken(worker: Worker, jobs: int) -> list[float]:
    """All latencies, once the worker has written them."""
    deadline = time.monotonic() + 10
    while len(found := worker.latencies()) < jobs:
        if time.monotonic() > deadline:
            raise worker.broken(f"wrote {len(found)} of {jobs} latencies")
        time.sleep(0.01)
    return found


def lateness(bench: Bench, system: Described) -> Run:
    jobs = bench.plan.delayed_jobs

    def once(number: int) -> None:
        with bench.database(system) as url, bench.workers(system, url) as workers:
            bench.run(system, "ping", url, jobs=1, slot_file=workers[0].slot_file)
            bench.run(system, "delayed", url, jobs=jobs, seconds=DELAY_SECONDS)
            for _ in follow(workers, jobs + 1):
                pass
            late = taken(workers[0], jobs + 1)[1:]
        if min(late) < -0.005:  # the two clocks, the database's and ours, may differ by a little
            raise Broken(f"a delayed job began {-min(late) * 1000:.0f} ms before its time")
        for case, share in (("p50", 0.5), ("p99", 0.99)):
            bench.record(f"{system.engine}, {case}", system.name, number, percentile(late, share) * 1000, "ms late")

    return Run(f"{system.name} on {system.engine}, delayed", system, once, min(2, bench.plan.context_rounds))
