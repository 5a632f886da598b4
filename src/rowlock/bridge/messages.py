"""The messages on the streams: builds requests, and parses progress and results. Without I/O.

Stream fields are flat text; `options` of a request is JSON text. The formats are fixed (the page is
docs/reference/worker-contract.md), so that workers can be written in any language.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from rowlock.bridge.replies import size_of
from rowlock.core.error_text import clean
from rowlock.core.job import Claimed
from rowlock.core.redis_request import OUTPUT, REPLAYS, Request, sources_of
from rowlock.store.engine.ids import valid_id

REQUESTS, PROGRESS, RESULTS = "job.requests", "job.progress", "job.results"
CANCELS, DEAD_LETTERS = "job.cancels", "job.deadletter"
MAX_BYTES = 64 * 1024  # of one message
LETTER_BYTES = 64 * 1024  # of one dead letter
LETTER_REST = 4 * 1024  # of its fields beside `message`
NAME_BYTES = 200  # of a field's name in a dead letter
TEXT_BYTES = 1024  # of `phase` and `message`, as they are stored
MAX_ATTEMPT = 2_000_000_000
CONTRACT = {b"jobId", b"attempt", b"progress", b"phase", b"message", b"status", b"resultUri", b"checksum", b"errorCode"}
STATUSES = ("SUCCEEDED", "FAILED", "CANCELLED")
CHECKSUM = re.compile(r"(?:sha256:)?([0-9a-f]{64})", re.IGNORECASE)

Fields = Mapping[bytes, bytes]


class BadMessage(Exception):
    """A message that breaks the contract. `reason` is a code such as BAD_FIELD; the text explains it."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Progress:
    """A worker reports that it has begun, or its progress."""

    job_id: str
    attempt: int | None
    progress: int
    phase: str | None
    message: str | None


@dataclass(frozen=True, slots=True)
class Result:
    """A worker reports that a job has ended."""

    job_id: str
    attempt: int | None
    status: Literal["SUCCEEDED", "FAILED", "CANCELLED"]
    uri: str | None
    checksum: str | None
    error_code: str | None
    error_message: str | None


Message = Progress | Result


# --- out


def request(job: Claimed, created_at: datetime, output_path: str | None, wanted: Request | None) -> dict[str, str]:
    """The fields of a job's request. `attempt` is sent from the second attempt on: the worker sends it back."""
    args: dict[str, Any] = json.loads(job.args)
    fields = {"jobId": job.id, "jobType": job.task}
    values: dict[str, Any] = {
        "job.owner": job.owner,
        "job.createdAt": created_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "job.attempt": job.attempt,
        "job.priority": job.priority,
    }

    def value(source: str) -> Any:
        if source.startswith("args."):
            return args.get(source.removeprefix("args."))
        return output_path if source.startswith(OUTPUT) else values[source]

    for name, source in (wanted or REPLAYS).items():
        if isinstance(source, Mapping):
            inner = {key: value(one) for key, one in source.items()}
            if wanted is None:
                named = {one.removeprefix("args.") for one in sources_of(REPLAYS)}
                inner |= {key: one for key, one in args.items() if key not in named}
            fields[name] = json.dumps(inner, ensure_ascii=False)
        else:
            fields[name] = _flat(value(source))
    if job.attempt > 1:
        fields["attempt"] = str(job.attempt)
    return fields


