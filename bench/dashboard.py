"""`python -m bench.dashboard`: how long a dashboard's pages and their statements take with a million finished jobs.

Rows are written by SQL, as a queue that ran for a week would have left them. Each route is asked over HTTP; the slowest
statement of each is told too. Bars: a first page within 300 ms, no statement over 100 ms.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp

from bench.server import start_server
from rowlock import Rowlock
from rowlock.api.access import tokens
from rowlock.api.server import serving
from rowlock.core.config import load_settings
from rowlock.store import open_store
from rowlock.store.engine.postgres.store import PostgresStore
from rowlock.store.engine.sqlite import runner
from rowlock.store.engine.store import StoreOptions
from rowlock.store.read import counters
from support.servers.postgres import PostgresDatabases

PAGE_SECONDS, STATEMENT_SECONDS = 0.3, 0.1
FILL = {
    "postgres": """
        INSERT INTO rowlock.jobs_finished (
            id, task, queue, state, priority, args, owner, source, batch_id, max_attempts, attempt, releases, losses,
            convictions, run_after, error_code, error_message, last_worker, created_at, started_at, finished_at,
            updated_at, drop_on, result)
        SELECT CAST(lpad(to_hex(at), 12, '0') || '7' || substr(md5(n::text), 1, 19) AS uuid), 'task' || n % 20,
               'queue' || n % 5, CASE n % 50 WHEN 7 THEN 'dead' WHEN 9 THEN 'cancelled' ELSE 'succeeded' END, 0,
               json_build_object('url', 'https://example.com/' || n), CASE WHEN n % 3 = 0 THEN 'ana' END,
               CASE WHEN n % 4 = 0 THEN 'domain:' || n % 100 END,
               CASE WHEN n % 1000 = 0 THEN CAST('00000000-0000-7000-9000-000000000001' AS uuid) END, 5, 1, 0, 0, 0,
               to_timestamp(at / 1000.0), CASE n % 50 WHEN 7 THEN 'HTTP_500' END, NULL, 'worker-1',
               to_timestamp(at / 1000.0), to_timestamp(at / 1000.0 + 0.02), to_timestamp(at / 1000.0 + 0.3),
               to_timestamp(at / 1000.0 + 0.3),
               CAST(to_timestamp(at / 1000.0) + interval '8 days' AS date), '{"ok": true}'
        FROM (SELECT n, CAST(extract(epoch FROM now()) * 1000 AS bigint) - 604800000 + n * (604800000 / %(jobs)s) AS at
              FROM generate_series(1, %(jobs)s) n) made
    """,
    "sqlite": """
        WITH RECURSIVE series (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM series WHERE n < %(jobs)s),
             made AS (SELECT n, unixepoch('subsec') * 1000 - 604800000 + n * (604800000.0 / %(jobs)s) AS at FROM series)
        INSERT INTO rowlock_jobs_finished (
            id, task, queue, state, priority, args, owner, source, batch_id, max_attempts, attempt, releases, losses,
            convictions, run_after, error_code, error_message, last_worker, created_at, started_at, finished_at,
            updated_at, drop_on, result)
        SELECT printf('%%08x-%%04x-7%%03x-8%%03x-%%012x', CAST(at AS INTEGER) / 65536, CAST(at AS INTEGER) %% 65536,
                      abs(random()) %% 4096, abs(random()) %% 4096, n),
               'task' || (n %% 20), 'queue' || (n %% 5),
               CASE n %% 50 WHEN 7 THEN 'dead' WHEN 9 THEN 'cancelled' ELSE 'succeeded' END, 0,
               json_object('url', 'https://example.com/' || n), CASE WHEN n %% 3 = 0 THEN 'ana' END,
               CASE WHEN n %% 4 = 0 THEN 'domain:' || (n %% 100) END,
               CASE WHEN n %% 1000 = 0 THEN '00000000-0000-7000-9000-000000000001' END, 5, 1, 0, 0, 0, at / 1000,
               CASE n %% 50 WHEN 7 THEN 'HTTP_500' END, NULL, 'worker-1', at / 1000, at / 1000 + 0.02, at / 1000 + 0.3,
               at / 1000 + 0.3, date('now', '+8 days'), '{"ok": true}'
        FROM made
    """,
}
ATTEMPTS = """
    INSERT INTO {t}attempts (job_id, attempt, outcome, worker, started_at, finished_at, error_code, error_message, task,
                             queue, source)
    SELECT id, 1, 'failed', 'worker-1', started_at, finished_at, 'HTTP_500', 'HTTP 500 from ' || substr(args, 10, 30),
           task, queue, source
    FROM {t}jobs_finished WHERE state = 'dead' AND state <> 'succeeded'
