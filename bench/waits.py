"""Waiting for workers and for the database, always bounded."""

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psycopg

from bench.catalog import Described
from bench.processes import Broken, Worker

STALL_SECONDS = 30.0  # nothing handled for this long: broken
LOOK_SECONDS = 0.005


def follow(workers: Sequence[Worker], handled: int, seconds: float = 900.0) -> Iterator[tuple[float, list[int]]]:
    """(time, handled by each worker) every few milliseconds until they have handled that many together."""
    deadline = time.monotonic() + seconds
    last, moved = -1, time.monotonic()
    while True:
        counts = [worker.handled for worker in workers]
        now, total = time.monotonic(), sum(counts)
        yield now, counts
        if total >= handled:
            return
        if total != last:
            last, moved = total, now
        for worker in workers:
            if not worker.alive:
                raise worker.broken(f"ended at {total:,} of {handled:,} jobs")
        if now > deadline or now - moved > STALL_SECONDS:
            raise workers[0].broken(f"makes no progress at {total:,} of {handled:,} jobs")
        time.sleep(LOOK_SECONDS)


class Left:
    """Asks how many jobs are not yet committed as done."""

    def __init__(self, system: Described, url: str) -> None:
        self._system = system
        if system.engine == "postgres":
            connection = psycopg.connect(url, autocommit=True)
            self._ask: Callable[[], Any] = lambda: connection.execute(system.left_sql).fetchone()  # type: ignore[arg-type]
        else:
            # Only reads: a second library in another process is no trouble in WAL mode.
            connection = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30, isolation_level=None)
            self._ask = lambda: connection.execute(system.left_sql).fetchone()
        self._connection: Any = connection

    def __enter__(self) -> "Left":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def count(self) -> int:
        return int(self._ask()[0])

    def none(self, seconds: float = 120.0) -> float:
        """Wait until there are none; returns the moment at which that was so."""
        deadline = time.monotonic() + seconds
        while True:
            asked = time.monotonic()
            left = self.count()
            if not left:
                return asked
            if asked > deadline:
                raise Broken(
                    f"{self._system.name}: all jobs were handled, and {left:,} are not done {seconds:.0f} s later"
                )
            # Counting walks over what the drain has left behind: ask seldom enough not to slow it down.
            time.sleep(max(LOOK_SECONDS, time.monotonic() - asked))
