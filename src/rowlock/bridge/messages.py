"""The messages on the streams: builds requests, and parses progress and results. Without I/O.

docs/reference/worker-contract.md defines the formats, so that workers can be written in any language.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple

from rowlock.bridge.replies import size_of
from rowlock.core.error_text import clean
from rowlock.core.job import Claimed
from rowlock.core.redis_request import OUTPUT, REPLAYS, Request, sources_of
from rowlock.store.engine.ids import valid_id

REQUESTS, PROGRESS, RESULTS = "job.requests", "job.progress", "job.results"
CANCELS, DEAD_LETTERS = "job.cancels", "job.deadletter"
MAX_BYTES = 64 * 1024  # of one message
TEXT_BYTES = 1024  # of `phase` and `message`, as they are stored
CODE_BYTES = 100  # of `errorCode`
MAX_ATTEMPT = 2_000_000_000
STATUSES = ("SUCCEEDED", "FAILED", "CANCELLED")
CHECKSUM = re.compile(r"(?:sha256:)?([0-9a-f]{64})", re.IGNORECASE)

Fields = Mapping[bytes, bytes]


class BadMessage(Exception):
    """A message breaks the contract. `reason` is a code such as BAD_FIELD; the text explains it."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class ProgressMessage(NamedTuple):
    """A worker's report that it has started, or of its progress."""

    job_id: str
    attempt: int | None
    progress: int
    phase: str | None
    message: str | None


class ResultMessage(NamedTuple):
    job_id: str
    attempt: int | None
    status: Literal["SUCCEEDED", "FAILED", "CANCELLED"]
    uri: str | None
    checksum: str | None
    error_code: str | None
    error_message: str | None


Message = ProgressMessage | ResultMessage


# --- out


def request(job: Claimed, created_at: datetime, output_path: str | None, wanted: Request | None) -> dict[str, str]:
    """The fields of a job's request. From the second attempt on they include `attempt`, which the worker returns."""
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
            sent = value(source)
            if sent is not None and not isinstance(sent, str):
                sent = json.dumps(sent, ensure_ascii=False)
            fields[name] = sent or ""
    if job.attempt > 1:
        fields["attempt"] = str(job.attempt)
    return fields


# --- in


def progress(fields: Fields) -> ProgressMessage:
    text = _texts(fields)
    job_id, attempt = _job_and_attempt(text)
    given = text.get("progress", "")
    if not re.fullmatch(r"\d{1,3}", given, re.ASCII) or int(given) > 100:
        raise BadMessage("BAD_FIELD", f"progress must be a whole number from 0 to 100, not {given!r:.50}")
    return ProgressMessage(job_id, attempt, int(given), _clean_field(text, "phase"), _clean_field(text, "message"))


def result(fields: Fields) -> ResultMessage:
    text = _texts(fields)
    job_id, attempt = _job_and_attempt(text)
    status = text.get("status", "")
    if status not in STATUSES:
        raise BadMessage("BAD_FIELD", f"status must be one of {', '.join(STATUSES)}, not {status!r:.50}")
    return ResultMessage(
        job_id,
        attempt,
        status,  # type: ignore[arg-type]
        text.get("resultUri"),
        text.get("checksum"),
        _clean_field(text, "errorCode", CODE_BYTES),
        clean(text["errorMessage"]) if "errorMessage" in text else None,
    )


def checksum(text: str) -> str | None:
    """A SHA-256 in stored form (`sha256:` and lower-case hex); None if the text isn't one."""
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
    # Redis has no null, so clients send an empty field or the word null.
    return {name: value for name, value in text.items() if value not in ("", "null")}


def _job_and_attempt(text: dict[str, str]) -> tuple[str, int | None]:
    given = text.get("jobId")
    if given is None:
        raise BadMessage("BAD_JOB_ID", "the message has no jobId")
    job_id = valid_id(given)
    if job_id is None:
        raise BadMessage("BAD_JOB_ID", f"jobId is not a UUID: {given!r:.60}")
    attempt = text.get("attempt")
    if attempt is None:
        return job_id, None
    if not re.fullmatch(r"[1-9]\d{0,9}", attempt, re.ASCII) or int(attempt) > MAX_ATTEMPT:
        raise BadMessage("BAD_FIELD", f"attempt must be a whole number from 1, not {attempt!r:.50}")
    return job_id, int(attempt)


def _clean_field(text: dict[str, str], name: str, most: int = TEXT_BYTES) -> str | None:
    return clean(text[name], most) if name in text else None


def message_size(fields: Fields) -> int:
    """The size of a message in bytes: its fields with their names."""
    return sum(size_of(name) + size_of(value) for name, value in fields.items())
