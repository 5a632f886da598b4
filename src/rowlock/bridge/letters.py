"""Dead letters (messages that the bridge refused), for operators: list them, republish their jobs, drop them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rowlock.bridge.messages import DEAD_LETTERS
from rowlock.bridge.streams import Streams, place_of
from rowlock.client.client import Client
from rowlock.core.errors import NotAllowed
from rowlock.core.states import State
from rowlock.store import outbox, reads


@dataclass(frozen=True, slots=True)
class Letter:
    """A message from a worker that the bridge refused, and why."""

    id: str
    at: datetime
    reason: str
    text: str
    stream: str
    job_id: str | None
    message: dict[str, Any]


async def letters(streams: Streams, n: int) -> list[Letter]:
    """The newest `n` dead letters, newest first."""
    rows = await streams.redis.xrevrange(streams.key(DEAD_LETTERS), count=n)
    return [_letter(entry.decode(), fields) for entry, fields in rows]


async def letter(streams: Streams, entry: str) -> Letter | None:
    """One dead letter; None if there is none with this id."""
    rows = await streams.redis.xrange(streams.key(DEAD_LETTERS), min=entry, max=entry, count=1)
    return _letter(rows[0][0].decode(), rows[0][1]) if rows else None


async def drop(streams: Streams, entry: str) -> bool:
    """Delete a dead letter; False if it does not exist."""
    return bool(await streams.redis.xdel(streams.key(DEAD_LETTERS), entry))


async def republish(app: Client, streams: Streams, found: Letter) -> None:
    """Publish the job of a dead letter again, as a new attempt with the old jobId, and delete the letter."""
    if found.job_id is None:
        raise NotAllowed(f"dead letter {found.id} names no job ({found.reason}), so no job can be published again")
    store = await app.store()
    job = await store.run(reads.get(found.job_id))
    if job is None:
        raise NotAllowed(f"dead letter {found.id} names job {found.job_id}, but there is no such job")
    task = app.registry.elsewhere().get(job.task)
    if task is None:
        raise NotAllowed(f"job {job.id} is of task {job.task!r}, which has no runs_on='redis' in this app")
    if job.state is State.SUCCEEDED:
        raise NotAllowed(f"job {job.id} has succeeded and is not run again")
    if job.final:
        await app.retry(job.id)
    else:
        await store.run(outbox.give_up(job.id, app.keep))  # a queued job is published in any case
    await drop(streams, found.id)


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
        message=message if isinstance(message, dict) else {"": message},
    )
