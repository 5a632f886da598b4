"""Decides what to do with a worker's message, given what the database knows about its job. Without I/O.

A message counts only for its own attempt. A successful result proves its attempt by naming a file in that attempt's
folder, which acts as the fence. Other messages may carry `attempt`. Without it they count only while the first attempt
runs, because afterwards they might be late messages of an older attempt.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Set
from typing import NamedTuple

from rowlock.bridge.messages import Message, ProgressMessage, ResultMessage
from rowlock.client.results.results import INVALID_PATH, OutsideOfFolder
from rowlock.core.job import Claimed
from rowlock.core.outcome import AttemptEnd, Cancelled, Failed, Succeeded
from rowlock.core.redis_request import folder_name
from rowlock.core.states import FINAL, State

LATE = "late"  # the job has already finished
STALE = "stale"  # the message belongs to an attempt that is over
ACCEPTED = "accepted"
FOLDER = re.compile(r"\d+-[0-9a-f]{8}")


class JobStatus(NamedTuple):
    """A job whose lease neither the stream nor a worker behind Redis holds."""

    task: str
    state: State


class Progressed(NamedTuple):
    """Store the progress."""

    job: Claimed
    message: ProgressMessage


class Ended(NamedTuple):
    """Settle the attempt; as a success with a `file` only if the file exists and matches the checksum."""

    job: Claimed
    end: AttemptEnd
    file: str | None = None  # path relative to the results folder
    checksum: str = ""  # as the worker reported it


class Ignored(NamedTuple):
    """Only increase a counter."""

    counter: str


class Refused(NamedTuple):
    """Add the message to the stream of dead letters."""

    reason: str
    text: str


class Unchecked(NamedTuple):
    """Leave the message unacknowledged, because its file can't be read now. Redis delivers it again after a while."""

    error: str


Verdict = Progressed | Ended | Ignored | Refused | Unchecked
Jobs = Mapping[str, Claimed | JobStatus]  # by id; `Claimed` if the stream or a worker behind Redis holds the lease
Parts = Callable[[str], list[str]]  # ResultFolder.parts


def verdict(message: Message, jobs: Jobs, fileless: Set[str], parts: Parts) -> Verdict:
    """What to do with a message. `fileless` are the tasks whose jobs don't write a file."""
    job = jobs.get(message.job_id)
    if job is None:
        return Refused("UNKNOWN_JOB", f"there is no job {message.job_id}")
    if isinstance(job, JobStatus):
        if job.state in FINAL:
            return Ignored(LATE)
        if job.state is State.RUNNING:
            return Refused("NOT_REMOTE", f"job {message.job_id} ({job.task}) is run by a worker of this app")
        return Ignored(STALE)  # the attempt was lost, and the next one isn't published yet
    if message.attempt is not None and message.attempt != job.attempt:
        return Ignored(STALE)
    sure = message.attempt is not None or job.attempt == 1
    if isinstance(message, ProgressMessage):
        return Progressed(job, message) if sure else Ignored(STALE)
    if message.status == "SUCCEEDED" and job.task not in fileless:
        return _success_with_file(message, job, parts, sure)
    if not sure:
        return Refused("NO_ATTEMPT", f"attempt {job.attempt} is running, and the message has no field `attempt`")
    if message.status == "SUCCEEDED":
        return Ended(job, Succeeded())
    if message.status == "CANCELLED":
        return Ended(job, Cancelled())
    code, text = message.error_code or "FAILED", message.error_message or "the worker reported no message"
    return Ended(job, Failed(code, text))


def _success_with_file(message: ResultMessage, job: Claimed, parts: Parts, sure: bool) -> Verdict:
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
    named = "the message has no resultUri" if message.uri is None else f"resultUri is {message.uri!r:.200}"
    return Ended(job, Failed(INVALID_PATH, f"{named}; it must name a file below {inside}", permanent=True))