"""
PAGES = (
    "now", "jobs", "jobs/counts", "jobs?state=dead", "jobs?state=dead&errorCode=HTTP_404", "jobs?task=none",
    "jobs/counts?task=none", "jobs?owner=ana&task=task3", "jobs/counts?owner=ana", "jobs?source=domain:96",
    "jobs?text=example.com/77&since=2h", "jobs?batch=00000000-0000-7000-9000-000000000001",
    "jobs/counts?batch=00000000-0000-7000-9000-000000000001", "jobs?state=running", "find?text=0190", "queues",
    "failures", "failures?since=7d", "workers", "schedules", "sources", "batches", "names", "audit", "tasks",
    "charts/throughput?minutes=60", "charts/throughput?minutes=10080", "charts/depth", "charts/heat?minutes=1440",
    "charts/slots",
)  # fmt: skip


@contextmanager
def timed() -> Iterator[list[tuple[float, str]]]:
    """The seconds and names of the statements that run in this block."""
    taken: list[tuple[float, str]] = []
    sqlite, postgres = runner.Runner.execute, PostgresStore._execute

    def execute(self, call):
        began = time.perf_counter()
        try:
            return sqlite(self, call)
        finally:
            taken.append((time.perf_counter() - began, call.name))

    async def fetch(self, connection, call):
        began = time.perf_counter()
        try:
            return await postgres(self, connection, call)
        finally:
            taken.append((time.perf_counter() - began, call.name))

    runner.Runner.execute, PostgresStore._execute = execute, fetch
    try:
        yield taken
    finally:
        runner.Runner.execute, PostgresStore._execute = sqlite, postgres


async def fill(url: str, jobs: int) -> None:
    """A week's finished jobs."""
    patient = StoreOptions(migrate=True, command_timeout=3600, statement_seconds=3600, transaction_seconds=3600)
    store = await open_store(url, patient)
    prefix = "rowlock." if store.engine == "postgres" else "rowlock_"
    began = time.monotonic()
    async with store.transaction() as tx:
        text = FILL[store.engine]
        text = text.replace("%(jobs)s", str(jobs)).replace("%%", "%")
        if store.engine == "postgres":
            await tx.execute("SET LOCAL statement_timeout = 0")
        await tx.execute(text)
    async with store.transaction() as tx:
        args = "CAST(args AS text)" if store.engine == "postgres" else "args"
        await tx.execute(ATTEMPTS.replace("{t}", prefix).replace("substr(args", f"substr({args}"))
    while await store.run(counters.sum_up()):
        pass
    await store.run(counters.forget())
    await store.execute("VACUUM ANALYZE" if store.engine == "postgres" else "ANALYZE")  # as autovacuum does
    await store.close()
    print(f"  filled in {time.monotonic() - began:.0f} s")


async def measure(url: str, rounds: int) -> list[str]:
    """Ask for each page; answers what was too slow."""
    app, bad = Rowlock(settings=load_settings(env={}, flags={"database": url, "api.port": 0})), []
    async with app, serving(app) as server, aiohttp.ClientSession() as http:
        secret = tokens.new_secret()
        await (await app.store()).run(tokens.create(secret, None, "operator"))
        host, port = server.address
        for page in PAGES:
            times, statements = [], []
            for _ in range(rounds):
                with timed() as taken:
                    began = time.perf_counter()
                    address = f"http://{host}:{port}/api/operator/{page}"
                    async with http.get(address, headers={"Authorization": f"Bearer {secret}"}) as answer:
                        body = await answer.read()
                    times.append(time.perf_counter() - began)
                    statements.append(max(taken))
            best, (slowest, name) = min(times), min(statements)
            late = answer.status != 200 or best > PAGE_SECONDS or slowest > STATEMENT_SECONDS
            bad += [page] if late else []
            print(
                f"  {page:58} {answer.status} {best * 1000:6.0f} ms  {name} {slowest * 1000:.0f} ms"
                f"  {len(body):,} bytes{'  TOO SLOW' if late else ''}"
            )
    return bad


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3, help="how many rounds to run; the best one counts")
    parser.add_argument("--engine", choices=["sqlite", "postgres"])
    options = parser.parse_args()
    server = start_server()
    bad: list[str] = []
    try:
        for engine in [options.engine] if options.engine else ["postgres", "sqlite"]:
            print(f"{engine}, {options.jobs:,} finished jobs")
            with tempfile.TemporaryDirectory() as folder:
                url = f"sqlite:///{folder}/jobs.db"
                if engine == "postgres":
                    url = PostgresDatabases(server.url).create_database("dashboard")
                asyncio.run(fill(url, options.jobs))
                bad += [f"{engine}: {page}" for page in asyncio.run(measure(url, options.rounds))]
    finally:
        server.stop()
    print("too slow: " + ", ".join(bad) if bad else "every page within its bars")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
