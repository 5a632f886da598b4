"""Dead letters (messages that the bridge refused), for operators: list them, republish their jobs, drop them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rowlock.bridge import outbox
from rowlock.bridge.messages import DEAD_LETTERS
from rowlock.bridge.streams import Streams, place_of
from rowlock.client.client import Client
from rowlock.core.errors import NotAllowed
from rowlock.core.states import State
from rowlock.store import audit
from rowlock.store.audit import Actor
from rowlock.store.read import job_rows

PAGE = 100  # letters of one reply: all of them together are kept (replies.py)


@dataclass(frozen=True, slots=True)
class Letter:
    """A message from a worker that the bridge refused, and why."""

    id: str
    at: datetime
    reason: str
    text: str
    stream: str
    job_id: str | None
    type: str | None  # the task of the job, if there is such a job
    size: int | None  # bytes of the message, of which `message` may be a part; None: by an older bridge
    message: dict[str, Any]


async def letters(streams: Streams, n: int) -> list[Letter]:
    """The newest `n` dead letters, newest first."""
    found: list[Letter] = []
    below = "+"
    while len(found) < n:
        wanted = min(PAGE, n - len(found))
        rows = await streams.redis.xrevrange(streams.key(DEAD_LETTERS), max=below, count=wanted)
        found += [_letter(entry.decode(), fields) for entry, fields in rows]
        if len(rows) < wanted:
            break
        below = f"({found[-1].id}"
    return found


async def letter(streams: Streams, entry: str) -> Letter | None:
    """One dead letter; None if there is none with this id."""
    rows = await streams.redis.xrange(streams.key(DEAD_LETTERS), min=entry, max=entry, count=1)
    return _letter(rows[0][0].decode(), rows[0][1]) if rows else None


async def drop(app: Client, streams: Streams, found: Letter, actor: Actor) -> None:
    """Delete a dead letter. The letter is in Redis and the audit in the database, so no transaction has both: the
    entry is committed first. A failure in between leaves an entry and a letter that is still listed and can be dropped
    again, and never a letter that is gone and nobody knows why."""
    await app.perform(audit.write_alone(actor, "deadletters.drop", found.id, _details(found)))
    await _delete(streams, found)


async def republish(app: Client, streams: Streams, found: Letter, actor: Actor) -> None:
    """Publish the job of a dead letter again, as a new attempt with the old jobId, and delete the letter. The job's
    change and its entry in the audit are one transaction, and the letter is deleted after it: a failure in between
    leaves a letter that can be republished or dropped again."""
    if found.job_id is None:
        raise NotAllowed(f"dead letter {found.id} names no job ({found.reason}), so no job can be published again")
    job = await app.perform(job_rows.get(found.job_id))
    if job is None:
        raise NotAllowed(f"dead letter {found.id} names job {found.job_id}, but there is no such job")
    task = app.registry.elsewhere().get(job.task)
    if task is None:
        raise NotAllowed(f"job {job.id} is of task {job.task!r}, which has no runs_on='redis' in this app")
    if job.state is State.SUCCEEDED:
        raise NotAllowed(f"job {job.id} has succeeded and is not run again")
    async with app.transaction() as transaction:
        if job.final:
            await app.retry(job.id)
        else:
            await transaction.run(outbox.give_up(job.id, app.keep))  # a queued job is published in any case
        await transaction.run(audit.write_alone(actor, "deadletters.republish", found.id, _details(found)))
    await _delete(streams, found)


async def _delete(streams: Streams, found: Letter) -> None:
    await streams.redis.xdel(streams.key(DEAD_LETTERS), found.id)


def _details(found: Letter) -> dict[str, str | None]:
    return {"job_id": found.job_id, "reason": found.reason}


def _letter(entry: str, fields: dict[bytes, bytes]) -> Letter:
    text = {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, value in fields.items()}
    try:
        message = json.loads(text.get("message", "{}"))
    except ValueError:  # not written by a bridge
        message = {}
    milliseconds, _ = place_of(entry)
    return Letter(
        id=entry,
        at=datetime.fromtimestamp(milliseconds / 1000, UTC),
        reason=text.get("reason", ""),
        text=text.get("text", ""),
        stream=text.get("stream", ""),
        job_id=text.get("jobId"),
        type=text.get("type"),
        size=int(text["size"]) if text.get("size", "").isdecimal() else None,
        message=message if isinstance(message, dict) else {"": message},
    )
