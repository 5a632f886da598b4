"""Links of an import that another import's job is fetching already.

The import waits for such a link and counts how it ends. The transaction that ends the link writes that end: with the
page of a success, or in the follow-up of a dead job. `settle` finds the remaining cases: an operator has cancelled the
job, the other import was cancelled, or the link ended while the row was being written. The task of the import's end
runs it every half minute until no link is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from rowlock import JobHandle, JobNotFound, Rowlock, State

from .tables import Session, few, places

ENRICH = "bookmarks.enrich"


def now(app: Rowlock) -> datetime:
    """The present, by the clock of the app."""
    return app.clock.now() if app.clock else datetime.now(UTC)


def own_id(link_id: str) -> str:
    """The key of a link's job: one job for each link, for ever. If it ends dead or cancelled the link may be tried
    again."""
    return link_id


def fetched_elsewhere(job: JobHandle[Any], import_id: str) -> bool:
    """Whether an existing job will end a link of this import. False if this import created the job, or if the job has
    ended: an ended job that still holds its key has succeeded."""
    try:
        return not job.created and not job.record.final and job.record.batch_id != import_id
    except JobNotFound:  # pruned: it succeeded long ago
        return False


async def add(tx: Session, import_id: str, links: Sequence[tuple[str, str]]) -> int:
    """An import waits for these links (id of the link, id of its job); returns how many of them are new."""
    added = 0
    for some in few(links):
        rows = await tx.fetch(
            f"""
            INSERT INTO bookmarks_shared_links (import_id, link_id, job_id)
            VALUES {places(len(some), common=1, own=2)}
            ON CONFLICT (import_id, link_id) DO NOTHING
            RETURNING link_id
            """,
            import_id,
            *(value for link in some for value in link),
        )
        added += len(rows)
    return added


async def succeeded(tx: Session, link_id: str, now: datetime) -> None:
    """The page of a link is known: no import waits for it any longer."""
    await tx.execute(
        "UPDATE bookmarks_shared_links SET outcome = 'succeeded', ended_at = $2 WHERE link_id = $1 AND outcome IS NULL",
        link_id,
        now,
    )


async def died(tx: Session, link_id: str, job_id: str, error: str, now: datetime) -> None:
    """The job of a link is dead. Imports that wait for a newer job of this link go on waiting."""
    await _end(tx, link_id, job_id, State.DEAD, error, now)


async def reopen(tx: Session, link_id: str, job_id: str) -> list[str]:
    """An operator has retried a finished job; returns the imports that wait for it again."""
    which = "link_id = $1 AND job_id = $2 AND outcome IS NOT NULL"
    rows = await tx.fetch(f"SELECT import_id FROM bookmarks_shared_links WHERE {which}", link_id, job_id)
    if rows:
        await tx.execute(
            f"UPDATE bookmarks_shared_links SET outcome = NULL, last_error = NULL, ended_at = NULL WHERE {which}",
            link_id,
            job_id,
        )
    return [str(row[0]) for row in rows]


async def stop_waiting(tx: Session, import_id: str) -> None:
    """An import is cancelled: it waits for nothing."""
    await tx.execute("DELETE FROM bookmarks_shared_links WHERE import_id = $1 AND outcome IS NULL", import_id)


async def settle(app: Rowlock, import_id: str) -> None:
    """Write the end of links that this import waits for, and whose job is not live any more."""
    await _settle(app, "s.import_id = $1", import_id)


async def settle_for_others(app: Rowlock, import_id: str) -> None:
    """This import was cancelled: settle its links for the imports that wait for them."""
    await _settle(app, "s.link_id IN (SELECT p.link_id FROM bookmarks_placements p WHERE p.import_id = $1)", import_id)


async def _settle(app: Rowlock, which: str, import_id: str) -> None:
    stale = await app.fetch(
        f"""
        SELECT DISTINCT s.link_id, l.host, s.job_id
        FROM bookmarks_shared_links s
        JOIN bookmarks_links l ON l.id = s.link_id
        WHERE {which} AND s.outcome IS NULL
          AND NOT EXISTS (SELECT 1 FROM bookmarks_live_jobs live WHERE live.id = s.job_id)
        """,
        import_id,
    )
    for link_id, host, job_id in stale:
        await _settle_one(app, str(link_id), str(host), str(job_id))


async def _settle_one(app: Rowlock, link_id: str, host: str, job_id: str) -> None:
    try:
        job = (await app.job(job_id)).record
    except JobNotFound:  # pruned: it ended days ago
        job = None
    if job is not None and not job.final:  # retried since
        return
    async with app.transaction() as tx:
        if await tx.fetch("SELECT 1 FROM bookmarks_pages WHERE link_id = $1", link_id):
            await succeeded(tx, link_id, now(app))
        elif job is not None and job.state == "cancelled" and job.batch_id is not None:
            await _fetch_for_those_who_wait(app, tx, link_id, host, job_id)
        else:
            died = job is not None and job.state == "dead"
            error = f"{job.error_code}: {job.error_message}" if job and died else f"the job of {host} was cancelled"
            await _end(tx, link_id, job_id, State.DEAD if died else State.CANCELLED, error, now(app))


async def _fetch_for_those_who_wait(app: Rowlock, tx: Session, link_id: str, host: str, job_id: str) -> None:
    """The job of an import was cancelled, with the import or by an operator: the link gets a job that belongs to no
    import. If an operator cancels that one too, the link is not fetched."""
    again = await app.get_task(ENRICH).using(key=own_id, unique="forever").enqueue(link_id=link_id, host=host)
    await tx.execute(
        "UPDATE bookmarks_shared_links SET job_id = $3 WHERE link_id = $1 AND job_id = $2 AND outcome IS NULL",
        link_id,
        job_id,
        again.id,
    )


async def _end(tx: Session, link_id: str, job_id: str, outcome: State, error: str | None, now: datetime) -> None:
    await tx.execute(
        """
        UPDATE bookmarks_shared_links SET outcome = $3, last_error = $4, ended_at = $5
        WHERE link_id = $1 AND job_id = $2 AND outcome IS NULL
        """,
        link_id,
        job_id,
        str(outcome),
        error,
        now,
    )
