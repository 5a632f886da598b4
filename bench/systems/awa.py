"""Awa: a Rust runtime that calls Python handlers, on its queue storage; LISTEN as the wake-up."""

import asyncio
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, ClassVar

from awa import AsyncClient

from bench.adapter import System, Tally, run

QUEUE = "bench"
BULK_CHUNK = 5_000  # jobs a COPY; more is not faster and costs memory
# Enqueued less completed, from its own counters: the view awa.jobs took minutes to count 20,000 completed jobs.
LEFT_SQL = """
SELECT (SELECT coalesce(sum(awa.sequence_next_value(seq_name) - 1), 0) FROM awa.queue_enqueue_heads)
     - (SELECT coalesce(sum(completed_count), 0) FROM awa.receipt_completion_batches)
     - (SELECT count(*) FROM awa.done_entries)
     - (SELECT coalesce(sum(pruned_completed_count), 0) FROM awa.queue_terminal_rollups)
"""


@dataclass
class BenchJob:
    sleep_ms: int = 0
    sent_ns: int = 0


class Awa(System):
    name = "awa"
    engine = "postgres"
    settings = "queue storage, max_workers = concurrency, claim_batch_size 500"
    left_sql: ClassVar[str] = LEFT_SQL
    client: AsyncClient

    def version(self) -> str:
        return version("awa-pg")

    async def setup(self) -> None:
        await self.open()
        await self.client.migrate()
        await self.client.install_queue_storage()
        await self.close()

    async def open(self, producers: int = 1) -> None:
        self.client = AsyncClient(self.url, max_connections=max(10, producers))

    async def close(self) -> None:
        await self.client.close()

    async def enqueue(self, sleep_ms: int = 0, sent_ns: int = 0, producer: int = 0) -> None:
        await self.client.insert(BenchJob(sleep_ms, sent_ns), queue=QUEUE)

    async def bulk(self, jobs: int, sleep_ms: int = 0) -> None:
        for start in range(0, jobs, BULK_CHUNK):
            await self.client.enqueue_many_copy([BenchJob(sleep_ms)] * min(BULK_CHUNK, jobs - start), queue=QUEUE)

    async def work(self, tally: Tally, concurrency: int, stop: asyncio.Event) -> None:
        await self.open()

        @self.client.task(BenchJob, queue=QUEUE)
        async def job(job: Any) -> None:
            tally.handled(job.args.sent_ns)
            if job.args.sleep_ms:
                await asyncio.sleep(job.args.sleep_ms / 1000)

        await self.client.start([{"name": QUEUE, "max_workers": concurrency, "claim_batch_size": 500}])
        await stop.wait()
        await self.client.shutdown(8_000)
        await self.close()


if __name__ == "__main__":
    run(Awa)
