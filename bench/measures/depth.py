"""Whether the rate of claiming and settling depends on what else is in the database. Only Rowlock, on PostgreSQL.

Every case gets the same jobs to do, on top of its ballast, and the same window of them is timed: from the
first fifth to the last tenth, so that start-up is out of it and the queue never runs dry in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.catalog import Described
from bench.measures.pinned import moment
from bench.processes import Worker
from bench.runner import Bench, Run
from bench.waits import follow

FROM, TO = 0.2, 0.9
ROWS = ":rows"  # put in last: the arguments' own braces would upset a second format()

# Ids as the library makes them (UUIDv7), in order of their number, with the time at which they are made.
ID = """(lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0') || '7'
    || lpad(to_hex((n >> 14) & 4095), 3, '0') || to_hex(8 + ((n >> 12) & 3)) || lpad(to_hex(n & 4095), 3, '0')
    || substr(md5(random()::text), 1, 12))::uuid"""
ARGS = """'{"sleep_ms":0,"sent_ns":0}'"""
LIVE = """
INSERT INTO rowlock.jobs_live (
    id, args, task, queue, source, ready, priority, max_attempts, run_after, created_at, updated_at)
SELECT {id}, {args}, {task}, {queue}, {source}, {ready}, {priority}, 5, {run_after}, now(), now()
FROM generate_series(1, {rows}) n"""
FINISHED = """
INSERT INTO rowlock.jobs_finished (
    id, task, queue, state, priority, args, attempt, max_attempts, releases, losses, convictions, run_after,
    settled_token, progress, last_worker, created_at, started_at, finished_at, updated_at, drop_on)
SELECT {id}, 'job', 'default', 'succeeded', 0, {args}, 1, 5, 0, 0, 0, now(),
       gen_random_uuid(), 100, 'bench', now(), now(), now(), now(), (SELECT max(drop_on) FROM rowlock.jobs_finished)
FROM generate_series(1, {rows}) n"""


@dataclass(frozen=True)
class Case:
    """What lies in the database beside the jobs to do."""

    name: str
    ballast: str = ""
    tasks: int = 1


def live(
    task: str = "'job'", queue: str = "'default'", due: bool = True, priority: int = 0, source: str = "NULL"
) -> str:
    run_after = "now()" if due else "now() + interval '1 day'"
    words = {"task": task, "queue": queue, "ready": str(due).upper(), "priority": priority, "run_after": run_after}
    words["source"] = source
    return LIVE.format(id=ID, args=ARGS, rows=ROWS, **words)


SHALLOW = "10,000 queued"
CASES = (
    Case(SHALLOW),
    Case("deep queue", live()),
    Case("finished rows", FINISHED.format(id=ID, args=ARGS, rows=ROWS)),
    Case("another queue", live(queue="'other'")),
    Case("not yet due, better priority", live(due=False, priority=-10)),
    Case("unknown task", live(task="'stranger'")),
    Case("50 tasks", tasks=50),
)


def postgres(bench: Bench) -> None:
    """Depth: the rate beside much ballast against the rate with about 10,000 queued."""
    system = bench.one("postgres", "rowlock")
    bench.results.note(f"ballast: {bench.plan.ballast:,} rows")
    with bench.as_template(system) as (template, url):
        first_day(bench, system, url)
        bench.interleave([once_for(bench, system, case, template) for case in CASES])


def once_for(bench: Bench, system: Described, case: Case, template: str) -> Run:
    plan = bench.plan

    def once(number: int) -> None:
        with bench.database(system, template) as url:
            if case.ballast:
                bench.query(url, case.ballast.replace(ROWS, str(plan.ballast)))
            for window in range(plan.depth_windows):
                rate = timed(bench, system, url, case.tasks)
                bench.record(case.name, system.name, number * plan.depth_windows + window, rate, "jobs/s")

    return Run(f"{system.name}, {case.name}", system, once, plan.depth_rounds)


def first_day(bench: Bench, system: Described, url: str) -> None:
    """Let a worker finish a few jobs, so that finished rows have their partition before any ballast comes."""
    jobs = bench.fill(system, url, 100)
    with bench.workers(system, url) as workers:
        for _ in follow(workers, jobs):
            pass


def timed(bench: Bench, system: Described, url: str, tasks: int) -> float:
    """Jobs a second of one window, by a fresh worker."""
    jobs = bench.plan.window_jobs
    task = "'job'" if tasks == 1 else f"CASE n % {tasks} WHEN 0 THEN 'job' ELSE 'job_' || (n % {tasks}) END"
    bench.query(url, live(task=task).replace(ROWS, str(jobs)))
    bench.checkpoint()
    with bench.workers(system, url, tasks=tasks) as workers:
        return rate_in_window(workers, jobs)


def rate_in_window(workers: Sequence[Worker], jobs: int) -> float:
    """Jobs a second between the first fifth and the last tenth of them."""
    line = [(now, sum(counts)) for now, counts in follow(workers, int(jobs * TO))]
    start, end = moment(line, jobs * FROM), moment(line, jobs * TO)
    return jobs * (TO - FROM) / (end - start)
