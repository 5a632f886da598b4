"""Work that waits: 50 ms a job at 100 slots, where a perfect system needs (jobs / 100) × 50 ms."""

from bench.catalog import Described
from bench.runner import Bench, Run
from bench.waits import Left, follow

SLEEP_MS = 50
SLOTS = 100
CASE = f"jobs of {SLEEP_MS} ms at {SLOTS} slots"


def postgres(bench: Bench) -> None:
    """Waiting work on PostgreSQL: all systems, as multiples of the ideal time."""
    systems = [system for system in bench.on("postgres") if system.decides or bench.plan.with_context]
    bench.interleave([once_for(bench, system) for system in systems])


def once_for(bench: Bench, system: Described) -> Run:
    jobs = bench.plan.waiting_jobs
    ideal = jobs / SLOTS * SLEEP_MS / 1000

    def once(number: int) -> None:
        with bench.database(system) as url:
            total = bench.fill(system, url, jobs, SLEEP_MS)
            bench.checkpoint()
            with Left(system, url) as left, bench.workers(system, url, slots=SLOTS) as workers:
                for _ in follow(workers, total):
                    pass
                seconds = left.none() - workers[0].first
        bench.record(CASE, system.name, number, seconds / ideal, "× ideal")

    rounds = bench.plan.pairs if system.name == "rowlock" else bench.plan.context_rounds
    return Run(f"{system.name}, waiting", system, once, rounds)
