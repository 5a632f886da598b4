"""The SQL of this system, one text for both engines."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

from rowlock import Session

UNFINISHED = ("QUEUED", "RUNNING")


class Reads(Protocol):
    """An open transaction, or the app itself: on SQLite, the latter does not wait for writers."""

    async def fetch(self, sql: str, *args: Any) -> list[Any]: ...


class Match(NamedTuple):
    """A match of a user, and how many replays it has."""

    id: str
    title: str
    played_at: datetime | None
    created_at: datetime
    replays: int


class Head(NamedTuple):
    """A replay without its frames."""

    id: str
    title: str
    match_id: str | None
    duration_ms: int
    frame_count: int
    created_at: datetime


class Export(NamedTuple):
    """A job that exports a replay, in the document's words."""

    replay_id: str
    job_id: str
    job_type: str
    status: str
    progress: int


async def hold_user(tx: Session, owner: str) -> None:
    """Write down an owner when something of theirs is first stored, and lock them until the transaction ends: two
    requests at the same moment would both find room for one more."""
    await tx.execute(
        """
        INSERT INTO replays_users (id) VALUES ($1)
        ON CONFLICT (id) DO UPDATE SET created_at = replays_users.created_at
        """,
        owner,
    )


# --- matches

MATCH = """
    SELECT m.id, m.title, m.played_at, m.created_at,
           (SELECT count(*) FROM replays_replays r WHERE r.match_id = m.id)
    FROM replays_matches m
    WHERE m.owner_user_id = $1
"""


async def add_match(tx: Session, match_id: str, owner: str, title: str, played_at: datetime | None) -> None:
    await tx.execute(
        "INSERT INTO replays_matches (id, owner_user_id, title, played_at) VALUES ($1, $2, $3, $4)",
        match_id,
        owner,
        title,
        None if played_at is None else played_at.astimezone(UTC),
    )


async def number_of_matches(db: Reads, owner: str) -> int:
    return int((await db.fetch("SELECT count(*) FROM replays_matches WHERE owner_user_id = $1", owner))[0][0])


async def matches(db: Reads, owner: str, offset: int, limit: int) -> list[Match]:
    rows = await db.fetch(f"{MATCH} ORDER BY m.created_at DESC, m.id DESC LIMIT $3 OFFSET $2", owner, offset, limit)
    return [_match(row) for row in rows]


async def find_match(db: Reads, owner: str, match_id: str) -> Match | None:
    rows = await db.fetch(f"{MATCH} AND m.id = $2", owner, match_id)
    return _match(rows[0]) if rows else None


async def hold_match(tx: Session, owner: str, match_id: str) -> bool:
    """Lock a match until the transaction ends, so that it does not get a replay while it is deleted. By an UPDATE,
    because SQLite has no FOR UPDATE. False if this owner has no such match."""
    sql = "UPDATE replays_matches SET title = title WHERE owner_user_id = $1 AND id = $2 RETURNING id"
    return bool(await tx.fetch(sql, owner, match_id))


async def delete_match(tx: Session, match_id: str) -> None:
    """Delete a match, which must have no replays."""
    await tx.execute("DELETE FROM replays_matches WHERE id = $1", match_id)


# --- replays

HEAD = "SELECT id, title, match_id, duration_ms, frame_count, created_at FROM replays_replays WHERE owner_user_id = $1"


async def add_replay(
    tx: Session, owner: str, replay_id: str, head: tuple[str, str | None, int, int], data: str
) -> None:
    """A new replay. `head` is its title, match, duration and number of frames."""
    await tx.execute(
        """
        INSERT INTO replays_replays (id, owner_user_id, title, match_id, duration_ms, frame_count, data)
        VALUES ($1, $2, $3, $4, $5, $6, $7)
        """,
        replay_id,
        owner,
        *head,
        data,
    )


async def number_of_replays(db: Reads, owner: str) -> int:
    return int((await db.fetch("SELECT count(*) FROM replays_replays WHERE owner_user_id = $1", owner))[0][0])


