"""Handles the reports of workers behind Redis: validates progress and results, checks result files, stores outcomes.

Each report is written under the lease of its attempt, so repeated and late reports change nothing.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import logging
import os
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from rowlock.bridge.messages import PROGRESS, BadMessage, Message, checksum, progress, result
from rowlock.bridge.rules import (
    ACCEPTED,
    LATE,
    STALE,
    Ended,
    Ignored,
    JobStatus,
    Progressed,
    Refused,
    Unchecked,
    Verdict,
    verdict,
)
from rowlock.bridge.streams import StreamEntry
from rowlock.client.client import Client
from rowlock.client.results.folder import ResultFolder
from rowlock.client.results.results import INVALID_PATH, OutsideOfFolder
from rowlock.core.errors import LeaseLost
from rowlock.core.job import Claimed, Settlement
from rowlock.core.outcome import Failed
from rowlock.core.policy import decide
from rowlock.core.redis_request import REPLAYS, output_name
from rowlock.core.states import FINAL, State
from rowlock.store import batches
from rowlock.store.engine.operation import Call, Steps, dialect, operation
from rowlock.store.engine.store import Store
from rowlock.store.jobs.settle import Answer, Keep, is_linked, settle_under_fence, succeed

log = logging.getLogger("rowlock.bridge")

MISMATCH = "CHECKSUM_MISMATCH"
# Errors of the path or the file. All others are faults of a disk or network, which may be temporary.
OF_THE_FILE = {errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.EINVAL, errno.ENXIO, errno.EILSEQ}
CHECKS = 4  # result files to check at the same time
Stored = Callable[[Sequence[Claimed], int], None]  # called with the jobs that ended and the number of stored reports
ResultFile = tuple[str, str, str, str]  # job id, token, uri, checksum


class Judged(NamedTuple):
    entry: StreamEntry
    verdict: Verdict


class ReportWriter:
    def __init__(self, app: Client, store: Store, stored: Stored) -> None:
        self._app, self._store, self._stored = app, store, stored
        self._checks = asyncio.Semaphore(CHECKS)
        requests = {name: task.options.request or REPLAYS for name, task in app.registry.elsewhere().items()}
        self._fileless = {name for name, request in requests.items() if output_name(request) is None}

    async def write(self, entries: Sequence[StreamEntry]) -> list[Judged]:
        """Make all changes in the database that follow from these entries. Of several results for one job, the first
        counts."""
        judged = await self._judge(entries)
        heard = await self._write_progress([one for _, one in judged if isinstance(one, Progressed)])
        ends: dict[str, Ended] = {}
        for _, one in judged:
            if isinstance(one, Ended):
                ends.setdefault(one.job.id, one)
        answers = await self._write_ends(ends) if ends else {}

        def final(one: Verdict) -> Verdict:
            if isinstance(one, Progressed):
                return Ignored(ACCEPTED if one.job.id in heard else STALE)
            if isinstance(one, Ended):
                answer = answers[one.job.id]
                return answer if one is ends[one.job.id] or isinstance(answer, Unchecked) else Ignored(LATE)
            return one

        return [Judged(entry, final(one)) for entry, one in judged]

    async def _judge(self, entries: Sequence[StreamEntry]) -> list[Judged]:
        parsed = [(entry, _parsed(entry)) for entry in entries]
        ids = {one.job_id for _, one in parsed if isinstance(one, Message)}
        jobs = await self._store.run(known_jobs(sorted(ids))) if ids else {}
        parts = self._app.result_folder.parts
        return [
            Judged(entry, one if isinstance(one, (Ignored, Refused)) else verdict(one, jobs, self._fileless, parts))
            for entry, one in parsed
        ]

    async def _write_progress(self, messages: Sequence[Progressed]) -> set[str]:
        """Store progress; returns the jobs that still have their lease. Of several messages about one job, the last is
        stored, with the largest percentage of them all."""
        latest: dict[str, tuple[str, str, int, str | None, str | None]] = {}
        for job, message in [(one.job, one.message) for one in messages]:
            most = max(message.progress, latest[job.id][2] if job.id in latest else 0)
            latest[job.id] = (job.id, job.token, most, message.phase, message.message)
        if not latest:
            return set()
        rows = [latest[job_id] for job_id in sorted(latest)]
        heard = await self._store.run(store_progress(rows, self._app.settings.redis.lease_seconds))
        self._stored((), len(heard))
        return heard

    async def _write_ends(self, ends: Mapping[str, Ended]) -> dict[str, Ignored | Unchecked]:
        """Settle the jobs that ended. An attempt whose result file is bad has failed. If a file can't be read right
        now, its result waits, and the others are stored."""
        named = [(one.job.id, one.file, one.checksum) for one in ends.values() if one.file is not None]
        checks = await asyncio.gather(*[self._check(file, reported) for _, file, reported in named])
        found = {job_id: check for (job_id, _, _), check in zip(named, checks, strict=True)}
        settlements, files = list[Settlement](), list[ResultFile]()
        for one in ends.values():
            check = found.get(one.job.id)
            if isinstance(check, Unchecked):
                continue
            end = check if isinstance(check, Failed) else one.end
            settlements.append(Settlement(one.job, decide(one.job, end, random.random())))
            if one.file is not None and isinstance(check, str):
                files.append((one.job.id, one.job.token, one.file, check))
        answers = await settle(self._store, settlements, files, self._app.keep)
        applied = [s for s in settlements if answers[s.job.id] == "applied"]
        self._stored([job for job, _ in applied], len(applied))
        ended = {job.batch_id for job, t in applied if job.batch_id is not None and t.state in FINAL}
        await batches.end_after_commit(self._store, ended)
        for job, t in applied:
            if t.error_code is not None:
                log.info("An attempt behind Redis has ended; job %s is now %s: %s", job.id, t.state, t.error_code)
        unchecked = {job_id: check for job_id, check in found.items() if isinstance(check, Unchecked)}
        return unchecked | {
            job_id: Ignored(ACCEPTED if answer == "applied" else STALE) for job_id, answer in answers.items()
        }

    async def _check(self, file: str, reported: str) -> str | Failed | Unchecked:
        async with self._checks:
            most = self._app.settings.results.file_bytes
            try:
                return await asyncio.to_thread(check_file, self._app.result_folder, file, reported, most)
            except OSError as error:
                return Unchecked(f"{file}: {error.strerror or type(error).__name__}")


def _parsed(entry: StreamEntry) -> Message | Refused | Ignored:
    if not entry.fields:
        return Ignored("trimmed")
    try:
        return (progress if entry.stream == PROGRESS else result)(entry.fields)
    except BadMessage as bad:
        return Refused(bad.reason, str(bad))


def check_file(folder: ResultFolder, uri: str, reported: str, most_bytes: int) -> str | Failed:
    """The file's checksum if it equals the reported one, else the failure of the attempt. Blocks. Raises OSError if the
    file can't be read now, because the results folder is missing or its disk has a fault."""
    wanted = checksum(reported)
    if wanted is None:
        wrong = f"{reported!r:.100} is not a SHA-256 checksum" if reported else "the worker sent no checksum"
        return Failed(MISMATCH, f"{uri}: {wrong}", permanent=True)
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
        odd = "it is not a regular file, or its path has a symbolic link"
        why = odd if isinstance(error, OutsideOfFolder) else error.strerror
        return Failed(INVALID_PATH, f"{uri} cannot be read: {why}", permanent=True)
    if found != wanted:
        return Failed(MISMATCH, f"{uri}: the file has {found}, but the worker reported {wanted}", permanent=True)
    return found


