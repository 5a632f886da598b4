"""`python -m bench.compare REV`: this tree against an earlier commit, in turns and in the same minutes.

A change that should cost nothing is shown to cost nothing so: both run on one server, take turns within each round, and
only ratios within a round count, because the machine is noisy.
"""

import argparse
import dataclasses
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.catalog import CANDIDATES, ROOT, Described
from bench.measures import crowd, depth, sources, steady
from bench.measures.drain import drain
from bench.measures.enqueue import single
from bench.measures.pickup import P50, pings
from bench.plan import QUICK, SMOKE
from bench.runner import Bench, Run
from bench.stats import paired, spread

NOW, BEFORE = "rowlock", "before"
ENGINES = ("postgres", "sqlite")
SMALLER_IS_BETTER = (P50, "p99", steady.FIRST, steady.LAST, steady.RATIO)
Measure = Callable[[Bench, Described], Run]


def main() -> int:
    options = arguments()
    plan = dataclasses.replace(SMOKE if options.smoke else QUICK, pairs=options.rounds, context_rounds=options.rounds)
    with checkout(options.revision) as source:
        ours = [one for one in CANDIDATES if one.name == NOW]
        earlier = [dataclasses.replace(one, name=BEFORE, source=source) for one in ours]
        with Bench(plan, candidates=[*ours, *earlier]) as bench:
            wanted = [(name, engine) for name in options.only for engine in options.engines]
            lowest = [compare(bench, name, engine) for name, engine in wanted if (name, engine) not in LEFT_OUT]
            broken = bench.results.broken
    bad = [value for value in lowest if value is None or (options.below is not None and value < options.below)]
    return 1 if broken or bad else 0


def compare(bench: Bench, name: str, engine: str) -> float | None:
    """Measure both in turns, print the ratios; the lowest median of its cases, None if there is none."""
    bench.results.begin(f"{name}-{engine}")
    bench.interleave([MEASURES[name](bench, system) for system in bench.on(engine, NOW, BEFORE)])
    medians = []
    for case in bench.results.cases(bench.results.measure):
        now, before = (bench.results.series(bench.results.measure, case, system) for system in (NOW, BEFORE))
        found = spread(paired(before, now) if case in SMALLER_IS_BETTER else paired(now, before))
        if found is not None:
            medians.append(found.median)
            print(
                f"{name}, {engine}, {case}: {found.median:.2f} × of before"
                f" ({found.low:.2f}–{found.high:.2f}, {found.rounds} rounds)",
                flush=True,
            )
    return min(medians, default=None)


def drained(processes: int = 1, jobs: Callable[[Bench], int] | None = None, **flags: int) -> Measure:
    """A drain of no-op jobs; `flags` say how they are enqueued."""

    def measure(bench: Bench, system: Described) -> Run:
        def once(number: int) -> None:
            wanted = jobs(bench) if jobs else bench.plan.drain_jobs
            bench.record("drain", system.name, number, drain(bench, system, processes, wanted, **flags), "jobs/s")

        return Run(f"{system.name}, drain", system, once, bench.plan.pairs)

    return measure


def enqueued(bench: Bench, system: Described) -> Run:
    """One job at a time, each committed."""
    return dataclasses.replace(single(bench, system), rounds=bench.plan.pairs)


def many_tasks(bench: Bench, system: Described) -> Run:
    """A window of jobs of fifty tasks."""
    tasks = next(case for case in depth.CASES if case.tasks > 1)

    def once(number: int) -> None:
        with bench.database(system) as url:
            depth.first_day(bench, system, url)
            bench.record(tasks.name, system.name, number, depth.timed(bench, system, url, tasks.tasks), "jobs/s")

    return Run(f"{system.name}, {tasks.name}", system, once, bench.plan.pairs)


MEASURES: dict[str, Measure] = {
    "drain": drained(),
    "drain-two": drained(processes=2),
    "enqueue": enqueued,
    "pickup": lambda bench, system: dataclasses.replace(pings(bench, system), rounds=bench.plan.pairs),
    "sources": drained(jobs=lambda bench: bench.plan.crowd_jobs, sources=sources.CROWD, limit=sources.LIMIT),
    "tasks": many_tasks,
    "steady": steady.once_for,
    "crowd": lambda bench, system: crowd.once_for(bench, system, max(bench.plan.crowds)),
}
LEFT_OUT = [("tasks", "sqlite"), ("steady", "sqlite")]  # filled by SQL of PostgreSQL; no snapshot can be held
BY_NAME = ("steady", "crowd")  # long, and about one change each: only if they are asked for


@contextmanager
def checkout(revision: str) -> Iterator[str]:
    """The folder of the package at that commit, for as long as the block lasts."""
    folder = tempfile.mkdtemp(prefix="rowlock-before-")
    tree = str(Path(folder, "tree"))
    git("worktree", "add", "--detach", "--quiet", tree, revision)
    try:
        yield str(Path(tree, "src"))
    finally:
        git("worktree", "remove", "--force", tree)
        shutil.rmtree(folder, ignore_errors=True)


def git(*words: str) -> None:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"git {words[0]}: {done.stderr.strip()}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=__doc__)
    parser.add_argument("revision", help="the earlier commit, as git knows it")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--only",
        type=lambda text: text.split(","),
        default=[name for name in MEASURES if name not in BY_NAME],
        help="drain,pickup",
    )
    parser.add_argument("--engines", type=lambda text: text.split(","), default=list(ENGINES), help="postgres,sqlite")
    parser.add_argument("--below", type=float, help="end with 1 if a median is under this")
    parser.add_argument("--smoke", action="store_true", help="tiny counts: does everything run?")
    options = parser.parse_args()
    for given, known in ((options.only, MEASURES), (options.engines, ENGINES)):
        if unknown := [name for name in given if name not in known]:
            parser.error(f"no such measure or engine: {unknown[0]}; there are {', '.join(known)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
