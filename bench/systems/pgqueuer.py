"""PgQueuer on asyncpg: batches claimed and completed in one statement each, LISTEN as the wake-up."""

import asyncio
import json
from importlib.metadata import version
from typing import ClassVar

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from bench.adapter import System, Tally, run

ENTRYPOINT = "job"
BATCH = 500
BULK_CHUNK = 5_000  # jobs a statement; more is not faster and costs memory


class PgQueuerSystem(System):
    name = "pgqueuer"
    engine = "postgres"
    settings = "asyncpg pool, max_concurrent_tasks = concurrency, batch_size = concurrency / 2 up to 500"
    left_sql: ClassVar[str] = "SELECT count(*) FROM pgqueuer"
    pool: asyncpg.Pool
    queries: Queries

    def version(self) -> str:
        return version("pgqueuer")

    async def setup(self) -> None:
        await self.open()
        await self.queries.install()
        await self.close()

    async def open(self, producers: int = 1) -> None:
        self.pool = await asyncpg.create_pool(self.url, min_size=producers, max_size=producers)
        self.queries = Queries.from_asyncpg_pool(self.pool)

    async def close(self) -> None:
        await self.pool.close()

    async def enqueue(self, sleep_ms: int = 0, sent_ns: int = 0, producer: int = 0) -> None:
        await self.queries.enqueue(ENTRYPOINT, payload(sleep_ms, sent_ns))

    async def bulk(self, jobs: int, sleep_ms: int = 0) -> None:
        data = payload(sleep_ms)
        for start in range(0, jobs, BULK_CHUNK):
            size = min(BULK_CHUNK, jobs - start)
            await self.queries.enqueue([ENTRYPOINT] * size, [data] * size, [0] * size)

    async def work(self, tally: Tally, concurrency: int, stop: asyncio.Event) -> None:
        # One connection listens; of the others one claims while another writes the completions.
        self.pool = await asyncpg.create_pool(self.url, min_size=3, max_size=4)
        queuer = PgQueuer.from_asyncpg_pool(self.pool)

        @queuer.entrypoint(ENTRYPOINT)
        async def job(job: Job) -> None:
            assert job.payload is not None
            arguments = json.loads(job.payload)
            tally.handled(arguments["sent_ns"])
            if arguments["sleep_ms"]:
                await asyncio.sleep(arguments["sleep_ms"] / 1000)

        slots = max(2, concurrency)  # it refuses fewer than two batches
        working = asyncio.create_task(
            queuer.run(batch_size=min(BATCH, slots // 2), max_concurrent_tasks=slots),
        )
        await asyncio.wait([working, asyncio.create_task(stop.wait())], return_when=asyncio.FIRST_COMPLETED)
        queuer.shutdown.set()
        await working
        await self.pool.close()


def payload(sleep_ms: int, sent_ns: int = 0) -> bytes:
    return json.dumps({"sleep_ms": sleep_ms, "sent_ns": sent_ns}).encode()


if __name__ == "__main__":
    run(PgQueuerSystem)