# --- operations


@operation(read=True)
def known_jobs(ids: Sequence[str]) -> Steps[dict[str, Claimed | JobStatus]]:
    """The jobs with these ids, without those that don't exist."""
    rows = yield Call("remote_jobs", asked=[(job_id,) for job_id in ids])
    found: dict[str, Claimed | JobStatus] = {row[0]: Claimed._make(row) for row in rows}
    if rest := [(job_id,) for job_id in ids if job_id not in found]:
        found |= {row.id: JobStatus(row.task, State(row.state)) for row in (yield Call("job_states", asked=rest))}
    return found


@operation(repeatable=True)
def store_progress(reported: Sequence[tuple[str, str, int, str | None, str | None]], lease: float) -> Steps[set[str]]:
    """Store progress (id, token, progress, phase, message); returns the jobs that still have their lease."""
    rows = yield Call("hear", reported=reported, lease=lease)
    heard = {row.id for row in rows}
    if heard:
        yield Call("outbox_heard", heard=[(job_id,) for job_id in sorted(heard)])
    return heard


async def settle(
    store: Store, settlements: Sequence[Settlement], files: Sequence[ResultFile], keep: Keep
) -> dict[str, Answer]:
    """Store results and their files where the attempt still holds the lease. Returns the answers that `settle` in
    store/jobs returns; the caller ends the batches."""
    done = [s for s in settlements if s.transition.state is State.SUCCEEDED and s.job.on_success is None]
    answers: dict[str, Answer] = {}
    if done:
        with suppress(LeaseLost):  # a lease was lost: nothing is written, and `_settle` finds out which
            await store.run(_succeed(done, files, keep))
            answers = dict.fromkeys([s.job.id for s in done], "applied")
    if rest := [s for s in settlements if s.job.id not in answers]:
        others = await store.run(_settle(rest, [file for file in files if file[0] not in answers], keep))
        answers |= others
    return answers


def _is_plain(done: Sequence[Settlement], files: Sequence[ResultFile], keep: Keep) -> bool:
    return not files and not any(is_linked(job) for job, _ in done)


@operation(single=_is_plain, repeatable=True, hot=True, size=lambda done, files, keep: len(done))
def _succeed(done: Sequence[Settlement], files: Sequence[ResultFile], keep: Keep) -> Steps[None]:
    """The fast path for successes without a follow-up: one statement if there are no files or linked jobs and the
    engine supports it. All or nothing: one lost lease raises LeaseLost."""
    rows = sorted((job.id, job.token, t.result) for job, t in done)
    if _is_plain(done, files, keep) and (yield from dialect()).moves_in_one_statement:
        (found,) = yield Call("succeed_remote", done=rows, keep=keep.succeeded, number=len(rows))
        applied = found.moved == len(rows)
    else:
        if files:
            yield Call("set_result_files", named=files)
        applied = yield from succeed(rows, keep, [job for job, _ in done if is_linked(job)]).start()
        yield Call("outbox_heard", heard=[row[:1] for row in rows])
    if not applied:
        raise LeaseLost("some of these attempts no longer hold their jobs")


@operation(repeatable=True)
def _settle(settlements: Sequence[Settlement], files: Sequence[ResultFile], keep: Keep) -> Steps[dict[str, Answer]]:
    if files:
        yield Call("set_result_files", named=files)
    answers = yield from settle_under_fence(settlements, keep)
    applied = sorted(job_id for job_id, answer in answers.items() if answer == "applied")
    if applied:
        yield Call("outbox_heard", heard=[(job_id,) for job_id in applied])
    return answers
