"""Writer: makes the changes in the database that progress and results call for, each under the fence of its attempt."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import logging
import os
import random
from collections.abc import Callable, Mapping, Sequence, Set
from typing import NamedTuple

from rowlock.bridge import reports
from rowlock.bridge.messages import PROGRESS, RESULTS, BadMessage, Message, checksum, letter_job, progress, result
from rowlock.bridge.rules import ACCEPTED, LATE, STALE, Ended, Heard, Ignored, Refused, Unchecked, Verdict, verdict
from rowlock.bridge.streams import Entry
from rowlock.client.client import Client
from rowlock.client.results.folder import ResultFolder
from rowlock.client.results.results import INVALID_PATH, OutsideOfFolder
from rowlock.core.job import Claimed, Settlement
from rowlock.core.outcome import Failed
from rowlock.core.policy import decide
from rowlock.core.redis_request import REPLAYS, output_name
from rowlock.core.states import FINAL
from rowlock.store import batches
from rowlock.store.engine.store import Store

log = logging.getLogger("rowlock.bridge")

MISMATCH = "CHECKSUM_MISMATCH"
# Errors of the path or the file itself. All other errors are faults of a disk or network, which may be temporary.
OF_THE_FILE = {errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.EINVAL, errno.ENXIO, errno.EILSEQ}
CHECKS = 4  # result files that are checked at the same time
PARSERS: Mapping[str, Callable[..., Message]] = {PROGRESS: progress, RESULTS: result}
Told = Callable[[Sequence[Claimed], int], None]


class Judged(NamedTuple):
    """A stream entry and the verdict on it."""

    entry: Entry
    verdict: Verdict


class Writer:
    """Writes entries of the streams to the database. `told` gets the jobs that ended, and how many were heard of."""

    def __init__(self, app: Client, store: Store, told: Told) -> None:
        self._app, self._store, self._told = app, store, told
        self._lease = app.settings.redis.lease_seconds
        self._checks = asyncio.Semaphore(CHECKS)
        requests = {name: task.options.request or REPLAYS for name, task in app.registry.elsewhere().items()}
        self._writes_file = {name: output_name(wanted) is not None for name, wanted in requests.items()}

    async def write(self, entries: Sequence[Entry]) -> list[Judged]:
        """Make all changes of these entries in the database; returns the verdict on each entry."""
        judged = await self._judge(entries)
        judged = await self._write_progress(judged)
        return await self._write_ends(judged)

    async def _judge(self, entries: Sequence[Entry]) -> list[Judged]:
        parsed = [(entry, _parsed(entry)) for entry in entries]
        ids = {message.job_id for _, message in parsed if isinstance(message, Message)}
        known = await self._store.run(reports.known(sorted(ids))) if ids else reports.Known({}, {})
        parts = self._app.result_folder.parts
        return [
            Judged(entry, verdict(one, known, self._needs_file, parts) if isinstance(one, Message) else one)
            for entry, one in parsed
        ]

    def _needs_file(self, task: str) -> bool:
        """Whether jobs of this task write a file: its request has an outputPath."""
        return self._writes_file.get(task, True)

    async def _write_progress(self, judged: list[Judged]) -> list[Judged]:
        """Store progress. Of several messages about one job, the last is stored, with the largest percentage of all."""
        told: dict[str, tuple[str, str, int, str | None, str | None]] = {}
        for _, one in judged:
            if isinstance(one, Heard):
                most = max(one.message.progress, told[one.job.id][2] if one.job.id in told else 0)
                told[one.job.id] = (one.job.id, one.job.token, most, one.message.phase, one.message.message)
        if not told:
            return judged
        rows = [told[job_id] for job_id in sorted(told)]
        heard = await self._store.run(reports.hear(rows, self._lease))
        self._told((), len(heard))
        return [
            Judged(entry, Ignored(ACCEPTED if one.job.id in heard else STALE) if isinstance(one, Heard) else one)
            for entry, one in judged
        ]

    async def _write_ends(self, judged: list[Judged]) -> list[Judged]:
        """Settle the jobs that ended. Of several results for one job, the first counts. A bad file turns a success into
        a failure; a file that cannot be read now leaves its own result for later and no other."""
        first: dict[str, tuple[Entry, Ended]] = {}
        for entry, one in judged:
            if isinstance(one, Ended):
                first.setdefault(one.job.id, (entry, one))
        if not first:
            return judged
        named = [(one.job, one.file, one.checksum or "") for _, one in first.values() if one.file is not None]
        checks = await asyncio.gather(*[self._check(file, said) for _, file, said in named])
        found = {job.id: check for (job, _, _), check in zip(named, checks, strict=True)}
        settlements, files = list[Settlement](), list[reports.File]()
        for _, one in first.values():
            check = found.get(one.job.id)
            if isinstance(check, Unchecked):
                continue
            end = check if isinstance(check, Failed) else one.end
            settlements.append(Settlement(one.job, decide(one.job, end, random.random())))
            if one.file is not None and isinstance(check, str):
                files.append((one.job.id, one.job.token, one.file, check))
        answers = await reports.settle(self._store, settlements, files, self._app.keep)
        applied = [s for s in settlements if answers[s.job.id] == "applied"]
        self._told([job for job, _ in applied], len(applied))
        ended = {job.batch_id for job, t in applied if job.batch_id is not None and t.state in FINAL}
        await batches.end_after_commit(self._store, ended)
        for job, t in applied:
            if t.error_code is not None:
                log.info("Job %s ended behind Redis as %s: %s", job.id, t.state, t.error_code)

        def answered(entry: Entry, one: Ended) -> Verdict:
            if isinstance(check := found.get(one.job.id), Unchecked):
                return check
            if first[one.job.id][0] is not entry:
                return Ignored(LATE)
            return Ignored(ACCEPTED if answers[one.job.id] == "applied" else STALE)

        return [Judged(entry, answered(entry, one) if isinstance(one, Ended) else one) for entry, one in judged]

    async def _check(self, file: str, said: str) -> str | Failed | Unchecked:
        async with self._checks:
            most = self._app.settings.results.file_bytes
            try:
                return await asyncio.to_thread(check_file, self._app.result_folder, file, said, most)
            except OSError as error:
                return Unchecked(f"{file}: {error.strerror or type(error).__name__}")

    async def tasks_of(self, ids: Set[str | None]) -> dict[str, str]:
        """The tasks of those of these jobs that exist."""
        known = await self._store.run(reports.known(sorted(job_id for job_id in ids if job_id is not None)))
        held = {job_id: job.task for job_id, job in known.held.items()}
        return held | {job_id: standing.task for job_id, standing in known.others.items()}

    async def poison(self, entry: Entry) -> Verdict:
        """The verdict on an entry that bridges die of: a dead letter, or late if its job has ended, as it then has
        nothing new to say. Of the message only the job's id is read."""
        job_id = letter_job(entry.fields)
        if job_id is not None:
            standing = (await self._store.run(reports.known([job_id]))).others.get(job_id)
            if standing is not None and standing.state in FINAL:
                return Ignored(LATE)
        return Refused("NEVER_DONE", "bridge after bridge died while it handled this message alone")


