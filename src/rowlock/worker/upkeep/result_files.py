"""Removes result files that no job names any more: files go after their jobs, never before.

Retention may drop a whole day of jobs in one statement, without reading their ids. So the cleanup starts at the files:
each round takes some jobs that have files, and asks the database which of these jobs exist and which file each names.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator

from rowlock.client.results.results import Results
from rowlock.core.errors import ResultsUnavailable
from rowlock.store.engine.ids import valid_id
from rowlock.store.engine.store import Store
from rowlock.store.jobs import leases
from rowlock.store.read import job_rows

log = logging.getLogger("rowlock.worker")

ROUND_SECONDS = 600.0
FOLDERS = 500  # checked in one round; each job has one
YOUNG_SECONDS = 3600.0  # the attempt of a younger file may not have settled yet


class ResultTidy:
    def __init__(self, store: Store, results: Results, abandoned_seconds: float) -> None:
        self._store, self._results, self._abandoned = store, results, abandoned_seconds
        self._walk: Iterator[str] = iter(())

    async def round(self) -> float:
        """Clean up the files of the next jobs; returns the delay before the next round."""
        await self._remove_abandoned()
        try:
            # List the files first and ask the database second, so that a file published after the answer is not in the
            # list: each attempt publishes under its own path.
            published = await self._results.run(self._next)
            if published:
                named = await self._store.run(job_rows.result_files(list(published)))
                await self._results.run(self._remove_unnamed, published, named)
        except ResultsUnavailable as error:
            log.warning("could not remove old result files, will try again: %s", error)
            self._walk = iter(())
            return ROUND_SECONDS
        return ROUND_SECONDS if len(published) < FOLDERS else 1.0

    async def _remove_abandoned(self) -> None:
        """Remove the unpublished files of attempts that no longer hold their lease."""
        for job_id, attempt, token in await self._results.run(self._results.partial_older_than, self._abandoned):
            held: dict[str, bool] = {}
            if valid_id(job_id) and valid_id(token):
                held = await self._store.run(leases.held([(job_id, token)]))
            if not held:
                await self._results.run(self._results.discard, job_id, attempt, token)

    def _next(self) -> dict[str, list[str]]:
        """The next jobs, each with the files that its attempts have published."""
        found = list(itertools.islice(self._walk, FOLDERS))
        if not found:
            self._walk = self._results.jobs(YOUNG_SECONDS)
            found = list(itertools.islice(self._walk, FOLDERS))
        return {job_id: self._results.published(job_id) for job_id in found}

    def _remove_unnamed(self, published: dict[str, list[str]], named: dict[str, tuple[bool, str | None]]) -> None:
        """Remove the published files that their jobs do not name: all files of a deleted job, all but the result of an
        ended job, and none of a job that has not ended."""
        for job_id, paths in published.items():
            final, uri = named.get(job_id, (True, None))
            if final:
                kept = uri.split("/")[1] if uri is not None and uri.startswith(f"{job_id}/") else None
                self._results.remove([path for path in paths if path.split("/")[1] != kept])
