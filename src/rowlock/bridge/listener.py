"""Listener: reads progress and results, has them written to the database, and then acknowledges them.

Nothing is acknowledged before it is committed. If a bridge dies in between, another bridge reads the entries again; the
fence makes the repeated writes harmless. While the database is unavailable, nothing is read, acknowledged or made a
dead letter.

A message may be what bridges die of, and must not kill every bridge that reads it. But bridges die of other causes,
too, and then all that they had read is delivered again. So the number of deliveries only makes a message suspect. A
suspect is handled alone, and Redis counts how many bridges began that and died before its end. Only these deaths make
it a dead letter.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress

from rowlock.bridge.messages import PROGRESS, RESULTS, dead_letter, letter_job
from rowlock.bridge.rules import Ignored, Refused, Unchecked
from rowlock.bridge.streams import TROUBLE, Entry, Streams, missing_group, redis_failed
from rowlock.bridge.writer import Judged, Told, Writer
from rowlock.client.client import Client
from rowlock.store.engine.outage import Outage
from rowlock.store.engine.store import Store
from rowlock.store.upkeep import bad_rows

log = logging.getLogger("rowlock.bridge")

BATCH = 1000  # as the settler of a worker
MOST_DELIVERIES = 5  # of a message that was never acknowledged, before it is handled alone
MOST_DEATHS = 3  # of bridges that handled a message alone
BEGINNING = {PROGRESS: "0", RESULTS: "0"}
LONGEST_SECONDS = 3600.0  # of one round: after that others may take over, for this one may hang


class Listener:
    """Reads progress and results from the streams, and stores them."""

    def __init__(self, app: Client, store: Store, streams: Streams, outage: Outage, told: Told) -> None:
        self._streams, self._outage = streams, outage
        self._writer = Writer(app, store, told)
        self._takeover_seconds = app.settings.redis.takeover_seconds
        # First read entries that an error left unacknowledged: how far, by stream; None when all are read.
        self._again: Mapping[str, str] | None = BEGINNING
        self._ahead: asyncio.Task[list[Entry]] | None = None  # a read that was begun while a batch is written
        self._reads_ahead = True
        self._count = BATCH  # entries to ask for; fewer while messages are so large that a reply had to be cut
        self._take_over_at = self._began = time.monotonic()
        self._hand: Sequence[Entry] = ()  # what this round is about

    # --- one round

    async def round(self) -> float:
        """Read and write once. Returns the delay before the next round."""
        self._began = time.monotonic()
        try:
            if entries := await self._read():
                self._hand = entries
                await self._handle(entries)
            self._outage.worked()
        except TROUBLE as error:
            await self._start_over()
            if missing_group(error):
                log.warning("the consumer group %s is gone from Redis and is made again", "rowlock")
                return await self._make_groups()
            return redis_failed(self._outage, "the listener", error)
        except BaseException:
            await self._start_over()
            raise
        finally:
            self._hand = ()
        return 0.0

    async def finish(self) -> None:
        """Store what was read ahead, so that no other bridge has to take it over. No round may be under way."""
        self._reads_ahead = False
        if self._ahead is not None:
            await self.round()

    async def _start_over(self) -> None:
        """Read everything again that is not acknowledged, also what was read ahead: its order must be kept."""
        self._again = BEGINNING
        if self._ahead is not None:
            ahead, self._ahead = self._ahead, None
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)

    async def _make_groups(self) -> float:
        try:
            await self._streams.make_groups()
        except TROUBLE as error:
            return redis_failed(self._outage, "the listener", error)
        return random.uniform(0.1, 0.3)  # not at once: if Redis loses it again, this must not become a busy loop

    async def _read(self) -> list[Entry]:
        entries = await self._read_some()
        if self._streams.cut:
            self._streams.cut, self._again = False, self._again or BEGINNING
            self._count = max(1, len(entries) // 2)
        else:
            self._count = min(BATCH, 2 * self._count)
        return entries

    async def _read_some(self) -> list[Entry]:
        if self._ahead is not None:
            ahead, self._ahead = self._ahead, None
            return await ahead
        if self._again is not None:
            if entries := await self._streams.read(self._count, self._again):
                self._again = {**self._again, **{entry.stream: entry.id for entry in entries}}
                return entries
            self._again = None
        if time.monotonic() >= self._take_over_at:
            if entries := await self._take_over():
                return entries
            self._take_over_at = time.monotonic() + self._takeover_seconds / 2 * random.uniform(0.8, 1.0)
        return await self._streams.read(self._count)

    async def _take_over(self) -> list[Entry]:
        """Take over entries of bridges that died. Entries that were delivered often are handled here, each alone."""
        taken: list[Entry] = []
        for name in (PROGRESS, RESULTS):
            found = await self._streams.take_over(name, self._takeover_seconds, self._count)
            if not found:
                continue
            self._hand = [*taken, *found]
            often = await self._streams.deliveries(name, found)
            for entry in found:
                if often.get(entry.id, 0) > MOST_DELIVERIES:
                    await self._handle_alone(entry)
                else:
                    taken.append(entry)
        return taken

    async def keep(self) -> float:
        """Tell Redis that this bridge is still at work on what it has read: a file may take long to check, and other
        bridges take over what stays untouched. Returns the delay before the next time."""
        if time.monotonic() - self._began < LONGEST_SECONDS:
            with suppress(*TROUBLE):  # the listener's own round tells of it
                await self._streams.keep(self._at_hand())
        return self._takeover_seconds / 4

    def _at_hand(self) -> list[Entry]:
        """What this bridge has read and not acknowledged. Redis may believe that it has more: the answer to a read may
        have been lost. Another bridge will take such entries over."""
        ahead = self._ahead
        read = ahead.done() and not ahead.cancelled() and ahead.exception() is None if ahead is not None else False
        return [*self._hand, *(ahead.result() if ahead is not None and read else ())]

    # --- what is read

    async def _handle(self, entries: Sequence[Entry]) -> None:
        """Store a batch and acknowledge it; while it is full, the next one is read meanwhile. If the database refuses
        it, store each entry alone to find the bad one."""
        take_over = time.monotonic() >= self._take_over_at
        if self._reads_ahead and len(entries) >= BATCH and not (self._again is not None or take_over):
            # More entries wait. After a smaller batch nothing is read ahead: it would be a batch of a few entries.
            self._ahead = asyncio.get_running_loop().create_task(self._streams.read(BATCH))
        try:
            await self._done(await self._writer.write(entries))
            return
        except (*bad_rows.OUTAGE, *TROUBLE):
            raise
        except Exception as error:
            log.warning("%d messages could not be written together (%s); writing each alone", len(entries), error)
        for entry in entries:
            await self._done(await self._write_one(entry))

    async def _handle_alone(self, entry: Entry) -> None:
        """Handle an entry that was delivered often, so that it is known whether the bridge dies of this one."""
        if await self._streams.begin_alone(entry) > MOST_DEATHS:
            await self._done([Judged(entry, await self._writer.poison(entry))])
            await self._streams.end_alone(entry)
            return
        try:
            judged = await self._write_one(entry)
        finally:
            await self._streams.end_alone(entry)  # this bridge lives; an outage or a stop is no fault of the entry
        await self._done(judged)

    async def _write_one(self, entry: Entry) -> list[Judged]:
        """Store one entry; a dead letter if the database refuses it."""
        try:
            return await self._writer.write([entry])
        except (*bad_rows.OUTAGE, *TROUBLE):
            raise
        except Exception as error:
            return [Judged(entry, Refused("CANNOT_BE_STORED", f"{type(error).__name__}: {error}"))]

    # --- what is done

    async def _done(self, judged: Sequence[Judged]) -> None:
        """Acknowledge entries whose effect is committed, and write refused ones to the stream of dead letters. Entries
        whose file could not be read stay unacknowledged: this bridge or another takes them over after a while."""
        if unchecked := [one for _, one in judged if isinstance(one, Unchecked)]:
            again = f"trying again after {self._takeover_seconds:g} s"
            log.warning(
                "%d results wait for files that cannot be read (%s); %s", len(unchecked), unchecked[0].error, again
            )
        judged = [each for each in judged if not isinstance(each.verdict, Unchecked)]
        if not judged:
            return
        refused = [entry for entry, one in judged if isinstance(one, Refused)]
        tasks = await self._writer.tasks_of({letter_job(entry.fields) for entry in refused}) if refused else {}
        counts: Counter[str] = Counter()
        letters: dict[tuple[str, str], dict[str, str]] = {}  # by stream and id
        for entry, one in judged:
            if isinstance(one, Refused):
                task = tasks.get(letter_job(entry.fields) or "")
                letters[entry.stream, entry.id] = dead_letter(
                    entry.stream, entry.id, entry.fields, one.reason, one.text, task
                )
                log.warning("message %s of %s is a dead letter: %s", entry.id, entry.stream, one.reason)
                counts["dead_letters"] += 1
            elif isinstance(one, Ignored):
                counts[one.counter] += 1
        unwritten = await self._streams.acknowledge([entry for entry, _ in judged], letters, counts)
        if unwritten.waiting:
            log.warning("Redis has no memory for %d dead letters, which are tried again later", len(unwritten.waiting))
        for letter in unwritten.lost:
            log.error("Redis has no memory for a dead letter; its message was deleted: %s", dict(letter))
