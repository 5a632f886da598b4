"""Whether eight producers are slowed down by the wake-ups of a worker. Only Rowlock, on PostgreSQL."""

import time

from bench.catalog import Described
from bench.processes import Broken, Child, Worker
from bench.runner import Bench, Run
from bench.waits import follow

PRODUCERS, PROCESSES = 8, 4  # in several processes, so that the database and not one interpreter is the limit
ALONE = "no worker"
FULL = "worker with all slots taken, wake-ups on"
ON, OFF = "worker draining a backlog, wake-ups on", "worker draining a backlog, wake-ups off"
LONG_MS = 600_000
QUIET_SECONDS = 2.5  # a worker without room stops asking to be woken after a second
READY_SECONDS = 60.0
BACKLOG_RATE = 40_000  # jobs a second that a worker will hardly reach


def postgres(bench: Bench) -> None:
    """Inserts a second by 8 concurrent enqueuers, without a worker and beside one."""
    system = bench.one("postgres", "rowlock")
    bench.interleave([once_for(bench, system, case) for case in (ALONE, FULL, ON, OFF)])


def once_for(bench: Bench, system: Described, case: str) -> Run:
    def once(number: int) -> None:
        with bench.database(system) as url:
            backlog = fill(bench, system, url, case)
            producers = start_producers(bench, system, url)
            count, kill = int(case != ALONE), case == FULL
            with bench.workers(system, url, count, slots=100, kill=kill, wakeups=int(case != OFF)) as workers:
                wait_until_busy(workers, case, backlog)
                bench.checkpoint()
                rate = produce(producers)
                if case in (ON, OFF) and workers[0].handled >= backlog:
                    bench.results.note(
                        f"{case}: in some rounds the backlog ran out, so the worker was not busy throughout"
                    )
        bench.record(case, system.name, number, rate, "jobs/s")

    return Run(case, system, once, bench.plan.pairs)


def fill(bench: Bench, system: Described, url: str, case: str) -> int:
    """What the worker is busy with."""
    if case == FULL:
        return bench.fill(system, url, 100, LONG_MS)
    if case in (ON, OFF):
        return bench.fill(system, url, int(BACKLOG_RATE * (bench.plan.enqueuers_seconds + 1)))
    return 0


def start_producers(bench: Bench, system: Described, url: str) -> list[Child]:
    """Connected and warm, waiting for the word."""
    flags = {"producers": PRODUCERS // PROCESSES, "seconds": bench.plan.enqueuers_seconds}
    producers = [bench.start(system, "produce", url, **flags) for _ in range(PROCESSES)]
    deadline = time.monotonic() + READY_SECONDS
    for producer in producers:
        while not producer.said():
            if not producer.alive or time.monotonic() > deadline:
                raise producer.broken("did not get ready")
            time.sleep(0.01)
    return producers


def wait_until_busy(workers: list[Worker], case: str, backlog: int) -> None:
    if not workers:
        return
    # A producer's warm-up jobs are the first that a worker without a backlog sees.
    wanted = {FULL: backlog, ON: 1_000, OFF: 1_000}.get(case, 1)
    for _ in follow(workers, wanted):
        pass
    time.sleep(QUIET_SECONDS if case == FULL else 0)


def produce(producers: list[Child]) -> float:
    """Let them all go; inserts a second of all together."""
    for producer in producers:
        producer.tell("go")
    said = [producer.wait() for producer in producers]
    if not all("produced" in one for one in said):
        raise Broken("a producer did not say what it has done")
    return sum(one["produced"] / one["seconds"] for one in said)