def _parsed(entry: Entry) -> Message | Refused | Ignored:
    if not entry.fields:
        return Ignored("trimmed")
    try:
        return PARSERS[entry.stream](entry.fields)
    except BadMessage as bad:
        return Refused(bad.reason, str(bad))


def check_file(folder: ResultFolder, uri: str, said: str, most_bytes: int) -> str | Failed:
    """The file's checksum if it equals the one that the worker reported, else the failure of the attempt. Blocks.
    Raises OSError if the file cannot be read now: the results folder is missing, or its disk has a fault."""
    wanted = checksum(said)
    if wanted is None:
        what = f"{said!r:.100} is not a SHA-256 checksum" if said else "the worker sent no checksum"
        return Failed(MISMATCH, f"{uri}: {what}", permanent=True)
    try:
        with folder.opened(uri) as opened:
            size = os.fstat(opened).st_size
            if size > most_bytes:
                too_large = f"{uri} has {size:,} bytes; results.file_bytes allows {most_bytes:,}"
                return Failed("RESULT_TOO_LARGE", too_large, permanent=True)
            with open(os.dup(opened), "rb") as file:
                found = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    except (OutsideOfFolder, OSError) as error:
        if isinstance(error, OSError) and (error.errno not in OF_THE_FILE or not folder.path.is_dir()):
            raise
        why = "no regular file, or behind a symbolic link" if isinstance(error, OutsideOfFolder) else error.strerror
        return Failed(INVALID_PATH, f"{uri} cannot be read: {why}", permanent=True)
    if found != wanted:
        return Failed(MISMATCH, f"{uri}: the file has {found}, but the worker reported {wanted}", permanent=True)
    return found
