"""Huey on SQLite with worker threads: a job is deleted when it is taken, and the queue is polled."""

import asyncio
import threading
import time
from importlib.metadata import version
from typing import ClassVar

from huey import SqliteHuey

from bench.adapter import REPORT_SECONDS, System, Tally, run


class Huey(System):
    name = "huey"
    engine = "sqlite"
    settings = "threads, WAL, fsync (synchronous=FULL), no results, polls every 10 ms"
    left_sql: ClassVar[str] = "SELECT count(*) FROM task"  # a job that runs is no longer there: see the README

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.tally: Tally
        self.lock = threading.Lock()  # a Tally is not made for threads

    def version(self) -> str:
        return version("huey")

    async def setup(self) -> None:
        await self.open()
        await self.close()

    async def open(self, producers: int = 1) -> None:
        self.huey = SqliteHuey(
            "bench", filename=self.url.removeprefix("sqlite:///"), results=False, fsync=True, journal_mode="wal"
        )

        @self.huey.task(name="job")
        def job(sleep_ms: int, sent_ns: int) -> None:
            with self.lock:
                self.tally.handled(sent_ns)
            if sleep_ms:
                time.sleep(sleep_ms / 1000)

        self.task = job

    async def close(self) -> None:
        self.huey.storage.close()

    async def enqueue(self, sleep_ms: int = 0, sent_ns: int = 0, producer: int = 0) -> None:
        self.task(sleep_ms, sent_ns)

    async def work(self, tally: Tally, concurrency: int, stop: asyncio.Event) -> None:
        self.tally = tally
        await self.open()
        threading.Thread(target=self.publish_always, daemon=True).start()
        consumer = self.huey.create_consumer(
            workers=concurrency, periodic=False, initial_delay=0.01, backoff=1, max_delay=0.01, graceful_signal="TERM"
        )
        consumer.run()  # in this thread and with its own signal handlers, as its program does it; `stop` is not needed
        await self.close()

    def publish_always(self) -> None:
        while True:
            with self.lock:
                self.tally.publish()
            time.sleep(REPORT_SECONDS)


if __name__ == "__main__":
    run(Huey)
