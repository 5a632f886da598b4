"""Jobs that run behind Redis, in a worker of another program: who holds their lease, and what a request contains.

A published job is claimed like any other: it has a lease and counts towards the limits of its source. At first the
stream holds the lease (UNREAD), and the lease doesn't expire, because a request that waits in the stream doesn't mean
that a worker has died. The job's column `published` is 'unread', and the view `jobs` shows the job as queued. With the
first message from its worker, the column becomes 'read', and from then on the lease expires `redis.lease_seconds` after
the last message. Nothing can stop a worker behind Redis, so cancelling a published job is final at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rowlock.core.errors import InvalidArguments

UNREAD = "redis-unread"  # holder of a published job whose worker has sent no message yet
WHILE_UNREAD = 3_000_000_000.0  # seconds; the lease of an unread request

# Field -> where its value comes from (args.NAME, job.owner …), or field -> several of these, sent as a JSON object.
Request = Mapping[str, str | Mapping[str, str]]

# The request of the replay exports, which is the default for all tasks. Arguments that it does not name are sent in
# `options` under their own names.
REPLAYS: Request = {
    "replayId": "args.replayId",
    "options": {
        "inputPath": "args.inputPath",
        "outputPath": "job.outputPath",
        "durationMs": "args.durationMs",
        "ownerId": "job.owner",
        "createdAt": "job.createdAt",
    },
}
RESERVED = ("jobId", "jobType", "attempt")  # fields of every request, which a task cannot redefine
OF_JOB = ("job.owner", "job.createdAt", "job.attempt", "job.priority", "job.outputPath")
OUTPUT = "job.outputPath"
OUTPUT_NAME = "result"  # the file's name in outputPath, unless the request says job.outputPath/NAME


def checked_request(given: Any) -> Request:
    """The fields of a request, checked: each is a source, or an object of sources that is sent as JSON."""
    if not isinstance(given, Mapping) or not given:
        raise InvalidArguments(f"request must be a mapping of fields, not {given!r:.100}")
    for name, source in given.items():
        if not isinstance(name, str) or name in RESERVED:
            raise InvalidArguments(f"request: {name!r} can't be a field; {', '.join(RESERVED)} are always sent")
        for inner in source.values() if isinstance(source, Mapping) else [source]:
            _check_source(name, inner)
    return {name: dict(s) if isinstance(s, Mapping) else s for name, s in given.items()}


def _check_source(name: str, source: Any) -> None:
    known = isinstance(source, str) and (source.startswith("args.") or source in OF_JOB or _file_name(source))
    if not known:
        there_are = f"args.NAME, {', '.join(OF_JOB)}, {OUTPUT}/FILE"
        raise InvalidArguments(f"request: the field {name!r} must be one of {there_are}; not {source!r:.100}")


def _file_name(source: str) -> str | None:
    """The NAME of job.outputPath/NAME."""
    name = source.removeprefix(f"{OUTPUT}/")
    plain = name.isprintable() and not set(name) & set("/\\") and name not in ("", ".", "..") and len(name) <= 200
    return name if name != source and plain else None


def sources_of(request: Request) -> list[str]:
    """Every source that a request names."""
    found: list[str] = []
    for source in request.values():
        found += source.values() if isinstance(source, Mapping) else [source]
    return found


def output_name(request: Request) -> str | None:
    """The name of the file that the worker writes; None if the request has no outputPath."""
    for source in sources_of(request):
        if source == OUTPUT:
            return OUTPUT_NAME
        if (name := _file_name(source)) is not None:
            return name
    return None


def check_arguments(task: str, request: Request, names: tuple[str, ...]) -> None:
    """Refuse a request that leaves out an argument of the task, or names one that the task does not have."""
    sent = {source.removeprefix("args.") for source in sources_of(request) if source.startswith("args.")}
    if missing := sorted(set(names) - sent):
        raise InvalidArguments(f"task {task!r}: its request has no field for the argument {missing[0]!r}")
    if unknown := sorted(sent - set(names)):
        raise InvalidArguments(f"task {task!r}: its request names {unknown[0]!r}, but the task has no such argument")


def folder_name(attempt: int, token: str) -> str:
    """The folder of one attempt, below that of its job. It is the fence: a late worker of an older attempt, or one that
    guesses, names a different folder."""
    return f"{attempt}-{token[:8]}"
