"""Rowlock on PostgreSQL, with its defaults but for pool_size."""

import asyncio
from typing import ClassVar

import rowlock
from bench.adapter import System, Tally, run
from rowlock import Rowlock


class RowlockPostgres(System):
    name = "rowlock"
    engine = "postgres"
    settings = "defaults, pool_size = concurrency"
    left_sql: ClassVar[str] = "SELECT count(*) FROM rowlock.jobs_live"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.app = Rowlock(url)
        self.tally: Tally

        @self.app.task
        async def job(sleep_ms: int = 0, sent_ns: int = 0) -> None:
            self.tally.handled(sent_ns)
            if sleep_ms:
                await asyncio.sleep(sleep_ms / 1000)

        self.task = job

    def version(self) -> str:
        return rowlock.__version__

    async def setup(self) -> None:
        await self.app.migrate()

    async def open(self, producers: int = 1) -> None:
        await self.app.open()

    async def close(self) -> None:
        await self.app.close()

    async def enqueue(self, sleep_ms: int = 0, sent_ns: int = 0, producer: int = 0) -> None:
        await self.task.enqueue(sleep_ms=sleep_ms, sent_ns=sent_ns)

    async def bulk(self, jobs: int, sleep_ms: int = 0) -> None:
        await self.task.enqueue_many([{"sleep_ms": sleep_ms}] * jobs)

    async def work(self, tally: Tally, concurrency: int, stop: asyncio.Event) -> None:
        self.tally = tally
        async with self.app.worker(pool_size=concurrency):
            await stop.wait()


if __name__ == "__main__":
    run(RowlockPostgres)
