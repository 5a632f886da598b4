"""What a measured system must be able to do, and the program that every adapter is.

An adapter runs as its own process, `python -m bench.systems.NAME VERB --url URL …`, so that no system pays
for another's imports, loop or threads. What it measures goes to stdout as one JSON object per line. A
system in another language keeps to the same verbs, flags and files.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

SLOT = struct.Struct("<qqq")  # jobs handled, monotonic ns of the first, monotonic ns of the last
REPORT_SECONDS = 0.005


class Tally:
    """What one worker process has handled, published in a small file every few milliseconds.

    Counting in the process and publishing on a timer costs a handler next to nothing, and is the same for
    every system; asking the database while it works would disturb what is measured.
    """

    def __init__(self, slot_file: Path, latency_file: Path | None = None) -> None:
        self.count = 0
        self._first = self._last = 0
        self._published = 0
        self._slot = os.open(slot_file, os.O_WRONLY | os.O_CREAT, 0o644)
        self._latency = os.open(latency_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644) if latency_file else None
        self._latencies: list[int] = []

    def handled(self, sent_ns: int = 0) -> None:
        """The first line of every handler: `sent_ns` is when the enqueue call began, if that is measured."""
        if not self.count:
            self._first = time.monotonic_ns()
        self.count += 1
        if sent_ns:
            self._latencies.append(time.monotonic_ns() - sent_ns)

    def publish(self) -> None:
        if self.count == self._published:
            return
        self._published = self.count
        self._last = time.monotonic_ns()
        if self._latencies and self._latency is not None:
            latencies, self._latencies = self._latencies, []
            os.write(self._latency, struct.pack(f"<{len(latencies)}q", *latencies))
        os.pwrite(self._slot, SLOT.pack(self._published, self._first, self._last), 0)

    async def publish_always(self) -> None:
        """Often while jobs come; rarely in between, so that an idle worker's own cost can be measured."""
        quiet = 0
        while True:
            quiet = quiet + 1 if self.count == self._published else 0
            self.publish()
            await asyncio.sleep(REPORT_SECONDS if quiet < 1 / REPORT_SECONDS else 0.1)


def read_tally(slot_file: Path) -> tuple[int, int, int]:
    """(handled, first ns, last ns) of one worker process; zeros before its first job."""
    try:
        data = slot_file.read_bytes()
    except FileNotFoundError:
        return 0, 0, 0
    return SLOT.unpack(data) if len(data) == SLOT.size else (0, 0, 0)


class System(ABC):
    """One system under test. A job is (sleep_ms, sent_ns): wait that long; report the latency if sent_ns."""

    name: ClassVar[str]
    engine: ClassVar[str]  # postgres | sqlite
    settings: ClassVar[str]  # what was chosen, as printed in the report
    left_sql: ClassVar[str]  # how many jobs are not yet committed as done

    def __init__(self, url: str) -> None:
        self.url = url

    @abstractmethod
    def version(self) -> str: ...

    @abstractmethod
    async def setup(self) -> None:
        """Create its tables in an empty database."""

    @abstractmethod
    async def open(self, producers: int = 1) -> None:
        """Connect for enqueueing; not timed."""

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def enqueue(self, sleep_ms: int = 0, sent_ns: int = 0, producer: int = 0) -> None:
        """One job, committed when this returns."""

    async def bulk(self, jobs: int, sleep_ms: int = 0) -> None:
        """That many jobs in the fastest way the system documents."""
        raise NotImplementedError(f"{self.name} has no bulk enqueue")

    @abstractmethod
    async def work(self, tally: Tally, concurrency: int, stop: asyncio.Event) -> None:
        """Run a worker until `stop`; each handler calls tally.handled(sent_ns) first, then waits sleep_ms if > 0."""


def run(system: type[System], argv: Sequence[str] | None = None) -> None:
    """The program of an adapter."""
    parser = argparse.ArgumentParser(prog=system.name)
    parser.add_argument("verb", choices=["describe", "setup", "bulk", "enqueue", "ping", "work"])
    parser.add_argument("--url", default="")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--sleep-ms", type=int, default=0)
    parser.add_argument("--producers", type=int, default=1)
    parser.add_argument("--concurrency", type=int, default=100)
    parser.add_argument("--slot-file", type=Path)
    parser.add_argument("--latency-file", type=Path)
    options = parser.parse_args(argv)
    try:
        import uvloop
    except ImportError:
        asyncio.run(_main(system, options))
    else:
        uvloop.run(_main(system, options))


async def _main(system: type[System], options: argparse.Namespace) -> None:
    it = system(options.url)
    match options.verb:
        case "describe":
            say(name=it.name, engine=it.engine, version=it.version(), settings=it.settings, left_sql=it.left_sql)
        case "setup":
            await it.setup()
        case "work":
            await _work(it, options)
        case verb:
            await it.open(options.producers)
            try:
                await {"bulk": _bulk, "enqueue": _enqueue, "ping": _ping}[verb](it, options)
            finally:
                await it.close()


async def _bulk(it: System, options: argparse.Namespace) -> None:
    started = time.perf_counter()
    await it.bulk(options.jobs, options.sleep_ms)
    say(seconds=time.perf_counter() - started)


async def _enqueue(it: System, options: argparse.Namespace) -> None:
    async def produce(producer: int, jobs: int) -> None:
        for _ in range(jobs):
            await it.enqueue(options.sleep_ms, producer=producer)

    for producer in range(options.producers):
        await produce(producer, 5)  # connections, caches and prepared statements; not timed
    each = options.jobs // options.producers
    started = time.perf_counter()
    await asyncio.gather(*(produce(producer, each) for producer in range(options.producers)))
    say(seconds=time.perf_counter() - started, jobs=each * options.producers)


async def _ping(it: System, options: argparse.Namespace) -> None:
    """One job at a time on an idle queue: the next is sent when the last was handled and things are calm again."""
    handled = read_tally(options.slot_file)[0]
    for _ in range(options.jobs):
        await it.enqueue(sent_ns=time.monotonic_ns())
        handled += 1
        deadline = time.monotonic() + 10
        while read_tally(options.slot_file)[0] < handled:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{it.name}: a job was not picked up within 10 s")
            await asyncio.sleep(0.002)
        await asyncio.sleep(random.uniform(0.01, 0.02))
    say(jobs=options.jobs)


async def _work(it: System, options: argparse.Namespace) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    tally = Tally(options.slot_file, options.latency_file)
    publishing = asyncio.create_task(tally.publish_always())
    try:
        await it.work(tally, options.concurrency, stop)
    finally:
        publishing.cancel()
        tally.publish()


def say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)
