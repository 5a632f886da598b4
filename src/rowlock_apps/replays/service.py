"""What users may do with their matches and replays. Each function is one transaction.

A match or replay of another user is answered like one that does not exist.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from rowlock import Rowlock, Session
from rowlock_apps.replays import records
from rowlock_apps.replays.export import FULL
from rowlock_apps.replays.records import Export, Head, Match
from rowlock_apps.replays.replay import ExportFailed, Replay, check

T = TypeVar("T")
MATCH, REPLAY = "MATCH", "REPLAY"
INPUTS = ".inputs"  # below the exports: replays as files, for workers, which read no database
MOST_REPLAYS = MOST_MATCHES = 1_000  # that one user may have


class Missing(Exception):
    """This owner has no such match or replay (`what`)."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


class InUse(Exception):
    """A match or replay (`what`) cannot be deleted now. The text explains why, and what to do."""

    def __init__(self, what: str, text: str) -> None:
        super().__init__(text)
        self.what = what


class TooMany(Exception):
    """This owner may have no more matches or replays (`what`)."""

    def __init__(self, what: str, most: int) -> None:
        super().__init__(f"a user may have {most:,}; delete one that is no longer needed")
        self.what = what


# --- matches


async def create_match(app: Rowlock, owner: str, title: str, played_at: datetime | None) -> Match:
    match_id = str(uuid.uuid4())  # no counter: strangers could guess the ids of others
    async with app.transaction() as tx:
        await records.hold_user(tx, owner)
        if await records.number_of_matches(tx, owner) >= MOST_MATCHES:
            raise TooMany(MATCH, MOST_MATCHES)
        await records.add_match(tx, match_id, owner, title, played_at)
        return _found(await records.find_match(tx, owner, match_id), MATCH)


async def matches(app: Rowlock, owner: str, page: int, size: int) -> list[Match]:
    """A page of an owner's matches, newest first, and one more if there is a next page."""
    return await records.matches(app, owner, page * size, size + 1)


async def match(app: Rowlock, owner: str, match_id: str) -> Match:
    return _found(await records.find_match(app, owner, _id(match_id, MATCH)), MATCH)


async def delete_match(app: Rowlock, owner: str, match_id: str) -> None:
    """Delete a match that has no replays."""
    async with app.transaction() as tx:
        match_id = await _hold_match(tx, owner, match_id)
        if _found(await records.find_match(tx, owner, match_id), MATCH).replays:
            raise InUse(MATCH, "the match has replays; delete these first")
        await records.delete_match(tx, match_id)


# --- replays


async def create_replay(app: Rowlock, owner: str, title: str, match_id: str | None, replay: Replay) -> Head:
    """A new replay, of a match or of none."""
    replay_id = str(uuid.uuid4())
    async with app.transaction() as tx:
        await records.hold_user(tx, owner)
        if await records.number_of_replays(tx, owner) >= MOST_REPLAYS:
            raise TooMany(REPLAY, MOST_REPLAYS)
        if match_id is not None:
            match_id = await _hold_match(tx, owner, match_id)
        head = (title, match_id, replay.duration_ms, len(replay.frames))
        await records.add_replay(tx, owner, replay_id, head, replay.model_dump_json(by_alias=True))
        return _found(await records.find_replay(tx, owner, replay_id), REPLAY)


async def replays(
    app: Rowlock, owner: str, match_id: str | None, page: int, size: int
) -> tuple[list[Head], list[Export]]:
    """A page of an owner's replays, newest first, one more if there is a next page, and their newest exports."""
    found = await records.replays(app, owner, match_id, page * size, size + 1)
    return found, await records.newest_exports(app, [head.id for head in found])


async def replay(app: Rowlock, owner: str, replay_id: str) -> tuple[Head, Replay, list[Export]]:
    """One replay with its frames."""
    head = _found(await records.find_replay(app, owner, _id(replay_id, REPLAY)), REPLAY)
    data = Replay.model_validate_json(_found(await records.data_of(app, owner, head.id), REPLAY))
    return head, data, await records.newest_exports(app, [head.id])


async def delete_replay(app: Rowlock, owner: str, replay_id: str) -> None:
    """Delete a replay that is not being exported. Its file goes before the commit: a process that dies in between
    leaves a replay without a file, which the next export writes again, and never a file without a replay."""
    async with app.transaction() as tx:
        replay_id = await _hold_replay(tx, owner, replay_id)
        if await records.is_exported(tx, replay_id):
            raise InUse(REPLAY, "an export of the replay is not finished; cancel it, or wait for its end")
        await records.delete_replay(tx, replay_id)
        await asyncio.to_thread(input_path(app, replay_id).unlink, missing_ok=True)


# --- exports


async def create_export(app: Rowlock, owner: str, replay_id: str, job_type: str) -> str:
    """Create a job that exports a replay, and answer its id; while such a job is unfinished, answer that one. The job
    and its link to the replay are written in one transaction. If the settings have a Redis, Rowlock's bridge works out
    the outputPath and publishes the request."""
    head = _found(await records.find_replay(app, owner, _id(replay_id, REPLAY)), REPLAY)
    check(head.frame_count, head.duration_ms)
    path = input_path(app, head.id)
    if not await asyncio.to_thread(path.exists):  # its content never changes
        data = _found(await records.data_of(app, owner, head.id), REPLAY)
        await asyncio.to_thread(write_input, path, data)
    try:
        return await _create_job(app, owner, head, path, job_type)
    except Missing:  # it was deleted meanwhile, before its file was written
        await asyncio.to_thread(path.unlink, missing_ok=True)
        raise


async def _create_job(app: Rowlock, owner: str, head: Head, path: Path, job_type: str) -> str:
    async with app.transaction() as tx:
        replay_id = await _hold_replay(tx, owner, head.id)
        arguments = {"replayId": replay_id, "inputPath": str(path), "durationMs": head.duration_ms}
        job = await app.get_task(job_type).using(owner=owner, key=replay_id, unique="until_done").enqueue(**arguments)
        await records.add_export(tx, job.id, replay_id, owner, job_type)
        return job.id


def input_path(app: Rowlock, replay_id: str) -> Path:
    """Where workers find a replay."""
    return app.results.path / INPUTS / f"{replay_id}.json"


def write_input(path: Path, text: str) -> None:
    """Write a replay's file: under another name first, so that no worker reads half of it. Raises ExportFailed."""
    partial = path.with_suffix(f".{uuid.uuid4().hex}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        if error.errno not in FULL:
            raise
        raise ExportFailed("EXPORTS_FULL", f"the replay cannot be written to the exports: {error.strerror}") from None


async def _hold_match(tx: Session, owner: str, given: str) -> str:
    """Lock a match; its id as it is stored."""
    match_id = _id(given, MATCH)
    if not await records.hold_match(tx, owner, match_id):
        raise Missing(MATCH)
    return match_id


async def _hold_replay(tx: Session, owner: str, given: str) -> str:
    """Lock a replay; its id as it is stored."""
    replay_id = _id(given, REPLAY)
    if not await records.hold_replay(tx, owner, replay_id):
        raise Missing(REPLAY)
    return replay_id


def _id(given: str, what: str) -> str:
    """An id as it is stored: a request may spell it in capitals or without hyphens. Other text names nothing; some of
    it PostgreSQL would refuse even to compare."""
    try:
        return str(uuid.UUID(given))
    except ValueError:
        raise Missing(what) from None


def _found(value: T | None, what: str) -> T:
    if value is None:
        raise Missing(what)
    return value
