"""Listener: reads progress and results, writes them to the database under the fence, and then acknowledges them.

Nothing is acknowledged before it is committed. If a bridge dies in between, another bridge reads the entries again; the
fence makes the repeated writes harmless. While the database is unavailable, nothing is read, acknowledged or made a
dead letter.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from rowlock.bridge import result_check
from rowlock.bridge.messages import PROGRESS, RESULTS, BadMessage, Message, dead_letter, progress, result
from rowlock.bridge.streams import TROUBLE, Entry, Streams, Trouble, missing_group
from rowlock.bridge.verdicts import ACCEPTED, LATE, STALE, Ended, Heard, Ignored, Refused, Verdict, verdict
from rowlock.client.client import Client
from rowlock.core.job import Claimed, Settlement
from rowlock.core.outcome import AttemptEnd, Failed
from rowlock.core.policy import decide
from rowlock.core.remote import REPLAYS, output_name
from rowlock.core.states import FINAL
from rowlock.store import aside, batches, remote
from rowlock.store.engines.engine import Store

log = logging.getLogger("rowlock.bridge")

BATCH = 1000  # as the settler of a worker
CHECKS = 4  # result files that are checked at the same time
MOST_DELIVERIES = 5  # of an unacknowledged message: it may be what crashes the bridges that read it
PARSERS: Mapping[str, Callable[..., Message]] = {PROGRESS: progress, RESULTS: result}


class Judged(NamedTuple):
    """A stream entry and the verdict on it."""

    entry: Entry
    verdict: Verdict


class Listener:
    """Reads progress and results from the streams, and stores them."""

    def __init__(
        self,
        app: Client,
        store: Store,
        streams: Streams,
        trouble: Trouble,
        told: Callable[[Sequence[Claimed], int], None],
    ) -> None:
        self._app, self._store, self._streams, self._trouble, self._told = app, store, streams, trouble, told
        self._settings = app.settings.redis
        self._again = True  # first read entries that an error left unacknowledged
        self._ahead: asyncio.Task[list[Entry]] | None = None  # a read that was begun while a batch is written
        self._reads_ahead = True
        self._take_over_at = time.monotonic()
        self._checks = asyncio.Semaphore(CHECKS)
        requests = {name: task.options.request or REPLAYS for name, task in app.registry.elsewhere().items()}
        self._writes_file = {name: output_name(wanted) is not None for name, wanted in requests.items()}

    # --- one round

    async def round(self) -> float:
        """Read and write once. Returns the delay before the next round."""
        try:
            if entries := await self._read():
                await self._handle(entries)
            self._trouble.worked()
        except TROUBLE as error:
            await self._start_over()
            if missing_group(error):
                log.warning("the consumer group %s is gone from Redis and is made again", "rowlock")
                return await self._make_groups()
            return self._trouble.failed(error)
        except BaseException:
            await self._start_over()
            raise
        return 0.0

    async def finish(self) -> None:
        """Store what was read ahead, so that no other bridge has to take it over. No round may be under way."""
        self._reads_ahead = False
        if self._ahead is not None:
            await self.round()

    async def _start_over(self) -> None:
        """Read everything again that is not acknowledged, also what was read ahead: its order must be kept."""
        self._again = True
        if self._ahead is not None:
            ahead, self._ahead = self._ahead, None
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)

    async def _make_groups(self) -> float:
        try:
            await self._streams.make_groups()
        except TROUBLE as error:
            return self._trouble.failed(error)
        return random.uniform(0.1, 0.3)  # not at once: if Redis loses it again, this must not become a busy loop

    async def _read(self) -> list[Entry]:
        if self._ahead is not None:
            ahead, self._ahead = self._ahead, None
            return await ahead
        if self._again:
            entries = await self._streams.read(BATCH, again=True)
            self._again = bool(entries)
            if entries:
                return entries
        if time.monotonic() >= self._take_over_at:
            if entries := await self._take_over():
                return entries
            self._take_over_at = time.monotonic() + self._settings.takeover_seconds / 2 * random.uniform(0.8, 1.0)
        return await self._read_new()

    async def _read_new(self) -> list[Entry]:
        return await self._streams.read(BATCH, again=False)

    async def _take_over(self) -> list[Entry]:
        """Take over entries of bridges that died. An entry that was delivered too often becomes a dead letter."""
        taken: list[Entry] = []
        for name in (PROGRESS, RESULTS):
            found = await self._streams.take_over(name, self._settings.takeover_seconds, BATCH)
            if not found:
                continue
            often = await self._streams.deliveries(name, 10 * BATCH)
            poison = [entry for entry in found if often.get(entry.id, 0) > MOST_DELIVERIES]
            said = f"delivered more than {MOST_DELIVERIES} times and never acknowledged"
            await self._done([Judged(entry, Refused("NEVER_DONE", said)) for entry in poison])
            taken += [entry for entry in found if entry not in poison]
        return taken

    # --- what is read

    async def _handle(self, entries: Sequence[Entry]) -> None:
        """Store a batch and acknowledge it; while it is full, the next one is read meanwhile. If the database refuses
        it, store each entry alone to find the bad one."""
        take_over = time.monotonic() >= self._take_over_at
        if self._reads_ahead and len(entries) >= BATCH and not (self._again or take_over):
            # More entries wait. After a smaller batch nothing is read ahead: it would be a batch of a few entries.
            self._ahead = asyncio.get_running_loop().create_task(self._read_new())
        try:
            await self._done(await self._write(entries))
            return
        except (*aside.OUTAGE, *TROUBLE):
            raise
        except Exception as error:
            log.warning("%d messages could not be written together (%s); writing each alone", len(entries), error)
        for entry in entries:
            try:
                judged = await self._write([entry])
            except (*aside.OUTAGE, *TROUBLE):
                raise
            except Exception as error:
                judged = [Judged(entry, Refused("CANNOT_BE_STORED", f"{type(error).__name__}: {error}"))]
            await self._done(judged)

    async def _write(self, entries: Sequence[Entry]) -> list[Judged]:
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
        heard = await self._store.run(remote.hear(rows, self._settings.lease_seconds))
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

    # --- what is done

    async def _done(self, judged: Sequence[Judged]) -> None:
        """Acknowledge entries whose effect is committed, and write refused ones to the stream of dead letters."""
        if not judged:
            return
        counts: Counter[str] = Counter()
        letters = []
        for entry, one in judged:
            if isinstance(one, Refused):
                letters.append(dead_letter(entry.stream, entry.id, entry.fields, one.reason, one.text))
                log.warning("message %s of %s is a dead letter: %s", entry.id, entry.stream, one.reason)
                counts["dead_letters"] += 1
            elif isinstance(one, Ignored):
                counts[one.counter] += 1
        await self._streams.acknowledge([entry for entry, _ in judged], letters, counts)
