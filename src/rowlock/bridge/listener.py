"""The listener: reads progress and results from Redis, stores them, and then acknowledges them.

Nothing is acknowledged before it is committed. If a bridge dies in between, another bridge reads the entries again; the
fence makes the repeated writes harmless. While the database is unavailable, nothing is read, acknowledged or made a
dead letter.

A message that crashes a bridge must not crash one bridge after another. But bridges die of other causes as well, and
then everything that they had read is delivered again, so many deliveries only make a message suspect. A suspect is
handled alone, and Redis counts the bridges that die meanwhile. Only these deaths make it a dead letter.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress

from rowlock.bridge.dead_letters import dead_letter, letter_job
from rowlock.bridge.messages import PROGRESS, RESULTS
from rowlock.bridge.reports import Judged, ReportWriter, Stored, known_jobs
from rowlock.bridge.rules import LATE, Ignored, JobStatus, Refused, Unchecked, Verdict
from rowlock.bridge.streams import TROUBLE, StreamEntry, Streams, missing_group, redis_failed, redis_outage
from rowlock.client.client import Client
from rowlock.core.states import FINAL
from rowlock.store.engine.store import Store
from rowlock.store.upkeep import bad_rows

log = logging.getLogger("rowlock.bridge")

BATCH = 1000  # equal to that of a worker's settler
MOST_DELIVERIES = 5  # of an unacknowledged message, before it is handled alone
MOST_DEATHS = 3  # of bridges that handled a message alone
BEGINNING = {PROGRESS: "0", RESULTS: "0"}
LONGEST_SECONDS = 3600.0  # of one round: it may hang, so after that time other bridges may take over
NOT_THE_MESSAGE = (*bad_rows.OUTAGE, *TROUBLE)  # errors that aren't the fault of a message


class ReportListener:
    def __init__(self, app: Client, store: Store, streams: Streams, stored: Stored) -> None:
        self._store, self._streams, self._outage = store, streams, redis_outage(streams)
        self._writer = ReportWriter(app, store, stored)
        self._takeover_seconds = app.settings.redis.takeover_seconds
        # Entries that an error left unacknowledged are read first: the last id read, by stream; None once all are read.
        self._reread_after: Mapping[str, str] | None = BEGINNING
        self._ahead: asyncio.Task[list[StreamEntry]] | None = None  # the next read, started while a batch is written
        self._reads_ahead = True
        self._count = BATCH  # entries to ask for; fewer while messages are so large that a reply was cut
        self._take_over_at = self._began = time.monotonic()
        self._in_hand: Sequence[StreamEntry] = ()  # the entries of this round

    async def round(self) -> float:
        """Read and write once. Returns the delay before the next round."""
        self._began = time.monotonic()
        try:
            if entries := await self._read():
                self._in_hand = entries
                await self._handle(entries)
            self._outage.worked()
        except TROUBLE as error:
            await self._start_over()
            if not missing_group(error):
                return redis_failed(self._outage, "the listener", error)
            log.warning("the consumer group %s is missing from Redis; creating it again", "rowlock")
            with suppress(*TROUBLE):  # the next read fails and reports it
                await self._streams.make_groups()
            return random.uniform(0.1, 0.3)  # not 0: if Redis loses the group again, this must not become a busy loop
        except BaseException:
            await self._start_over()
            raise
        finally:
            self._in_hand = ()
        return 0.0

    async def finish(self) -> None:
        """Store the entries that were read ahead, so that no other bridge must take them over. Call between rounds."""
        self._reads_ahead = False
        if self._ahead is not None:
            await self.round()

    async def _start_over(self) -> None:
        """Read all unacknowledged entries again, including those that were read ahead, to keep their order."""
        self._reread_after = BEGINNING
        if self._ahead is not None:
            ahead, self._ahead = self._ahead, None
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)

    # --- read

    async def _read(self) -> list[StreamEntry]:
        entries = await self._next_entries()
        if self._streams.cut:
            self._streams.cut, self._reread_after = False, self._reread_after or BEGINNING
            self._count = max(1, len(entries) // 2)
        else:
            self._count = min(BATCH, 2 * self._count)
        return entries

    async def _next_entries(self) -> list[StreamEntry]:
        if self._ahead is not None:
            ahead, self._ahead = self._ahead, None
            return await ahead
        if self._reread_after is not None:
            if entries := await self._streams.read(self._count, self._reread_after):
                self._reread_after = {**self._reread_after, **{entry.stream: entry.id for entry in entries}}
                return entries
            self._reread_after = None
        if time.monotonic() >= self._take_over_at:
            if entries := await self._take_over():
                return entries
            self._take_over_at = time.monotonic() + self._takeover_seconds / 2 * random.uniform(0.8, 1.0)
        return await self._streams.read(self._count)

    async def _take_over(self) -> list[StreamEntry]:
        """Take over entries of bridges that died. Entries that were often delivered are handled here, each alone."""
        taken: list[StreamEntry] = []
        for name in (PROGRESS, RESULTS):
            found = await self._streams.take_over(name, self._takeover_seconds, self._count)
            if not found:
                continue
            self._in_hand = [*taken, *found]
            often = await self._streams.deliveries(name, found)
            for entry in found:
                if often.get(entry.id, 0) > MOST_DELIVERIES:
                    await self._handle_alone(entry)
                else:
                    taken.append(entry)
        return taken

    async def keep(self) -> float:
        """Tell Redis that this bridge is still working on the entries that it has read, or other bridges would take
        them over: checking a file may take long. Returns the delay before the next call.

        If the reply to a read was lost, Redis counts more entries as read by this bridge than it has. Those are not
        kept, so another bridge takes them over."""
        entries, ahead = [*self._in_hand], self._ahead
        if ahead is not None and ahead.done() and not ahead.cancelled() and ahead.exception() is None:
            entries += ahead.result()
        if time.monotonic() - self._began < LONGEST_SECONDS:
            with suppress(*TROUBLE):  # the listener's own round reports it
                await self._streams.keep(entries)
        return self._takeover_seconds / 4

    # --- store

    async def _handle(self, entries: Sequence[StreamEntry]) -> None:
        """Store a batch and acknowledge it; if the batch is full, read the next one meanwhile. If the database refuses
        the batch, store each entry alone to find the bad one."""
        take_over = time.monotonic() >= self._take_over_at
        if self._reads_ahead and len(entries) >= BATCH and not (self._reread_after is not None or take_over):
            # More entries are waiting. After a smaller batch, reading ahead would return only a few.
            self._ahead = asyncio.get_running_loop().create_task(self._streams.read(BATCH))
        try:
            await self._done(await self._writer.write(entries))
            return
        except NOT_THE_MESSAGE:
            raise
        except Exception as error:
            log.warning("%d messages could not be written together (%s); writing each alone", len(entries), error)
        for entry in entries:
            await self._done(await self._write_one(entry))

    async def _handle_alone(self, entry: StreamEntry) -> None:
        """Handle an entry that was often delivered, to find out whether it is the one that crashes bridges."""
        if await self._streams.begin_alone(entry) > MOST_DEATHS:
            await self._done([Judged(entry, await self._deadly(entry))])
            await self._streams.end_alone(entry)
            return
        try:
            judged = await self._write_one(entry)
        finally:
            await self._streams.end_alone(entry)  # this bridge lives; an outage or a stop isn't the entry's fault
        await self._done(judged)

    async def _deadly(self, entry: StreamEntry) -> Verdict:
        """The verdict on an entry that crashes bridges: a dead letter, or late if its job has ended, because then it
        has nothing new to report. Reads nothing of the message but the job's id."""
        if (job_id := letter_job(entry.fields)) is not None:
            job = (await self._store.run(known_jobs([job_id]))).get(job_id)
            if isinstance(job, JobStatus) and job.state in FINAL:
                return Ignored(LATE)
        return Refused("NEVER_DONE", f"{MOST_DEATHS} bridges died while handling only this message")

    async def _write_one(self, entry: StreamEntry) -> list[Judged]:
        """Store one entry; a dead letter if the database refuses it."""
        try:
            return await self._writer.write([entry])
        except NOT_THE_MESSAGE:
            raise
        except Exception as error:
            return [Judged(entry, Refused("CANNOT_BE_STORED", f"{type(error).__name__}: {error}"))]

    async def _done(self, judged: Sequence[Judged]) -> None:
        """Acknowledge entries whose effect is committed, and add refused ones to the stream of dead letters. Entries
        whose file could not be read stay unacknowledged, until this bridge or another takes them over."""
        if unchecked := [one for _, one in judged if isinstance(one, Unchecked)]:
            text = "%d results wait for files that cannot be read (%s); trying again after %g s"
            log.warning(text, len(unchecked), unchecked[0].error, self._takeover_seconds)
        judged = [each for each in judged if not isinstance(each.verdict, Unchecked)]
        if not judged:
            return
        refused = [(entry, one) for entry, one in judged if isinstance(one, Refused)]
        named = {job_id for entry, _ in refused if (job_id := letter_job(entry.fields))}
        jobs = await self._store.run(known_jobs(sorted(named))) if named else {}
        letters: dict[tuple[str, str], dict[str, str]] = {}  # by stream and id
        for (stream, entry_id, fields), one in refused:
            job = jobs.get(letter_job(fields) or "")
            task = None if job is None else job.task
            letters[stream, entry_id] = dead_letter(stream, entry_id, fields, one.reason, one.text, task)
            log.warning("message %s of %s is a dead letter: %s", entry_id, stream, one.reason)
        counts = Counter(one.counter for _, one in judged if isinstance(one, Ignored))
        counts += Counter(dead_letters=len(letters))
        unwritten = await self._streams.acknowledge([entry for entry, _ in judged], letters, counts)
        if unwritten.waiting:
            log.warning("Redis has no memory for %d dead letters; trying again later", len(unwritten.waiting))
        for letter in unwritten.lost:
            log.error("Redis has no memory for a dead letter; its message was deleted: %s", dict(letter))
