"""Dead letters: refused messages, which the bridge adds to job.deadletter, and what operators do with them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rowlock.bridge import outbox
from rowlock.bridge.messages import DEAD_LETTERS, TEXT_BYTES, Fields, message_size
from rowlock.bridge.streams import opened_streams
from rowlock.client.client import Client
from rowlock.core.error_text import clean
from rowlock.core.errors import NotAllowed
from rowlock.core.states import State
from rowlock.store import audit
from rowlock.store.audit import Actor
from rowlock.store.engine.ids import valid_id
from rowlock.store.engine.operation import Operation
from rowlock.store.read import job_rows

LETTER_BYTES = 64 * 1024  # of one letter
LETTER_REST = 4 * 1024  # of its fields other than `message`
NAME_BYTES = 200  # of a field's name
CONTRACT = {b"jobId", b"attempt", b"progress", b"phase", b"message", b"status", b"resultUri", b"checksum", b"errorCode"}
PAGE = 100  # letters in one reply, few enough for its limits (replies.py)


# --- written


def letter_job(fields: Fields) -> str | None:
    """The id of the job that a refused message names, if any."""
    return valid_id(fields.get(b"jobId", b"")[:100].decode("utf-8", "replace"))


def dead_letter(
    stream: str, entry: str, fields: Fields, reason: str, text: str, task: str | None = None
) -> dict[str, str]:
    """The fields of a letter about a refused message and its job, cut to at most LETTER_BYTES."""
    job_id = letter_job(fields)
    letter = {"stream": stream, "entry": entry, "reason": reason, "text": clean(text, 1024)}
    letter |= {"jobId": job_id} if job_id else {}
    letter |= {"type": clean(task, NAME_BYTES)} if task else {}
    return letter | {"size": str(message_size(fields)), "message": _message_text(fields, LETTER_BYTES - LETTER_REST)}


def _message_text(fields: Fields, room: int) -> str:
    """The fields as JSON text of at most `room` bytes. Short fields are kept whole and long ones are cut. If there are
    too many, some are left out, short fields of the contract last."""
    kept: dict[bytes, tuple[str, str]] = {}

    def order(field: tuple[bytes, bytes]) -> tuple[bool, bool, int]:
        length = len(field[0]) + len(field[1])
        return length > TEXT_BYTES, field[0] not in CONTRACT, length

    for name, value in sorted(fields.items(), key=order):
        shown = _readable(name, NAME_BYTES)
        left = room - _json_bytes(shown) - 8
        if left < 2:
            break
        kept[name] = (shown, _readable(value, left))
        room = left - _json_bytes(kept[name][1])
    return json.dumps(dict(kept[name] for name in fields if name in kept), ensure_ascii=False)


def _readable(data: bytes, room: int) -> str:
    """The bytes as text, cut to at most `room` bytes of JSON."""
    text = data[:room].decode("utf-8", "backslashreplace")
    while (size := _json_bytes(text)) > room:
        text = text[: min(len(text) - 1, len(text) * room // size)]
    return text


def _json_bytes(text: str) -> int:
    return len(json.dumps(text, ensure_ascii=False).encode())


# --- read by operators


@dataclass(frozen=True, slots=True)
class Letter:
    """A message from a worker that the bridge refused, and why."""

    id: str
    at: datetime
    reason: str
    text: str
    stream: str
    job_id: str | None
    type: str | None  # the task of the job, if that exists
    size: int | None  # bytes of the whole message, which `message` may show cut; None: not written by a bridge
    message: dict[str, Any]


async def letters(app: Client, n: int, newest: str = "+") -> list[Letter]:
    """Up to `n` dead letters, newest first, starting with the entry `newest`."""
    found: list[Letter] = []
    async with opened_streams(app.settings.redis) as streams:
        while len(found) < n:
            wanted = min(PAGE, n - len(found))
            rows = await streams.redis.xrevrange(streams.key(DEAD_LETTERS), max=newest, count=wanted)
            found += [_letter(entry.decode(), fields) for entry, fields in rows]
            if len(rows) < wanted:
                break
            newest = f"({found[-1].id}"
    return found


def _letter(entry: str, fields: dict[bytes, bytes]) -> Letter:
    text = {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, value in fields.items()}
    try:
        message = json.loads(text.get("message", "{}"))
    except ValueError:  # not written by a bridge
        message = {}
    return Letter(
        id=entry,
        at=datetime.fromtimestamp(int(entry.partition("-")[0]) / 1000, UTC),
        reason=text.get("reason", ""),
        text=text.get("text", ""),
        stream=text.get("stream", ""),
        job_id=text.get("jobId"),
        type=text.get("type"),
        size=int(text["size"]) if text.get("size", "").isdecimal() else None,
        message=message if isinstance(message, dict) else {"": message},
    )


async def drop(app: Client, found: Letter, actor: Actor) -> None:
    """Delete a dead letter. The letter is in Redis and the audit log in the database, so they can't share a
    transaction. The audit entry is committed first: after a failure in between, the letter can be dropped again."""
    await app.perform(_audited("drop", found, actor))
    await _delete(app, found)


async def republish(app: Client, found: Letter, actor: Actor) -> None:
    """Publish the job of a dead letter again, as a new attempt with the old jobId, and delete the letter. The job and
    the audit log change in one transaction, and the letter is deleted after it: a failure in between leaves a letter
    that can be republished or dropped again."""
    if found.job_id is None:
        raise NotAllowed(f"dead letter {found.id} names no job ({found.reason}), so there is nothing to publish again")
    job = await app.perform(job_rows.get(found.job_id))
    if job is None:
        raise NotAllowed(f"dead letter {found.id} names job {found.job_id}, but there is no such job")
    if job.task not in app.registry.elsewhere():
        raise NotAllowed(f"task {job.task!r} of job {job.id} does not have runs_on='redis' in this app")
    if job.state is State.SUCCEEDED:
        raise NotAllowed(f"job {job.id} has succeeded and is not run again")
    async with app.transaction() as transaction:
        if job.final:
            await app.retry(job.id)
        else:
            await transaction.run(outbox.give_up(job.id, app.keep))  # a queued job is published anyway
        await transaction.run(_audited("republish", found, actor))
    await _delete(app, found)


def _audited(action: str, found: Letter, actor: Actor) -> Operation[int]:
    details = {"job_id": found.job_id, "reason": found.reason}
    return audit.write_alone(actor, f"deadletters.{action}", found.id, details)


async def _delete(app: Client, found: Letter) -> None:
    async with opened_streams(app.settings.redis) as streams:
        await streams.redis.xdel(streams.key(DEAD_LETTERS), found.id)
