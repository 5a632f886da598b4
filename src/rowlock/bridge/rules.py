"""Decides what to do with a message, given what the database knows about its job. Without I/O.

A message counts only for the attempt that it belongs to. A successful result proves its attempt by naming a file in
that attempt's folder, which acts as the fence. Other messages may carry `attempt`. Without it they count only while the
first attempt runs, because later they might be late messages of an older attempt.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from rowlock.bridge.messages import Message, Progress, Result
from rowlock.bridge.reports import Known
from rowlock.client.results.results import INVALID_PATH, OutsideOfFolder
from rowlock.core.job import Claimed
from rowlock.core.outcome import AttemptEnd, Cancelled, Failed, Succeeded
from rowlock.core.redis_request import folder_name
from rowlock.core.states import FINAL, State

LATE = "late"  # the job has already finished
STALE = "stale"  # the message belongs to an attempt that is over
ACCEPTED = "accepted"
FOLDER = re.compile(r"\d+-[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class Heard:
    """Store this progress."""

    job: Claimed
    message: Progress


@dataclass(frozen=True, slots=True)
class Ended:
    """Settle the attempt with this end; a success with a `file` only if the file exists and matches its checksum."""

    job: Claimed
    end: AttemptEnd
    file: str | None = None  # path relative to the results folder
    checksum: str | None = None  # as the worker reported it


@dataclass(frozen=True, slots=True)
class Ignored:
    """Increase a counter, and do nothing else."""

    counter: str


@dataclass(frozen=True, slots=True)
class Refused:
    """Add the message to the stream of dead letters."""

    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class Unchecked:
    """Leave the message unacknowledged: its file cannot be read now. Redis delivers it again after a while."""

    error: str


Verdict = Heard | Ended | Ignored | Refused | Unchecked
Parts = Callable[[str], list[str]]  # ResultFolder.parts


def verdict(message: Message, known: Known, needs_file: Callable[[str], bool], parts: Parts) -> Verdict:
    """What to do with a message. `needs_file` says whether the jobs of a task write a file."""
    job = known.held.get(message.job_id)
    if job is None:
        return _not_held(message, known)
    if message.attempt is not None and message.attempt != job.attempt:
        return Ignored(STALE)
    sure = message.attempt is not None or job.attempt == 1
    if isinstance(message, Progress):
        return Heard(job, message) if sure else Ignored(STALE)
    if message.status == "SUCCEEDED" and needs_file(job.task):
        return _with_file(message, job, parts, sure)
    if not sure:
        return Refused("NO_ATTEMPT", f"attempt {job.attempt} is running, and the message has no field `attempt`")
    return Ended(job, _end(message))


def _not_held(message: Message, known: Known) -> Verdict:
    standing = known.others.get(message.job_id)
    if standing is None:
        return Refused("UNKNOWN_JOB", f"there is no job {message.job_id}")
    if standing.state in FINAL:
        return Ignored(LATE)
    if standing.state is State.RUNNING:
        return Refused("NOT_REMOTE", f"job {message.job_id} ({standing.task}) is run by a worker of this app")
    return Ignored(STALE)  # the attempt was lost, and the next is not published yet


def _with_file(message: Result, job: Claimed, parts: Parts, sure: bool) -> Verdict:
    """The verdict on a success, whose file must be in the folder of the running attempt."""
    inside = f"{job.id}/{folder_name(job.attempt, job.token)}"
    try:
        found = parts(message.uri or "")
    except OutsideOfFolder:
        found = []
    if len(found) >= 3 and "/".join(found[:2]) == inside:
        return Ended(job, Succeeded(), "/".join(found), message.checksum or "")
    if len(found) >= 3 and found[0] == job.id and FOLDER.fullmatch(found[1]):
        return Ignored(STALE)  # the folder of another attempt
    if not sure:
        return Refused("NO_ATTEMPT", f"attempt {job.attempt} is running, and resultUri is not in its folder")
    said = "no resultUri" if message.uri is None else f"resultUri {message.uri!r:.200}"
    return Ended(job, Failed(INVALID_PATH, f"{said} is not a file below {inside}", permanent=True))


def _end(message: Result) -> AttemptEnd:
    if message.status == "SUCCEEDED":
        return Succeeded()
    if message.status == "CANCELLED":
        return Cancelled()
    return Failed(message.error_code or "FAILED", message.error_message or "the worker reported no message")
