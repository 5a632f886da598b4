"""The publisher claims jobs that may start now, as a worker does, and appends a request for each of them to the Redis
stream `job.requests`.

One transaction claims the job and adds a row to the outbox. Then the publisher appends the request to the stream and
marks the row as sent, unless an answer has removed it by then. If the bridge dies in between, another one sends the
unmarked row: a request reaches the stream at least once. Requests that were sent but won't be answered are repeated.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from rowlock.bridge import outbox, reports
from rowlock.bridge.messages import CANCELS, REQUESTS, request
from rowlock.bridge.streams import TROUBLE, Streams, place_of, redis_failed, redis_outage
from rowlock.client.client import Client
from rowlock.core.claiming.actions import ClaimResult
from rowlock.core.claiming.ranges import Range, Sighting
from rowlock.core.error_text import clean
from rowlock.core.job import Claimed, Settlement
from rowlock.core.outcome import Failed
from rowlock.core.policy import decide
from rowlock.core.redis_request import OUTPUT_NAME, REPLAYS, folder_name, output_name
from rowlock.store import batches
from rowlock.store.engine.operation import Operation
from rowlock.store.engine.store import Store

log = logging.getLogger("rowlock.bridge")

BATCH = 1000
MARK_SECONDS = 1.0  # after a request was sent
FRESH_SECONDS = 1.0  # after a claim: older jobs are looked up before publishing, because they may be cancelled
IDLE_SECONDS = 1.0  # between looks for unsent rows of other bridges
COUNT_SECONDS = 0.2
QUIET_SECONDS = 2.0  # without an answer, before a sent request is looked up in the stream


class Publisher:
    """Publishes claimed jobs. The claimer takes it for a worker with as many slots as there may be unread requests."""

    def __init__(self, app: Client, store: Store, streams: Streams) -> None:
        self._app, self._store, self._streams, self.outage = app, store, streams, redis_outage(streams)
        self._settings = app.settings.redis
        self.unread = 0
        self.arrived = asyncio.Event()
        # Each task's request, and the name of its result file.
        requests = {name: task.options.request for name, task in app.registry.elsewhere().items()}
        self._wanted = {name: (wanted, output_name(wanted or REPLAYS)) for name, wanted in requests.items()}
        self._fresh: list[Claimed] = []  # claimed by this bridge, but not yet in the stream
        self._fresh_since = 0.0  # when the oldest of them was claimed
        self._created: dict[str, datetime] = {}  # creation times of fresh jobs, if the claim returned them
        self._sent: dict[str, tuple[str, str]] = {}  # in the stream, but not yet marked: job -> token and entry
        self._mark_at = 0.0
        self._look_at = 0.0
        self._quiet_after = 0  # the row after which the next look for unanswered requests starts

    # --- what the claimer uses

    def plain(self, token: str, ranges: Sequence[Range], n: int) -> Operation[list[Claimed]]:
        return outbox.publish(token, ranges, n, self._settings.takeover_seconds, self._created)

    def sourced(
        self, token: str, sightings: Sequence[Sighting], order: Sequence[str], plain: Sequence[Range], n: int
    ) -> Operation[ClaimResult]:
        return outbox.publish_sourced(token, sightings, order, plain, n, self._settings.takeover_seconds)

    @property
    def free(self) -> int:
        """How many more requests may be published before workers answer some."""
        return max(0, self._settings.unread - self.unread)

    def start(self, claimed: list[Claimed], sent: float) -> None:
        """Accept claimed jobs whose outbox rows are committed; `round` sends them."""
        self.unread += len(claimed)
        if not self._fresh:
            self._fresh_since = time.monotonic()
        self._fresh += claimed
        self.arrived.set()

    # --- sending

    async def round(self) -> float:
        """Send this bridge's jobs, then unsent rows of other bridges. Returns the delay before the next round."""
        try:
            while self._fresh:
                await self._send_fresh()
                await self._mark_in_time()
            await self._mark_in_time()
            if time.monotonic() >= self._look_at:
                more = await self._send_left()
                self.outage.worked()
                if more:
                    return 0.0
                self._look_at = time.monotonic() + IDLE_SECONDS * random.uniform(0.8, 1.0)
        except TROUBLE as error:
            return redis_failed(self.outage, "the publisher", error)
        next_at = min(self._look_at, self._mark_at) if self._sent else self._look_at
        return max(0.0, next_at - time.monotonic())

    async def finish(self) -> None:
        """Run a last round and mark everything, so that no other bridge repeats it. No round may be under way."""
        await self.round()
        await self._mark()

    async def _send_fresh(self) -> None:
        batch = self._fresh[:BATCH]
        if time.monotonic() - self._fresh_since > FRESH_SECONDS or any(job.id not in self._created for job in batch):
            outgoing = await self._store.run(outbox.still_wanted(batch))
        else:
            outgoing = [outbox.Outgoing(job, self._created[job.id]) for job in batch]
        await self._send(outgoing)
        del self._fresh[: len(batch)]
        for job in batch:
            self._created.pop(job.id, None)

    async def _send_left(self) -> bool:
        """Send rows that their bridges have not sent in time; returns whether there may be more."""
        left = await self._store.run(outbox.take(BATCH, self._settings.takeover_seconds))
        if not left:
            return False
        asked = {(row.job_id, row.token) for row in left if row.token is not None}
        outgoing = await self._store.run(outbox.read(asked)) if asked else []
        await self._send(outgoing)
        await self._streams.add_many(CANCELS, [{"jobId": row.job_id} for row in left if row.kind == "cancel"])
        await self._mark()
        wanted = {(out.job.id, out.job.token) for out in outgoing}
        if over := [row.id for row in left if row.kind == "cancel" or (row.job_id, row.token) not in wanted]:
            await self._store.run(outbox.remove(over))
        return len(left) == BATCH

    async def _send(self, outgoing: Sequence[outbox.Outgoing]) -> None:
        """Append requests to the stream. If one of them can't be built, send each alone and end the job of the bad one,
        so that it doesn't hold up the others."""
        if not outgoing:
            return
        try:
            entries = await self._streams.add_many(REQUESTS, list(self._requests(outgoing)))
        except TROUBLE:
            raise
        except Exception as error:
            if len(outgoing) == 1:
                await self._refuse(outgoing[0].job, error)
                return
            log.warning("%d requests could not be sent together (%s); sending each alone", len(outgoing), error)
            for out in outgoing:
                await self._send([out])
            return
        if not self._sent:
            self._mark_at = time.monotonic() + min(MARK_SECONDS, self._settings.takeover_seconds / 4)
        self._sent |= {out.job.id: (out.job.token, entry) for out, entry in zip(outgoing, entries, strict=True)}

    def _requests(self, outgoing: Sequence[outbox.Outgoing]) -> Iterator[dict[str, str]]:
        root = os.path.realpath(self._app.result_folder.path)
        for job, created_at in outgoing:
            wanted, name = self._wanted.get(job.task, (None, OUTPUT_NAME))
            path = None if name is None else os.path.join(root, job.id, folder_name(job.attempt, job.token), name)
            yield request(job, created_at, path, wanted)

    async def _refuse(self, job: Claimed, error: Exception) -> None:
        """End a job whose request cannot be built."""
        why = f"cannot build a request from these arguments: {type(error).__name__}: {error}"
        log.warning("Job %s is not published: %s", job.id, why)
        end = Failed("INVALID_ARGUMENTS", clean(why), permanent=True)
        await reports.settle(self._store, [Settlement(job, decide(job, end, 0.0))], [], self._app.keep)
        if job.batch_id is not None:
            await batches.end_after_commit(self._store, {job.batch_id})

    def answered(self, ended: Iterable[Claimed], number: int) -> None:
        """Note that `number` reports are stored. Jobs that ended have no outbox row any more, so they need no mark."""
        self.unread = max(0, self.unread - number)
        for job in ended:
            if (sent := self._sent.get(job.id)) is not None and sent[0] == job.token:
                del self._sent[job.id]

    async def _mark_in_time(self) -> None:
        """Mark requests as sent, but only after a second: requests that are answered by then don't need a mark. If this
        bridge dies before that, another one repeats them."""
        if self._sent and time.monotonic() >= self._mark_at:
            await self._mark()

    async def _mark(self) -> None:
        """Mark requests as sent. If that fails, they stay in `_sent` to be marked later, and are not sent again."""
        if not self._sent:
            return
        marks = sorted((job_id, token, entry) for job_id, (token, entry) in self._sent.items())
        await self._store.run(outbox.mark_sent(marks))
        for job_id, token, entry in marks:
            if self._sent.get(job_id) == (token, entry):
                del self._sent[job_id]
        self._mark_at = time.monotonic() + min(MARK_SECONDS, self._settings.takeover_seconds / 4)

    # --- requests without an answer

    async def count(self) -> float:
        """Count the unanswered requests in the database, because other bridges publish and listen as well."""
        self.unread = max(await self._store.run(outbox.unread()), len(self._fresh))
        return COUNT_SECONDS if self.unread else IDLE_SECONDS

    async def look_after(self) -> float:
        """Repeat requests that won't get an answer, because Redis lost them or a worker acknowledged them without a
        report. A request that still waits to be read is never repeated, however long it waits."""
        quiet = await self._store.run(outbox.quiet(self._quiet_after, BATCH, QUIET_SECONDS))
        self._quiet_after = quiet[-1].id if len(quiet) == BATCH else 0
        if over := [row.id for row in quiet if not row.waits]:
            await self._store.run(outbox.remove(over))
        waiting = [row for row in quiet if row.waits]
        try:
            again = await self._lost(waiting) if waiting else []
        except TROUBLE as error:
            return redis_failed(self.outage, "the publisher", error)
        if again:
            log.warning("sending %d requests again: Redis lost them, or workers did not answer them", len(again))
            await self._store.run(outbox.send_again(again))
            self._look_at = 0.0  # `round` sends them now
            self.arrived.set()
        return 0.0 if self._quiet_after else max(0.5, min(5.0, self._settings.takeover_seconds / 3))

    async def _lost(self, waiting: Sequence[outbox.Quiet]) -> list[int]:
        there = await self._streams.has_entries(REQUESTS, [row.entry for row in waiting])
        last = place_of(await self._streams.last_id(REQUESTS))
        groups = await self._streams.groups(REQUESTS)
        again = []
        for row, is_there in zip(waiting, there, strict=True):
            place, silent = place_of(row.entry), row.age > self._settings.lease_seconds
            if not is_there:  # Redis lost it in a restart, or it was trimmed or deleted
                lost = silent or place > last
            else:  # lost if it is silent, was read by a group and is pending in none: acknowledged without a report
                have_read = [group.name for group in groups if place_of(group.last_delivered) >= place]
                lost = silent and bool(have_read)
                lost = lost and not any([await self._streams.pending(REQUESTS, name, row.entry) for name in have_read])
            if lost:
                again.append(row.id)
        return again
