"""`python -m bench.api.server URL [--bare]`: the job API, or the least that FastAPI can do, on a port of its own.

It prints one line of JSON with its port. The bare one has one route that runs one prepared SELECT of a job's columns:
what the framework and the database cost without anything around them. On SIGUSR1 it prints how many operations the
database was asked for so far.
"""

import asyncio
import json
import signal
import socket
import sqlite3
import sys
from typing import Any

import asyncpg
import uvicorn
import uvloop
from fastapi import FastAPI

from rowlock import Rowlock
from rowlock.api.server import serving
from rowlock.core.config import load_settings

COLUMNS = (
    "id, task, state, progress, phase, message, result, result_uri, result_checksum, error_code, error_message,"
    " attempt, created_at, started_at, finished_at"
)


def say(**facts: Any) -> None:
    """One line for the harness."""
    print(json.dumps(facts), flush=True)


async def stopped() -> None:
    """Wait for the signal to end."""
    asked = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked.set)
    await asked.wait()


async def rowlock_api(url: str) -> None:
    """The job API, with its defaults but for limits that a measure would run into."""
    flags = {"database": url, "api.port": 0, "api.requests_per_minute": 10_000_000, "api.connections_per_owner": 1000}
    app = Rowlock(settings=load_settings(env={}, flags=flags))
    async with app, serving(app) as server:
        store, asked = await app.store(), 0
        run = type(store).run

        async def counting(self: Any, op: Any) -> Any:
            nonlocal asked
            asked += 1
            return await run(self, op)

        type(store).run = counting  # type: ignore[assignment,method-assign]
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, lambda: say(asked=asked))
        say(port=server.address[1])
        await stopped()


async def bare(url: str) -> None:
    """One route, one SELECT."""
    app = FastAPI()
    if url.startswith("sqlite"):
        file = sqlite3.connect(url.removeprefix("sqlite:///"))
        file.row_factory = sqlite3.Row

        @app.get("/api/jobs/{job_id}")
        async def get_from_file(job_id: str) -> dict[str, Any]:
            return dict(file.execute(f"SELECT {COLUMNS} FROM rowlock_jobs WHERE id = ?", (job_id,)).fetchone())
    else:
        # With a plan that is kept: PostgreSQL would plan for each value anew, in all partitions.
        settings = {"plan_cache_mode": "force_generic_plan", "jit": "off"}
        pool = await asyncpg.create_pool(url, min_size=4, max_size=4, server_settings=settings)

        @app.get("/api/jobs/{job_id}")
        async def get_from_server(job_id: str) -> dict[str, Any]:
            return dict(await pool.fetchrow(f"SELECT {COLUMNS} FROM rowlock.jobs WHERE id = $1", job_id))

    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_config=None, access_log=False, http="h11", ws="none", lifespan="off")
    server = uvicorn.Server(config)
    running = asyncio.ensure_future(server.serve([listening]))
    while not server.started:
        await asyncio.sleep(0.01)
    say(port=listening.getsockname()[1])
    await stopped()
    server.should_exit = True
    await running


if __name__ == "__main__":
    uvloop.run((bare if "--bare" in sys.argv else rowlock_api)(sys.argv[1]))
