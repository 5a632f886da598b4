"""Import a bookmarks file: store its bookmarks, and create one job for each link that has no page and no job yet.

What an import counts: `total_items` are the bookmarks of the file. A bookmark is processed as soon as it is read if
there is nothing to wait for: it is a duplicate, is never fetched (`javascript:` and the like), or its page is known.
All others are processed when the job of their link has ended, whether this import has made that job or shares it with
the import that came first (`shared.py`). `failed_items` are links that are dead. So an import is over when all of its
links are, and the jobs of all imports together are one for each link.
"""

from __future__ import annotations

import asyncio
import unicodedata
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from tempfile import SpooledTemporaryFile

from rowlock import InvalidArguments, NotAllowed, Rowlock, RowlockError

from . import shared, tables
from .shared import ENRICH
from .uploads import Item, Upload, items, opened, put_aside

ENDED, REOPENED = "bookmarks.import_ended", "bookmarks.import_reopened"
SOURCE_TYPE = "chrome_html"
MOST_IN_MEMORY = 8 << 20
OVER = ("succeeded", "failed", "canceled")
PORTION = 500  # bookmarks in one transaction: a larger number would block the event loop too long


class ImportNotFound(RowlockError, LookupError):
    """No import with that id."""


@dataclass(frozen=True, slots=True)
class Import:
    """The progress of an import."""

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
    encoding: str | None  # in which the file was read
    replaced_characters: int  # how many of its characters could not be decoded and were read as U+FFFD

    @property
    def warning(self) -> str | None:
        """A warning for the user if the file could not be decoded completely."""
        if not self.replaced_characters:
            return None
        return (
            f"characters of the file that are not {self.encoding}, and were replaced by U+FFFD: "
            f"{self.replaced_characters}; look through the titles, or export the bookmarks again"
        )

    @property
    def over(self) -> bool:
        return self.status in OVER


async def import_file(
    app: Rowlock, user_id: str, upload: Upload, *, begun: Callable[[str], None] = lambda import_id: None
) -> str:
    """Import a file, by its path or its bytes; returns the import's id when all its jobs are created. A file that
    cannot be imported raises `BadUpload`, and nothing is written. `begun` is called with the id before the first
    bookmark is read: a caller that is killed later can still look at the import or cancel it."""
    if not isinstance(user_id, str) or not user_id.strip() or not _storable(user_id):
        raise InvalidArguments(f"user_id must be text that says whose bookmarks these are, not {user_id!r:.100}")
    with opened(upload) as file, SpooledTemporaryFile(MOST_IN_MEMORY) as lines:
        found = await asyncio.to_thread(put_aside, file, lines)
        async with app.batch(f"{SOURCE_TYPE} of {user_id}"[:200], owner=user_id, on_end=ENDED) as batch:
            async with app.transaction() as tx:
                made_at = (await batch.refresh()).created_at
                await tables.add_import(tx, tables.NewImport(batch.id, user_id, SOURCE_TYPE, *found, made_at))
            begun(batch.id)
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
    enrich = app.get_task(ENRICH).using(batch=import_id, key=shared.own_id, unique="forever")
    async with app.transaction() as tx:
        await tables.add_links(tx, portion)
        await tables.add_placements(tx, import_id, user_id, portion)
        jobs = await enrich.enqueue_many([{"link_id": link.id, "host": link.host} for link in links.values()])
        elsewhere = [
            (link_id, job.id)
            for link_id, job in zip(links, jobs, strict=True)
            if shared.fetched_elsewhere(job, import_id)
        ]
        waiting = sum(job.created for job in jobs) + await shared.add(tx, import_id, elsewhere)
        await tables.count_without_job(tx, import_id, len(portion) - waiting)


async def read_import(app: Rowlock, user_id: str, import_id: str) -> Import:
    """The progress of an import of this user. An import of another user is reported as not found."""
    known = _known(import_id)
    row = await tables.find_import(app, known) if known else None
    if row is None or row["user_id"] != user_id:
        raise ImportNotFound(f"no import with id {import_id}")
    return Import(**row | {"id": str(row["id"])})


async def cancel_import(app: Rowlock, user_id: str, import_id: str) -> Import:
    """Cancel an import of this user. Links that other imports share are still fetched for those."""
    found = await read_import(app, user_id, import_id)
    if found.over:
        raise NotAllowed(f"import {import_id} is already {found.status}")
    try:
        await (await app.find_batch(found.id)).cancel()
    except NotAllowed:  # its own jobs have ended: it waits for jobs of other imports
        async with app.transaction() as tx:
            await tables.cancel_import(tx, found.id, shared.now(app))
    return await read_import(app, user_id, found.id)


def _storable(text: str) -> bool:
    return not any(unicodedata.category(letter) in ("Cc", "Cs") for letter in text)


def _known(import_id: str) -> str | None:
    """An id as the database stores it; None for an invalid one, with which PostgreSQL would raise an error."""
    try:
        return str(uuid.UUID(import_id))
    except ValueError:
        return None