def _flat(value: Any) -> str:
    """A value as the text of a stream field."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# --- in


def progress(fields: Fields) -> Progress:
    """A message of job.progress."""
    text = _texts(fields)
    job_id, attempt = _about(text)
    given = text.get("progress", "")
    if not re.fullmatch(r"\d{1,3}", given, re.ASCII) or int(given) > 100:
        raise BadMessage("BAD_FIELD", f"progress must be a whole number from 0 to 100, not {given!r:.50}")
    return Progress(job_id, attempt, int(given), _short(text, "phase"), _short(text, "message"))


def result(fields: Fields) -> Result:
    """A message of job.results."""
    text = _texts(fields)
    job_id, attempt = _about(text)
    status = text.get("status", "")
    if status not in STATUSES:
        raise BadMessage("BAD_FIELD", f"status must be one of {', '.join(STATUSES)}, not {status!r:.50}")
    code = text.get("errorCode")
    return Result(
        job_id,
        attempt,
        status,  # type: ignore[arg-type]
        text.get("resultUri"),
        text.get("checksum"),
        clean(code, 100) if code else None,
        clean(text["errorMessage"]) if "errorMessage" in text else None,
    )


def checksum(text: str) -> str | None:
    """A SHA-256 in the form that is stored (`sha256:` and lower-case hex); None if the text is no SHA-256."""
    found = CHECKSUM.fullmatch(text.strip())
    return None if found is None else f"sha256:{found[1].lower()}"


def _texts(fields: Fields) -> dict[str, str]:
    """The fields that are not empty, as text."""
    size = message_size(fields)
    if size > MAX_BYTES:
        raise BadMessage("TOO_LARGE", f"the message has {size:,} bytes; the limit is {MAX_BYTES:,}")
    try:
        text = {name.decode(): value.decode() for name, value in fields.items()}
    except UnicodeDecodeError:
        raise BadMessage("NOT_TEXT", "the message is not UTF-8") from None
    # Redis has no null: clients send an empty field, or the word null.
    return {name: value for name, value in text.items() if value not in ("", "null")}


def _about(text: dict[str, str]) -> tuple[str, int | None]:
    given = text.get("jobId")
    job_id = valid_id(given) if given is not None else None
    if job_id is None:
        raise BadMessage(
            "BAD_JOB_ID", "the message has no jobId" if given is None else f"jobId is not a UUID: {given!r:.60}"
        )
    attempt = text.get("attempt")
    if attempt is None:
        return job_id, None
    if not re.fullmatch(r"[1-9]\d{0,9}", attempt, re.ASCII) or int(attempt) > MAX_ATTEMPT:
        raise BadMessage("BAD_FIELD", f"attempt must be a whole number from 1, not {attempt!r:.50}")
    return job_id, int(attempt)


def _short(text: dict[str, str], name: str) -> str | None:
    return clean(text[name], TEXT_BYTES) if name in text else None


# --- dead letters


def message_size(fields: Fields) -> int:
    """The bytes of a message: its fields with their names."""
    return sum(size_of(name) + size_of(value) for name, value in fields.items())


def letter_job(fields: Fields) -> str | None:
    """The job that a refused message names; None if it names none."""
    return valid_id(fields.get(b"jobId", b"")[:100].decode("utf-8", "replace"))


def dead_letter(
    stream: str, entry: str, fields: Fields, reason: str, text: str, task: str | None = None
) -> dict[str, str]:
    """The fields of an entry of job.deadletter: the stream, id, job, type of job and size of the refused message, why
    it was refused, and its fields, cut so that the letter has at most LETTER_BYTES."""
    job_id = letter_job(fields)
    letter = {"stream": stream, "entry": entry, "reason": reason, "text": clean(text, 1024)}
    letter |= {"jobId": job_id} if job_id else {}
    letter |= {"type": clean(task, NAME_BYTES)} if task else {}
    return letter | {"size": str(message_size(fields)), "message": _shown(fields, LETTER_BYTES - LETTER_REST)}


def without_copy(letter: Mapping[str, str]) -> dict[str, str]:
    """A dead letter without its message, where Redis has no memory for it."""
    said = f"{letter['text']} (Redis had no memory for a copy of the message)"
    return {name: value for name, value in letter.items() if name != "message"} | {"text": said}


def _shown(fields: Fields, room: int) -> str:
    """The fields as JSON text of at most `room` bytes. Short fields are kept whole; long ones are cut, and if there are
    too many fields, some are left out, but short ones of the contract only after all others."""
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
    """Bytes as text that takes at most `room` bytes as JSON."""
    text = data[:room].decode("utf-8", "backslashreplace")
    while (size := _json_bytes(text)) > room:
        text = text[: min(len(text) - 1, len(text) * room // size)]
    return text


def _json_bytes(text: str) -> int:
    return len(json.dumps(text, ensure_ascii=False).encode())
