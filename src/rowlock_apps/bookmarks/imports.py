"""Import a bookmarks file: place its bookmarks, and make one job for each link that nobody has fetched or is fetching.

What an import counts: `total_items` are the bookmarks of the file. A bookmark is processed as soon as it is read if
this import has no job for it: it is a duplicate, is never fetched (`javascript:` and the like), or its link belongs to
the job of an earlier import, done or under way. All others are processed when their job has ended. `failed_items` are
jobs of this import that are dead. So every import ends by its own jobs alone, and the jobs of all imports together are
one for each link. When an import is cancelled, the links that other imports have left to it get a job of their own.
"""

from __future__ import annotations

import asyncio
import unicodedata
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from tempfile import SpooledTemporaryFile

from rowlock import BatchNotFound, InvalidArguments, Rowlock, RowlockError

from . import tables
from .uploads import Item, Upload, items, opened, put_aside

ENRICH, ENDED, REOPENED = "bookmarks.enrich", "bookmarks.import_ended", "bookmarks.import_reopened"
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
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    last_error: str | None  # of a link that is dead

    @property
    def over(self) -> bool:
        """Whether nothing of it is left to do."""
        return self.status in ("succeeded", "failed", "canceled")


async def import_file(app: Rowlock, user_id: str, upload: Upload) -> str:
    """Import a file, by its path or its bytes; answers the import's id when all its jobs are there. A file that cannot
    be imported is a `BadUpload`, and nothing is written."""
    if not isinstance(user_id, str) or not user_id.strip() or not _storable(user_id):
        raise InvalidArguments(f"user_id must be text that says whose bookmarks these are, not {user_id!r:.100}")
    with opened(upload) as file, SpooledTemporaryFile(MOST_IN_MEMORY) as lines:
        total = await asyncio.to_thread(put_aside, file, lines)
        async with app.batch(f"{SOURCE_TYPE} of {user_id}"[:200], owner=user_id, on_end=ENDED) as batch:
            async with app.transaction() as tx:
                made_at = (await batch.refresh()).created_at
                await tables.add_import(tx, batch.id, user_id, SOURCE_TYPE, total, made_at)
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
        await tables.count_without_job(tx, import_id, len(portion))  # first: see `wait_for_placing`
        await tables.add_links(tx, portion)
        await tables.add_placements(tx, import_id, user_id, portion)
        jobs = await enrich.enqueue_many([{"link_id": link.id, "host": link.host} for link in links.values()])
        await tables.count_without_job(tx, import_id, -sum(job.created for job in jobs))


async def fetch_for_others(app: Rowlock, import_id: str) -> None:
    """An import was cancelled: what others have left to it, and what is not fetched, gets a job without an import."""
    async with app.transaction() as tx:
        await tables.wait_for_placing(tx, import_id)
    links = await tables.left_to(app, import_id)
    enrich = app.get_task(ENRICH).using(key=_own_id, unique="forever")
    for n in range(0, len(links), PORTION):
        some = links[n : n + PORTION]
        await enrich.enqueue_many([{"link_id": str(link_id), "host": host} for link_id, host in some])


def _own_id(link_id: str) -> str:
    """One job for each link, for ever. If it ends dead or cancelled the link may be tried again."""
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
    error, started, finished = row["last_error"], row["started_at"], row["finished_at"]
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
        created_at=row["created_at"],
        started_at=started,
        finished_at=finished,
        last_error=error.partition("\n")[0] if error and failed else None,
    )


def _storable(text: str) -> bool:
    return not any(unicodedata.category(letter) in ("Cc", "Cs") for letter in text)


def valid(import_id: str) -> bool:
    """PostgreSQL has no answer to what is not an id."""
    try:
        uuid.UUID(import_id)
    except ValueError:
        return False
    return True
