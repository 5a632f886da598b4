"""Dead letters, for an operator: look at them, publish their jobs again, or drop them."""

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
    """One message that could not be used."""

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
    """One dead letter."""
    rows = await streams.redis.xrange(streams.key(DEAD_LETTERS), min=entry, max=entry, count=1)
    return _letter(rows[0][0].decode(), rows[0][1]) if rows else None


async def drop(streams: Streams, entry: str) -> bool:
    """Remove a dead letter; False when it is gone already."""
    return bool(await streams.redis.xdel(streams.key(DEAD_LETTERS), entry))


async def republish(app: Client, streams: Streams, found: Letter) -> None:
    """Have the job of a letter published anew: a new attempt, under the same jobId. The letter is dropped."""
    if found.job_id is None:
        raise NotAllowed(f"letter {found.id} names no job ({found.reason}): there is nothing to publish again")
    store = await app.store()
    job = await store.run(reads.get(found.job_id))
    if job is None:
        raise NotAllowed(f"letter {found.id} is about {found.job_id}, and there is no such job")
    task = app.registry.elsewhere().get(job.task)
    if task is None:
        raise NotAllowed(f"job {job.id} is of task {job.task!r}, which has no runs_on='redis' in this app")
    if job.state is State.SUCCEEDED:
        raise NotAllowed(f"job {job.id} has succeeded: it is not run again")
    if job.final:
        await app.retry(job.id)
    else:
        await store.run(outbox.give_up(job.id, app.keep))  # one that waits is published anyway
    await drop(streams, found.id)


def _letter(entry: str, fields: dict[bytes, bytes]) -> Letter:
    text = {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, value in fields.items()}
    try:
        message = json.loads(text.get("message", "{}"))
    except ValueError:  # somebody else has written it
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
