"""What a worker costs that has nothing to do, and whether its memory stays flat when it has much to do."""

import time
from contextlib import ExitStack

from bench import usage
from bench.catalog import Described
from bench.processes import Worker
from bench.runner import Bench, Run
from bench.waits import follow

STATEMENTS, CPU, RSS = "statements", "CPU", "resident memory"
BEFORE, EARLY, AFTER = "before the first job", "after a tenth of the jobs", "after all jobs"
SETTLE_SECONDS = 3.0


def everyone(bench: Bench) -> None:
    """Idle workers of all systems at the same time, each with a database of its own."""
    plan = bench.plan
    with ExitStack() as stack:
        idle: list[tuple[Described, str, Worker]] = []
        for system in [one for engine in ("postgres", "sqlite") for one in bench.on(engine) if one.name != "raw"]:
            url = stack.enter_context(bench.database(system))
            if system.engine == "postgres":
                count_statements(bench, url)
            worker = stack.enter_context(bench.workers(system, url))[0]
            idle.append((system, url, worker))
        time.sleep(plan.idle_warmup_seconds)
        before = [(statements(bench, url), cpu_seconds(worker), time.monotonic()) for _, url, worker in idle]
        time.sleep(plan.idle_seconds)
        for (system, url, worker), (calls, cpu, began) in zip(idle, before, strict=True):
            seconds = time.monotonic() - began
            share = (cpu_seconds(worker) - cpu) / seconds * 100
            now = statements(bench, url)
            if now is not None and calls is not None:
                bench.record(f"{system.engine}: {STATEMENTS}", system.name, 0, (now - calls) / seconds, "/s")
            bench.record(f"{system.engine}: {CPU}", system.name, 0, share, "% of a core")
            bench.record(f"{system.engine}: {RSS}", system.name, 0, resident(worker), "MB")


def count_statements(bench: Bench, url: str) -> None:
    """Count what clients of this database send, where the server can; else its transactions are counted."""
    name = url.rpartition("/")[2]
    if counts_statements(bench):
        bench.query(bench.server.url, "CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        bench.query(bench.server.url, f"ALTER DATABASE {name} SET pg_stat_statements.track = 'top'")
    else:
        bench.results.note("the server has no pg_stat_statements: transactions were counted, not statements")


def counts_statements(bench: Bench) -> bool:
    return "pg_stat_statements" in str(bench.query(bench.server.url, "SHOW shared_preload_libraries"))


def statements(bench: Bench, url: str) -> int | None:
    """So far, on this database. Asked from another one, so that the question itself is not counted."""
    if url.startswith("sqlite"):
        return None
    name = url.rpartition("/")[2]
    if counts_statements(bench):
        calls = (
            "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements(false)"
            " WHERE dbid = (SELECT oid FROM pg_database WHERE datname = %s)"
        )
    else:
        calls = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = %s"
    return int(bench.query(bench.server.url, calls, name))


def cpu_seconds(worker: Worker) -> float:
    """Of the worker and what it has started."""
    try:
        return usage.cpu_seconds(worker.pid)
    except ProcessLookupError:
        raise worker.broken("ended while it was idle") from None


def resident(worker: Worker) -> float:
    """Megabytes of the worker and what it has started."""
    try:
        return usage.resident_mb(worker.pid)
    except ProcessLookupError:
        raise worker.broken("ended while its memory was looked at") from None


def memory(bench: Bench) -> None:
    """Rowlock's resident memory before, early in and after a long run of jobs."""
    bench.interleave([long_run(bench, bench.one("postgres", "rowlock"))])


def long_run(bench: Bench, system: Described) -> Run:
    jobs = bench.plan.memory_jobs

    def once(number: int) -> None:
        with bench.database(system) as url, bench.workers(system, url) as workers:
            time.sleep(SETTLE_SECONDS)
            bench.record(BEFORE, system.name, number, resident(workers[0]), "MB")
            for case, part, so_far in ((EARLY, jobs // 10, jobs // 10), (AFTER, jobs - jobs // 10, jobs)):
                bench.fill(system, url, part)
                for _ in follow(workers, so_far):
                    pass
                time.sleep(SETTLE_SECONDS)
                bench.record(case, system.name, number, resident(workers[0]), "MB")

    return Run(f"{system.name}, memory", system, once, bench.plan.memory_rounds)
