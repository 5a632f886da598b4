"""How fast a filled queue is emptied of no-op jobs, by one process and by two."""

from collections.abc import Sequence

from bench.catalog import Described
from bench.processes import Worker
from bench.runner import Bench, Run
from bench.waits import Left, follow

TWO_DECIDE = ("rowlock", "graphile")  # whose two processes a target is about
WARM_UP = 0.05  # of the jobs, on top of them: start-up, first plans and compilers are not what is measured


def postgres(bench: Bench) -> None:
    """Drain on PostgreSQL: one and two processes, all systems."""
    everyone(bench, "postgres")


def sqlite(bench: Bench) -> None:
    """Drain on SQLite: one and two processes, all systems."""
    everyone(bench, "sqlite")


def everyone(bench: Bench, engine: str) -> None:
    def run(system: Described, processes: int) -> Run:
        case = f"{processes} process" + ("es" if processes > 1 else "")

        def once(number: int) -> None:
            rate = drain(bench, system, processes, bench.plan.jobs_for(system))
            bench.record(case, system.name, number, rate, "jobs/s")

        decides = processes == 1 or system.name in TWO_DECIDE
        rounds = bench.plan.rounds_for(system) if decides else bench.plan.context_rounds
        return Run(f"{system.name}, {case}", system, once, rounds)

    runs = [run(system, 1) for system in bench.on(engine)]
    runs += [run(system, 2) for system in bench.on(engine) if system.decides or bench.plan.with_context]
    bench.interleave(runs)


def drain(bench: Bench, system: Described, processes: int, jobs: int, **flags: int) -> float:
    """Jobs a second, from when all processes are at work until every job is handled and committed as done.
    `flags` say how they are enqueued."""
    warm_up = int(jobs * WARM_UP)
    with bench.database(system) as url:
        total = bench.fill(system, url, jobs + warm_up, **flags)
        bench.checkpoint()
        with Left(system, url) as left, bench.workers(system, url, processes) as workers:
            begun, before, together = at_work(workers, warm_up, total)
            ended = left.none()
            if not together:
                bench.results.note(f"{system.name}: in some rounds one process had done half of the jobs alone")
            return (total - before) / (ended - begun)


def at_work(workers: Sequence[Worker], warm_up: int, jobs: int) -> tuple[float, int, bool]:
    """Wait for all jobs. When, at how many, was the warm-up over and every worker at its first job?

    A worker that has none by half-time is not waited for: where one process keeps another out, the rate of
    both is that of the one, counted from the end of the warm-up.
    """
    warm: tuple[float, int] | None = None
    for now, counts in follow(workers, jobs):
        total = sum(counts)
        if warm is None and total >= warm_up:
            warm = now, total
        if min(counts) and warm is not None and total <= jobs / 2:
            for _ in follow(workers, jobs):
                pass
            return now, total, True
    assert warm is not None
    return *warm, False
