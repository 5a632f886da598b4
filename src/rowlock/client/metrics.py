"""Counts the jobs that this process has enqueued, for `/metrics`. The counts end with the process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

MOST = 100  # pairs of queue and task; the jobs of all others are counted under `other`
OTHER = ("other", "other")


class Enqueued:
    """A number for each queue and task."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}

    def add(self, queue: str, task: str, number: int) -> None:
        """Count jobs that a statement has inserted. If its transaction is rolled back later, they stay counted."""
        key = (queue, task)
        if key not in self._counts and len(self._counts) >= MOST:
            key = OTHER
        self._counts[key] = self._counts.get(key, 0) + number

    def samples(self) -> Mapping[str, Iterable[Any]]:
        """The numbers now. Another thread may ask."""
        return {"rowlock_jobs_enqueued_total": sorted(self._counts.copy().items())}
