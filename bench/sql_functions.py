"""SQL `claim` + `complete` of a hundred jobs at a time on one connection, against the Python worker's drain.

    .venv/bin/python -m bench.sql_functions [--jobs 20000] [--rounds 5]

Both take turns on one server in the same minutes, each on a fresh database that is filled before the clock starts. The
median of the ratios within a round decides; the target is 0.5. Beside it stands where the time of the SQL loop goes: in
claim, in complete, in commits.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from uuid import UUID

import psycopg

from bench.server import start_server
from rowlock import Rowlock

BATCH = 100
TARGET = 0.5


def drain_by_sql(url: str, jobs: int) -> tuple[float, dict[str, float]]:
    """Jobs a second, and the share of the time that each call and the commits took. A hundred jobs are completed and
    the next hundred claimed in one transaction: the leases are committed before their jobs would run."""
    spent = dict.fromkeys(("claim", "complete", "commit"), 0.0)
    done, claimed = 0, list[tuple[UUID, UUID]]()
    with psycopg.connect(url, prepare_threshold=0) as connection:
        begun = time.perf_counter()
        while done < jobs:
            moments = [time.perf_counter()]
            ended = json.dumps([{"job_id": str(job_id), "token": str(token)} for job_id, token in claimed])
            answers = connection.execute("SELECT answer FROM rowlock.complete_many(%s)", [ended]).fetchall()
            moments.append(time.perf_counter())
            claimed = connection.execute(
                "SELECT job_id, token FROM rowlock.claim('bench', '{job}', %s)", [BATCH]
            ).fetchall()
            moments.append(time.perf_counter())
            connection.commit()
            moments.append(time.perf_counter())
            for name, start, end in zip(("complete", "claim", "commit"), moments, moments[1:], strict=False):
                spent[name] += end - start
            if any(answer != "applied" for (answer,) in answers):
                raise RuntimeError(f"not all were applied: {answers[:5]}")
            done += len(answers)
        seconds = time.perf_counter() - begun
    return done / seconds, {name: part / seconds for name, part in spent.items()}


async def fill(url: str, jobs: int) -> None:
    await Rowlock(url).migrate()
    async with Rowlock(url) as app:

        @app.task("job")
        async def job() -> None: ...

        await job.enqueue_many([{} for _ in range(jobs)])


async def drain_by_python(url: str, jobs: int) -> float:
    """Jobs a second of one worker process with a hundred slots, after its first jobs."""
    async with Rowlock(url) as app:
        count, first, last = 0, 0.0, 0.0
        over = asyncio.Event()

        @app.task("job")
        async def job() -> None:
            nonlocal count, first, last
            count += 1
            if count == jobs // 20:
                first = time.perf_counter()
            if count == jobs:
                over.set()

        async with app.worker(pool_size=100):
            await over.wait()
            while (await app.fetch("SELECT count(*) FROM rowlock.jobs_live"))[0][0]:
                await asyncio.sleep(0.005)
            last = time.perf_counter()
        return (jobs - jobs // 20) / (last - first)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    ratios = []
    with start_server() as server:
        for number in range(given.rounds):
            rates = {}
            shares: dict[str, float] = {}
            for way in ("sql", "python") if number % 2 else ("python", "sql"):
                url = server.create_database(f"functions_{number}_{way}")
                asyncio.run(fill(url, given.jobs))
                if way == "sql":
                    rates[way], shares = drain_by_sql(url, given.jobs)
                else:
                    rates[way] = asyncio.run(drain_by_python(url, given.jobs))
            ratios.append(rates["sql"] / rates["python"])
            parts = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
            print(f"round {number + 1}: SQL {rates['sql']:,.0f} jobs/s ({parts}), Python {rates['python']:,.0f}"
                  f" jobs/s, ratio {ratios[-1]:.2f}, load {os.getloadavg()[0]:.1f}")  # fmt: skip
    median = statistics.median(ratios)
    print(f"median {median:.2f} ({min(ratios):.2f}–{max(ratios):.2f}), target {TARGET}")
    return 0 if median >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
