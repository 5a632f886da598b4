"""Whether sources that are closed hold up one that is open. Only Rowlock, on both engines.

Before the worker lie jobs of many sources whose limit is 0, a job each. First, with nothing that may start, its
statements are counted; then jobs of a source with a rate of 60 a minute come in, and their starts within a time are
counted: as many as without the crowd should start.
"""

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from bench.catalog import Described
from bench.measures.blocked import CALM_SECONDS, COUNTED, Watched
from bench.runner import Bench, Run

RATE = 60  # starts a minute of the open source
OPEN = "api:open"  # of another class than the closed ones, whose limit is 0
ALONE = 0


def starts_beside(engine: str, crowd: int) -> str:
    return f"{engine}: starts of the open source beside {crowd:,} closed ones"


def idle_before(engine: str, crowd: int) -> str:
    return f"{engine}: {COUNTED[engine]} of an idle worker before {crowd:,} closed sources"


def postgres(bench: Bench) -> None:
    """A crowd of closed sources beside an open one, PostgreSQL."""
    everyone(bench, "postgres")


def sqlite(bench: Bench) -> None:
    """A crowd of closed sources beside an open one, SQLite."""
    everyone(bench, "sqlite")


def everyone(bench: Bench, engine: str) -> None:
    plan, system = bench.plan, bench.one(engine, "rowlock")
    bench.results.note(f"starts within {plan.crowd_seconds:g} s; the open source may start {RATE} jobs a minute")
    bench.interleave([once_for(bench, system, crowd) for crowd in (ALONE, *plan.crowds)])


def once_for(bench: Bench, system: Described, crowd: int) -> Run:
    def once(number: int) -> None:
        with ExitStack() as stack:
            idle, starts = run(bench, stack, system, crowd)
        bench.record(starts_beside(system.engine, crowd), system.name, number, starts, "jobs")
        if crowd:
            bench.record(idle_before(system.engine, crowd), system.name, number, idle, "/s")

    return Run(f"{system.name}, {crowd:,} closed sources", system, once, bench.plan.crowd_rounds)


def run(bench: Bench, stack: ExitStack, system: Described, crowd: int) -> tuple[float, int]:
    """(statements a second while nothing may start, starts of the open source)."""
    plan = bench.plan
    url = stack.enter_context(bench.database(system))
    if crowd:
        bench.run(system, "bulk", url, jobs=crowd, sources=crowd, limit=0)
    counter = Path(tempfile.mkstemp(dir=bench.folder, prefix="statements-")[1])
    watched = Watched(f"{crowd:,} closed sources", system, url, counter)
    watched.prepare(bench)
    watched.start(bench, stack)
    watched.wait(bench)
    time.sleep(CALM_SECONDS)
    idle = watched.counted(bench, plan.blocked_seconds) if crowd else 0.0
    bench.run(system, "bulk", url, jobs=int(2 * RATE / 60 * plan.crowd_seconds), source=OPEN, rate=RATE)
    before = watched.worker.handled
    time.sleep(plan.crowd_seconds)
    return idle, watched.worker.handled - before