async def replays(db: Reads, owner: str, match_id: str | None, offset: int, limit: int) -> list[Head]:
    """An owner's replays, newest first; of one match, if it is given."""
    rows = await db.fetch(
        f"""
        {HEAD} AND (CAST($2 AS text) IS NULL OR match_id = $2)
        ORDER BY created_at DESC, id DESC LIMIT $4 OFFSET $3
        """,
        *(owner, match_id, offset, limit),
    )
    return [_head(row) for row in rows]


async def find_replay(db: Reads, owner: str, replay_id: str) -> Head | None:
    rows = await db.fetch(f"{HEAD} AND id = $2", owner, replay_id)
    return _head(rows[0]) if rows else None


async def hold_replay(tx: Session, owner: str, replay_id: str) -> bool:
    """Lock a replay until the transaction ends: it does not get an export while it is deleted, nor the reverse. False
    if this owner has no such replay."""
    sql = "UPDATE replays_replays SET title = title WHERE owner_user_id = $1 AND id = $2 RETURNING id"
    return bool(await tx.fetch(sql, owner, replay_id))


async def data_of(db: Reads, owner: str, replay_id: str) -> str | None:
    """Players and frames of a replay of this owner, as JSON."""
    rows = await db.fetch("SELECT data FROM replays_replays WHERE owner_user_id = $1 AND id = $2", owner, replay_id)
    return str(rows[0][0]) if rows else None


async def delete_replay(tx: Session, replay_id: str) -> None:
    """Delete a replay. Its finished exports stay jobs of the job API, without a replay."""
    await tx.execute("DELETE FROM replays_exports WHERE replay_id = $1", replay_id)
    await tx.execute("DELETE FROM replays_replays WHERE id = $1", replay_id)


# --- exports


async def add_export(tx: Session, job_id: str, replay_id: str, owner: str, job_type: str) -> None:
    """Write down which replay a job exports, and forget jobs of this replay that retention has removed."""
    await tx.execute(
        """
        DELETE FROM replays_exports
        WHERE replay_id = $1 AND job_id NOT IN (SELECT job_id FROM replays_jobs WHERE target_replay_id = $1)
        """,
        replay_id,
    )
    await tx.execute(
        """
        INSERT INTO replays_exports (job_id, replay_id, owner_user_id, job_type) VALUES ($1, $2, $3, $4)
        ON CONFLICT (job_id) DO NOTHING
        """,
        *(job_id, replay_id, owner, job_type),
    )


async def newest_exports(db: Reads, replay_ids: Sequence[str]) -> list[Export]:
    """The newest export of each kind, of these replays. Ids of jobs grow with time."""
    if not replay_ids:
        return []
    places = ", ".join(f"${number}" for number in range(1, len(replay_ids) + 1))
    rows = await db.fetch(
        f"""
        SELECT target_replay_id, job_id, job_type, status, progress
        FROM replays_jobs
        WHERE target_replay_id IN ({places})
        ORDER BY job_id DESC
        """,
        *replay_ids,
    )
    newest: dict[tuple[str, str], Export] = {}
    for replay_id, job_id, job_type, status, progress in rows:
        newest.setdefault((replay_id, job_type), Export(replay_id, str(job_id), job_type, status, progress))
    return list(newest.values())


async def is_exported(tx: Session, replay_id: str) -> bool:
    """Whether an export of this replay is not finished."""
    sql = "SELECT 1 FROM replays_jobs WHERE target_replay_id = $1 AND status IN ($2, $3) LIMIT 1"
    return bool(await tx.fetch(sql, replay_id, *UNFINISHED))


# --- rows


def _match(row: Sequence[Any]) -> Match:
    match_id, title, played_at, created_at, replays = row
    return Match(match_id, title, None if played_at is None else _moment(played_at), _moment(created_at), replays)


def _head(row: Sequence[Any]) -> Head:
    replay_id, title, match_id, duration_ms, frame_count, created_at = row
    return Head(replay_id, title, match_id, duration_ms, frame_count, _moment(created_at))


def _moment(value: datetime | str) -> datetime:
    """A time as either engine gives it: SQLite has texts."""
    return datetime.fromisoformat(value) if isinstance(value, str) else value
