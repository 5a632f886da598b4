"""Import a bookmarks file: place its bookmarks, and make one job for each link that nobody has fetched or is fetching.

What an import counts: `total_items` are the bookmarks of the file. A bookmark is processed as soon as it is read if
this import has no job for it: it is a duplicate, is never fetched (`javascript:` and the like), or its link belongs to
the job of an earlier import, done or under way. All others are processed when their job has ended. `failed_items` are
jobs of this import that are dead. So every import ends by its own jobs alone, and the jobs of all imports together are
one for each link.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from tempfile import SpooledTemporaryFile

from rowlock import BatchNotFound, InvalidArguments, Rowlock, RowlockError

from . import tables
from .uploads import Item, Upload, items, opened, put_aside

ENRICH, ENDED = "bookmarks.enrich", "bookmarks.import_ended"
SOURCE_TYPE = "chrome_html"
MOST_IN_MEMORY = 8 << 20
PORTION = 500  # bookmarks in one transaction: short enough for a loop that serves others meanwhile


class ImportNotFound(RowlockError, LookupError):
    """No import with that id."""


@dataclass(frozen=True, slots=True)
class Import:
    """How an import stands."""

    id: str
    user_id: str
    source_type: str
    status: str  # queued, running, succeeded, failed, canceled
    total_items: int
    processed_items: int
    failed_items: int
    started_at: datetime | None
    finished_at: datetime | None
    last_error: str | None

    @property
    def over(self) -> bool:
        """Whether nothing of it is left to do."""
        return self.status in ("succeeded", "failed", "canceled")


async def import_file(app: Rowlock, user_id: str, upload: Upload) -> str:
    """Import a file, by its path or its bytes; answers the import's id when all its jobs are there. A file that cannot
    be imported is a `BadUpload`, and nothing is written."""
    if not isinstance(user_id, str) or not user_id.strip():
        raise InvalidArguments(f"user_id must be text that says whose bookmarks these are, not {user_id!r}")
    with opened(upload) as file, SpooledTemporaryFile(MOST_IN_MEMORY) as lines:
        total = await asyncio.to_thread(put_aside, file, lines)
        async with app.batch(f"{SOURCE_TYPE} of {user_id}"[:200], owner=user_id, on_end=ENDED) as batch:
            async with app.transaction() as tx:
                await tables.add_import(tx, batch.id, user_id, SOURCE_TYPE, total)
            async for portion in _portions(items(lines)):
                await _place(app, batch.id, user_id, portion)
    return batch.id


async def _portions(left: Iterator[Item]) -> AsyncIterator[list[Item]]:
    """Bookmarks and their links, made canonical in a thread, each portion while the one before is written."""
    coming = asyncio.ensure_future(asyncio.to_thread(_next, left))
    while portion := await coming:
        coming = asyncio.ensure_future(asyncio.to_thread(_next, left))
        yield portion


def _next(left: Iterator[Item]) -> list[Item]:
    return list(islice(left, PORTION))


async def _place(app: Rowlock, import_id: str, user_id: str, portion: list[Item]) -> None:
    """Links, placements and jobs of a portion: all of them or none."""
    links = {item.link.id: item.link for item in portion if item.link is not None}
    enrich = app.get_task(ENRICH).using(batch=import_id, key=_own_id, unique="forever")
    async with app.transaction() as tx:
        await tables.add_links(tx, portion)
        await tables.add_placements(tx, import_id, user_id, portion)
        jobs = await enrich.enqueue_many([{"link_id": link.id, "host": link.host} for link in links.values()])
        made = sum(job.created for job in jobs)
        await tables.count_without_job(tx, import_id, len(portion) - made)


def _own_id(link_id: str) -> str:
    """One job for each link, for ever. If it ends dead the link may be tried again by a later import."""
    return link_id


async def read_import(app: Rowlock, import_id: str) -> Import:
    """How an import stands."""
    try:
        batch = await app.find_batch(import_id)
    except BatchNotFound:
        batch = None
    async with app.transaction() as tx:  # after the batch: an import seems a moment behind, never ahead
        row = await tables.find_import(tx, import_id) if valid(import_id) else None
    if row is None:
        raise ImportNotFound(f"no import with id {import_id}")
    state, processed, failed = row["state"], row["processed_items"], row["failed_items"]
    error, started, finished = row["last_error"], None, None
    if batch is not None:  # else it was pruned, and what it left is in the row
        state, processed, failed = batch.state, row["without_job"] + batch.processed, batch.failed
        error, started, finished = batch.last_error, batch.started_at, batch.finished_at
    return Import(
        id=import_id,
        user_id=row["user_id"],
        source_type=row["source_type"],
        status="canceled" if state == "cancelled" else str(state),
        total_items=row["total_items"],
        processed_items=processed,
        failed_items=failed,
        started_at=started,
        finished_at=finished,
        last_error=error and error.partition("\n")[0],
    )


def valid(import_id: str) -> bool:
    """PostgreSQL has no answer to what is not an id."""
    try:
        uuid.UUID(import_id)
    except ValueError:
        return False
    return True
