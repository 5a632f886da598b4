"""What jobs with a source cost: beside one source that is full, and spread over very many. Only Rowlock.

Every source is of the class `domain`, with a concurrency of 2.
"""

import time

from bench.catalog import Described
from bench.measures.depth import ROWS, live, rate_in_window
from bench.measures.drain import drain
from bench.processes import Broken
from bench.runner import Bench, Run

FREE_ALONE, FREE_BESIDE = "free sources alone", "free sources beside a saturated one"
FREE = 100
MANY, NONE = "1,000 sources", "the same jobs without a source"
CROWD = 1_000
LIMIT = 2
BUSY = "domain:busy"

# As if another worker had claimed as many as it may, for longer than the bench takes.
HOLD = {
    "postgres": f"""
        UPDATE rowlock.jobs_live
        SET state = 'running', ready = FALSE, attempt = 1, lease_token = gen_random_uuid(), locked_by = 'elsewhere',
            locked_at = now(), heartbeat_at = now(), lease_expires_at = now() + interval '1 day', source_epoch = 0
        WHERE id IN (SELECT id FROM rowlock.jobs_live WHERE source = '{BUSY}' ORDER BY id LIMIT {LIMIT})""",
    "sqlite": f"""
        UPDATE rowlock_jobs_live
        SET state = 'running', ready = FALSE, attempt = 1, lease_token = id, locked_by = 'elsewhere',
            locked_at = {{now}}, heartbeat_at = {{now}}, lease_expires_at = {{now}} + 86400, source_epoch = 0
        WHERE id IN (SELECT id FROM rowlock_jobs_live WHERE source = '{BUSY}' ORDER BY id LIMIT {LIMIT})""",
}

LEFT = {
    "postgres": f"SELECT count(*) FROM rowlock.jobs_live WHERE source = '{BUSY}'",
    "sqlite": f"SELECT count(*) FROM rowlock_jobs_live WHERE source = '{BUSY}'",
}


def head_postgres(bench: Bench) -> None:
    """Head of line on PostgreSQL: free sources beside one whose slots are taken and whose queue is long."""
    head(bench, "postgres")


def head_sqlite(bench: Bench) -> None:
    """Head of line on SQLite."""
    head(bench, "sqlite")


def many_postgres(bench: Bench) -> None:
    """Many sources on PostgreSQL: the same jobs with and without."""
    many(bench, "postgres")


def many_sqlite(bench: Bench) -> None:
    """Many sources on SQLite."""
    many(bench, "sqlite")


def head(bench: Bench, engine: str) -> None:
    system, plan = bench.one(engine, "rowlock"), bench.plan
    bench.results.note(
        f"{plan.ballast:,} jobs of a saturated source, {FREE} free sources of {plan.free_jobs:,} jobs; all limited to"
        f" {LIMIT} at a time; timed from the first fifth to the last tenth"
    )

    def run(case: str, template: str) -> Run:
        def once(number: int) -> None:
            jobs = FREE * plan.free_jobs
            with bench.database(system, template) as url:
                bench.fill(system, url, jobs, sources=FREE, limit=LIMIT)
                bench.checkpoint()
                with bench.workers(system, url) as workers:
                    rate = rate_in_window(workers, jobs)
                if template and bench.query(url, LEFT[engine]) != plan.ballast + LIMIT:
                    raise Broken("jobs of the saturated source have run, and were counted")
            bench.record(case, system.name, number, rate, "jobs/s")

        return Run(case, system, once, plan.sources_rounds)

    with bench.as_template(system) as (template, url):
        bench.fill(system, url, LIMIT, source=BUSY, limit=LIMIT)
        hold(bench, system, url)
        if engine == "postgres":  # faster, and it adds up
            bench.query(url, live(source=f"'{BUSY}'").replace(ROWS, str(plan.ballast)))
        else:
            bench.fill(system, url, plan.ballast, source=BUSY)
        bench.interleave([run(FREE_ALONE, ""), run(FREE_BESIDE, template)])


def hold(bench: Bench, system: Described, url: str) -> None:
    """Let as many jobs of the busy source run elsewhere as may."""
    bench.query(url, HOLD[system.engine].format(now=time.time()))


def many(bench: Bench, engine: str) -> None:
    system, plan = bench.one(engine, "rowlock"), bench.plan
    bench.results.note(f"{plan.crowd_jobs:,} jobs, of {CROWD:,} sources limited to {LIMIT} at a time or of none")

    def run(case: str, **flags: int) -> Run:
        def once(number: int) -> None:
            bench.record(case, system.name, number, drain(bench, system, 1, plan.crowd_jobs, **flags), "jobs/s")

        return Run(case, system, once, plan.sources_rounds)

    bench.interleave([run(MANY, sources=CROWD, limit=LIMIT), run(NONE)])
