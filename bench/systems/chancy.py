"""Chancy with the asyncio executor, eager polling and LISTEN as the wake-up."""

import asyncio
import logging
from importlib.metadata import version
from typing import ClassVar

from chancy import Chancy, Job, Queue, Worker
from chancy.plugins.leadership import Leadership
from chancy.plugins.pruner import Pruner
from chancy.plugins.recovery import Recovery

from bench.adapter import System, Tally, run

QUEUE = "default"  # a worker declares this one in any case, and with a pool of processes unless it is there


async def job(*, sleep_ms: int = 0, sent_ns: int = 0) -> None:
    ChancySystem.tally.handled(sent_ns)
    if sleep_ms:
        await asyncio.sleep(sleep_ms / 1000)


class ChancySystem(System):
    name = "chancy"
    engine = "postgres"
    settings = "asyncio executor, eager polling, results sent every 0.1 s, no metrics or workflows, logs from WARNING"
    left_sql: ClassVar[str] = "SELECT count(*) FROM chancy_jobs WHERE state NOT IN ('succeeded', 'failed')"
    app: Chancy
    tally: ClassVar[Tally]  # of the class, because Chancy calls a plain function by its name

    def version(self) -> str:
        return version("chancy")

    async def setup(self) -> None:
        await self.open()
        await self.app.migrate()
        await self.close()

    async def open(self, producers: int = 1) -> None:
        log = logging.getLogger("bench.chancy")  # its own logger writes a line for each job it pulls
        log.setLevel(logging.WARNING)
        self.app = Chancy(
            self.url,
            plugins=[Leadership(), Recovery(), Pruner()],  # without metrics and workflows, which cost time per job
            no_default_plugins=True,
            min_connection_pool_size=producers,
            max_connection_pool_size=max(10, producers),
            log=log,
        )
        await self.app.pool.open(wait=True)

    async def close(self) -> None:
        await self.app.pool.close()

    def job(self, sleep_ms: int, sent_ns: int = 0) -> Job:
        return Job.from_func(job, queue=QUEUE, kwargs={"sleep_ms": sleep_ms, "sent_ns": sent_ns})

    async def enqueue(self, sleep_ms: int = 0, sent_ns: int = 0, producer: int = 0) -> None:
        await self.app.push(self.job(sleep_ms, sent_ns))

    async def bulk(self, jobs: int, sleep_ms: int = 0) -> None:
        async for _ in self.app.push_many([self.job(sleep_ms)] * jobs):
            pass

    async def work(self, tally: Tally, concurrency: int, stop: asyncio.Event) -> None:
        ChancySystem.tally = tally
        await self.open()
        queue = Queue(QUEUE, concurrency=concurrency, executor=Chancy.Executor.Async, eager_polling=True)
        await self.app.declare(queue, upsert=True)
        worker = Worker(self.app, register_signal_handlers=False, shutdown_timeout=8)
        worker.send_outgoing_interval = 0.1  # 1 s unless set; no slower, and a crash forgets fewer completions
        async with worker:
            await stop.wait()
        await self.close()


if __name__ == "__main__":
    # Chancy finds a job's function by its module's name, which this module does not have as a program.
    from bench.systems.chancy import ChancySystem as Imported

    run(Imported)
