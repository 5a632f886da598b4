"""What a worker costs that has jobs before it and may start none of them. Only Rowlock, on both engines."""

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from bench.catalog import Described
from bench.measures import idle
from bench.measures.sources import BUSY, CROWD, LIMIT, hold
from bench.processes import Broken, Worker
from bench.runner import Bench

PAUSED, FULL, ALL_FULL = "one paused source", "one saturated source", "1,000 saturated sources"
TRANSACTIONS = "transactions"
# What is held to a bound: on SQLite no statement travels, and BEGIN and COMMIT stand around each write.
COUNTED = {"postgres": idle.STATEMENTS, "sqlite": TRANSACTIONS}
JOBS = 1_000
CASES: dict[str, dict[str, Any]] = {  # how the jobs are enqueued
    PAUSED: {"source": BUSY, "pause": 1},
    FULL: {"source": BUSY, "limit": LIMIT},
    ALL_FULL: {"sources": CROWD, "limit": 0},
}
WORKERS = {"postgres": "SELECT count(*) FROM rowlock.workers", "sqlite": "SELECT count(*) FROM rowlock_workers"}
START_SECONDS = 30.0
CALM_SECONDS = 2.0  # for what a worker does at its start, and for the looks that follow when there is nothing to do


class Look(NamedTuple):
    """What a worker had done by then."""

    at: float
    statements: int
    transactions: int | None
    cpu: float


@dataclass
class Watched:
    """One idle worker."""

    case: str
    system: Described
    url: str
    counter: Path  # of statements and transactions, on SQLite
    worker: Worker = field(init=False)

    def prepare(self, bench: Bench) -> None:
        """Have its statements counted from its first connection on."""
        if self.system.engine == "postgres":
            idle.count_statements(bench, self.url)

    def start(self, bench: Bench, stack: ExitStack) -> None:
        flags = {"statements": self.counter} if self.system.engine == "sqlite" else {}
        self.worker = stack.enter_context(bench.workers(self.system, self.url, **flags))[0]

    def wait(self, bench: Bench) -> None:
        """Until it is at work."""
        deadline = time.monotonic() + START_SECONDS
        while not bench.query(self.url, WORKERS[self.system.engine]):
            if not self.worker.alive or time.monotonic() > deadline:
                raise self.worker.broken("did not start")
            time.sleep(0.1)

    def look(self, bench: Bench) -> Look:
        statements, transactions = idle.statements(bench, self.url), None
        if statements is None:
            statements, transactions = map(int, self.counter.read_text().split())
        return Look(time.monotonic(), statements, transactions, idle.cpu_seconds(self.worker))

    def counted(self, bench: Bench, seconds: float) -> float:
        """What is held to a bound, a second, in the seconds to come."""
        first = self.look(bench)
        time.sleep(seconds)
        last = self.look(bench)
        done = last.statements - first.statements
        if last.transactions is not None and first.transactions is not None:
            done = last.transactions - first.transactions
        return done / (last.at - first.at)


def both(bench: Bench) -> None:
    """Idle workers that face only blocked jobs, all at the same time, each with a database of its own."""
    with ExitStack() as stack:
        watched = prepared(bench, stack)
        for one in watched:
            one.start(bench, stack)
        for one in watched:
            one.wait(bench)
        time.sleep(CALM_SECONDS)
        before = [one.look(bench) for one in watched]
        time.sleep(bench.plan.blocked_seconds)
        for one, first in zip(watched, before, strict=True):
            after = one.look(bench)
            if one.worker.handled:
                raise Broken(f"{one.case}: {one.worker.handled} jobs ran that were blocked")
            record(bench, one.case, first, after)
        for one in watched:
            one.worker.process.terminate()


def record(bench: Bench, case: str, first: Look, last: Look) -> None:
    seconds = last.at - first.at
    bench.record(f"{case}, {idle.STATEMENTS}", "rowlock", 0, (last.statements - first.statements) / seconds, "/s")
    if first.transactions is not None and last.transactions is not None:
        rate = (last.transactions - first.transactions) / seconds
        bench.record(f"{case}, {TRANSACTIONS}", "rowlock", 0, rate, "/s")
    bench.record(f"{case}, {idle.CPU}", "rowlock", 0, (last.cpu - first.cpu) / seconds * 100, "% of a core")


def prepared(bench: Bench, stack: ExitStack) -> list[Watched]:
    """The databases with their jobs, all filled at the same time."""
    watched, filling = [], []
    for system in (bench.one("postgres", "rowlock"), bench.one("sqlite", "rowlock")):
        for name, flags in CASES.items():
            url = stack.enter_context(bench.database(system))
            counter = bench.folder / f"statements-{len(watched)}"
            watched.append(Watched(f"{system.engine}: {name}", system, url, counter))
            filling.append(bench.start(system, "bulk", url, jobs=JOBS, **flags))
    for one, child, name in zip(watched, filling, [*CASES, *CASES], strict=True):
        child.wait()
        if name == FULL:
            hold(bench, one.system, one.url)
        one.prepare(bench)
    return watched
