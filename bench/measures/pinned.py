"""A snapshot held open while many jobs pass: dead rows cannot be removed, and a claim may have to walk over them."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import psycopg

from bench.catalog import Described
from bench.runner import Bench, Run
from bench.waits import follow

CASE = "last tenth / first tenth"
WARM_UP = 0.02  # of the jobs, on top: a slow start would flatter the ratio


def postgres(bench: Bench) -> None:
    """Pinned horizon: the rate of the last tenth of the jobs against that of the first."""
    systems = [system for system in bench.on("postgres") if system.decides or bench.plan.with_context]
    bench.interleave([once_for(bench, system) for system in systems])


def once_for(bench: Bench, system: Described) -> Run:
    jobs = bench.plan.jobs_for(system, bench.plan.pinned_jobs)
    # Fewer jobs leave fewer dead rows: such a ratio is another measure, and stands under another name.
    case = CASE if jobs == bench.plan.pinned_jobs else f"{CASE}, only {jobs:,} jobs"

    def once(number: int) -> None:
        rates = tenths(bench, system, jobs)
        bench.record(case, system.name, number, rates[-1] / rates[0], "×")
        curves = bench.results.sections[bench.results.measure].curves
        label = system.name if case == CASE else f"{system.name} ({jobs:,} jobs)"
        curves.setdefault(label, []).append(rates)

    rounds = bench.plan.rounds_for(system, bench.plan.pinned_rounds)
    return Run(f"{system.name}, pinned", system, once, rounds)


def tenths(bench: Bench, system: Described, jobs: int) -> list[float]:
    """Jobs a second in each tenth."""
    warm_up = int(jobs * WARM_UP)
    with bench.database(system) as url:
        total = bench.fill(system, url, jobs + warm_up)
        bench.checkpoint()
        with snapshot(url), bench.workers(system, url) as workers:
            line = [(now, sum(counts)) for now, counts in follow(workers, total)]
    marks = [moment(line, warm_up + jobs * part / 10) for part in range(11)]
    return [jobs / 10 / (end - start) for start, end in pairwise(marks)]


@contextmanager
def snapshot(url: str) -> Iterator[None]:
    """A REPEATABLE READ transaction that has taken its snapshot and then does nothing."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT count(*) FROM pg_class")
        try:
            yield
        finally:
            connection.execute("ROLLBACK")


def moment(line: list[tuple[float, int]], handled: float) -> float:
    """When that many had been handled, between the two looks around it."""
    before = line[0]
    for after in line:
        if after[1] >= handled:
            if after[1] == before[1]:
                return after[0]
            share = (handled - before[1]) / (after[1] - before[1])
            return before[0] + share * (after[0] - before[0])
        before = after
    return before[0]
