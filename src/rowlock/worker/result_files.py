"""Removes files of results that no job names any more: files go when their jobs go, never before.

Retention may drop a whole day of jobs in one statement, without reading their ids. So this starts at the files:
at some folders of jobs in each round, and asks the database which of these jobs there are and which file each names.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Iterator
from contextlib import suppress

from rowlock.client.results import PARTIAL, ResultFolder
from rowlock.store import leases, reads
from rowlock.store.engines.engine import Store
from rowlock.store.ids import valid_id

ROUND_SECONDS = 600.0
FOLDERS = 500  # of jobs that one round checks
YOUNG_SECONDS = 3600.0  # a younger folder may be of an attempt that is about to settle


class ResultTidy:
    """Checks the folder of results, a part in each round."""

    def __init__(self, store: Store, folder: ResultFolder, abandoned_seconds: float) -> None:
        self._store, self._folder, self._abandoned = store, folder, abandoned_seconds
        self._walk: Iterator[str] = iter(())

    async def round(self) -> float:
        """Look at the next folders; returns the delay before the next round."""
        if not self._folder.path.is_dir():
            return ROUND_SECONDS
        await self._remove_abandoned()
        # The attempts' folders are listed before the database is asked. Attempts are numbered upwards, so one that
        # publishes after the answer has a folder that is not in the list.
        published = await asyncio.to_thread(self._next)
        if published:
            named = await self._store.run(reads.result_files(sorted(published)))
            await asyncio.to_thread(self._remove_unnamed, published, named)
        return ROUND_SECONDS if len(published) < FOLDERS else 1.0

    async def _remove_abandoned(self) -> None:
        """Remove what attempts that are over have written in private: those whose lease does not hold any more."""
        old = await asyncio.to_thread(self._folder.partial_older_than, self._abandoned)
        for folder in old:
            held: dict[str, bool] = {}
            if valid_id(folder.job_id) and valid_id(folder.token):
                held = await self._store.run(leases.held([(folder.job_id, folder.token)]))
            if not held:
                await asyncio.to_thread(self._folder.remove_partial, folder)

    def _next(self) -> dict[str, list[str]]:
        """The next folders of jobs, and the attempts that each has."""
        found = list(itertools.islice(self._walk, FOLDERS))
        if not found:
            self._walk = self._folders()
            found = list(itertools.islice(self._walk, FOLDERS))
        return {job_id: self._attempts(job_id) for job_id in found}

    def _attempts(self, job_id: str) -> list[str]:
        with suppress(FileNotFoundError):
            return os.listdir(self._folder.path / job_id)
        return []

    def _folders(self) -> Iterator[str]:
        """The names of folders that are a job's and old enough."""
        with suppress(FileNotFoundError), os.scandir(self._folder.path) as entries:
            for entry in entries:
                if (
                    entry.name == PARTIAL
                    or valid_id(entry.name) != entry.name
                    or not entry.is_dir(follow_symlinks=False)
                ):
                    continue
                if entry.stat(follow_symlinks=False).st_mtime < time.time() - YOUNG_SECONDS:
                    yield entry.name

    def _remove_unnamed(self, published: dict[str, list[str]], named: dict[str, tuple[bool, str | None]]) -> None:
        """Remove what these jobs do not name. A job that is gone names nothing; of one that has ended, only the file of
        the attempt that succeeded is named; one that has not ended is left alone."""
        for job_id, attempts in published.items():
            final, uri = named.get(job_id, (True, None))
            if not final:
                continue
            kept = uri.split("/")[1] if uri is not None and uri.startswith(f"{job_id}/") else None
            for attempt in attempts:
                if attempt != kept:
                    self._folder.remove(job_id, attempt)
            with suppress(OSError):  # not empty: an attempt is kept, or has just been published
                os.rmdir(self._folder.path / job_id)
