"""Procrastinate, asynchronous, on its psycopg pool; LISTEN as the wake-up."""

import asyncio
from contextlib import suppress
from importlib.metadata import version
from typing import ClassVar

from procrastinate import App, PsycopgConnector

from bench.adapter import System, Tally, run

BULK_CHUNK = 5_000  # jobs a statement; more is not faster and costs memory
POOL = 4  # connections of a worker: the default; with 10 and 30 work that waits was slower


class Procrastinate(System):
    name = "procrastinate"
    engine = "postgres"
    settings = "concurrency jobs at once, pool of 4, succeeded jobs deleted"
    left_sql: ClassVar[str] = "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.tally: Tally

    def version(self) -> str:
        return version("procrastinate")

    async def setup(self) -> None:
        await self.open()
        await self.app.schema_manager.apply_schema_async()
        await self.close()

    async def open(self, producers: int = 1) -> None:
        self.app = App(connector=PsycopgConnector(conninfo=self.url, min_size=producers, max_size=producers))

        @self.app.task(name="job")
        async def job(sleep_ms: int = 0, sent_ns: int = 0) -> None:
            self.tally.handled(sent_ns)
            if sleep_ms:
                await asyncio.sleep(sleep_ms / 1000)

        self.task = job
        await self.app.open_async()

    async def close(self) -> None:
        await self.app.close_async()

    async def enqueue(self, sleep_ms: int = 0, sent_ns: int = 0, producer: int = 0) -> None:
        await self.task.defer_async(sleep_ms=sleep_ms, sent_ns=sent_ns)

    async def bulk(self, jobs: int, sleep_ms: int = 0) -> None:
        for start in range(0, jobs, BULK_CHUNK):
            await self.task.batch_defer_async(*[{"sleep_ms": sleep_ms}] * min(BULK_CHUNK, jobs - start))

    async def work(self, tally: Tally, concurrency: int, stop: asyncio.Event) -> None:
        self.tally = tally
        await self.open(POOL)
        working = asyncio.create_task(
            self.app.run_worker_async(concurrency=concurrency, delete_jobs="successful", install_signal_handlers=False)
        )
        await asyncio.wait([working, asyncio.create_task(stop.wait())], return_when=asyncio.FIRST_COMPLETED)
        working.cancel()  # it then stops fetching and waits for the jobs that run
        with suppress(asyncio.CancelledError):
            await working
        await self.close()


if __name__ == "__main__":
    # It warns about an app that is made in the main module.
    from bench.systems.procrastinate import Procrastinate as Imported

    run(Imported)
