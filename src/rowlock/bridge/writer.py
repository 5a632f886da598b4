"""Writer: makes the changes in the database that progress and results call for, each under the fence of its attempt."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from rowlock.bridge import result_check
from rowlock.bridge.messages import PROGRESS, RESULTS, BadMessage, Message, progress, result
from rowlock.bridge.streams import Entry
from rowlock.bridge.verdicts import ACCEPTED, LATE, STALE, Ended, Heard, Ignored, Refused, Verdict, verdict
from rowlock.client.client import Client
from rowlock.core.job import Claimed, Settlement
from rowlock.core.outcome import AttemptEnd, Failed
from rowlock.core.policy import decide
from rowlock.core.remote import REPLAYS, output_name
from rowlock.core.states import FINAL
from rowlock.store import batches, remote
from rowlock.store.engines.engine import Store
from rowlock.store.ids import valid_id

log = logging.getLogger("rowlock.bridge")

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
        parsed: list[tuple[Entry, Message | Refused | Ignored]] = []
        for entry in entries:
            try:
                if not entry.fields:
                    parsed.append((entry, Ignored("trimmed")))
                else:
                    parsed.append((entry, PARSERS[entry.stream](entry.fields)))
            except BadMessage as bad:
                parsed.append((entry, Refused(bad.reason, str(bad))))
        ids = {message.job_id for _, message in parsed if not isinstance(message, (Refused, Ignored))}
        known = await self._store.run(remote.known(sorted(ids))) if ids else remote.Known({}, {})
        parts = self._app.result_folder.parts
        return [
            Judged(
                entry,
                message
                if isinstance(message, (Refused, Ignored))
                else verdict(message, known, self._needs_file, parts),
            )
            for entry, message in parsed
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
        heard = await self._store.run(remote.hear(rows, self._lease))
        self._told((), len(heard))
        return [
            Judged(entry, Ignored(ACCEPTED if one.job.id in heard else STALE) if isinstance(one, Heard) else one)
            for entry, one in judged
        ]

    async def _write_ends(self, judged: list[Judged]) -> list[Judged]:
        """Settle the jobs that ended. Of several results for one job, the first counts."""
        first: dict[str, tuple[Entry, Ended]] = {}
        for entry, one in judged:
            if isinstance(one, Ended):
                first.setdefault(one.job.id, (entry, one))
        if not first:
            return judged
        settlements, files = await self._decided([one for _, one in first.values()])
        answers = await remote.settle(self._store, settlements, files, self._app.keep)
        applied = [s for s in settlements if answers[s.job.id] == "applied"]
        self._told([job for job, _ in applied], len(applied))
        ended = {job.batch_id for job, t in applied if job.batch_id is not None and t.state in FINAL}
        await batches.end_after_commit(self._store, ended)
        for job, t in applied:
            if t.error_code is not None:
                log.info("Job %s ended behind Redis as %s: %s", job.id, t.state, t.error_code)
        return [
            Judged(entry, self._answered(entry, one, first, answers) if isinstance(one, Ended) else one)
            for entry, one in judged
        ]

    @staticmethod
    def _answered(
        entry: Entry, one: Ended, first: Mapping[str, tuple[Entry, Ended]], answers: Mapping[str, str]
    ) -> Verdict:
        if first[one.job.id][0] is not entry:
            return Ignored(LATE)
        return Ignored(ACCEPTED if answers[one.job.id] == "applied" else STALE)

    async def _decided(self, ends: Sequence[Ended]) -> tuple[list[Settlement], list[remote.File]]:
        """What follows these ends, and the files of successes. A bad file turns a success into a failure."""
        named = [(one, one.file) for one in ends if one.file is not None]
        found = await asyncio.gather(*[self._checksum(file, one.checksum or "") for one, file in named])
        outcomes: list[tuple[Claimed, AttemptEnd]] = [(one.job, one.end) for one in ends if one.file is None]
        files: list[remote.File] = []
        for (one, file), answer in zip(named, found, strict=True):
            outcomes.append((one.job, answer if isinstance(answer, Failed) else one.end))
            if not isinstance(answer, Failed):
                files.append((one.job.id, one.job.token, file, answer))
        return [Settlement(job, decide(job, end, random.random())) for job, end in outcomes], files

    async def _checksum(self, file: str, said: str) -> str | Failed:
        async with self._checks:
            most = self._app.settings.results.file_bytes
            return await asyncio.to_thread(result_check.check, self._app.result_folder, file, said, most)

    async def poison(self, entry: Entry) -> Verdict:
        """The verdict on an entry that bridges die of: a dead letter, or late if its job has ended, as it then has
        nothing new to say. Of the message only the job's id is read."""
        job_id = valid_id(entry.fields.get(b"jobId", b"").decode("utf-8", "replace"))
        if job_id is not None:
            standing = (await self._store.run(remote.known([job_id]))).others.get(job_id)
            if standing is not None and standing.state in FINAL:
                return Ignored(LATE)
        return Refused("NEVER_DONE", "bridge after bridge died while it handled this message alone")
