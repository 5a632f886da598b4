"""New events, read once for all clients of this server.

One reader queries the database, however many clients there are: NOTIFY wakes it on PostgreSQL, on SQLite it polls, and
it stops while no client watches.

On PostgreSQL a transaction may commit an event whose id is smaller than one that was already read. The reader therefore
remembers each gap, and gives it up only when every transaction that had begun when the gap was noticed, and may have
written events, has ended. The *mark* is the id up to which no more events can appear.

A client's position is the text `mark.id`. A client that reconnects with it gets every event after that mark again,
except the event `id`. It may get an event twice, but never misses one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import secrets
import time
from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from operator import attrgetter
from typing import NamedTuple

from rowlock.api.access.own_jobs import EVERYONE, Owner
from rowlock.api.live import events
from rowlock.api.live.events import Event, Gap, News
from rowlock.core.errors import StoreError, StoreUnavailable
from rowlock.store.engine.store import Store, Wakeups

POSITION = re.compile(r"([0-9]{1,18})\.([0-9]{1,18})")
MOST_GAPS = 10_000  # that a reader remembers; when all further ones have ended, clients get one `resync`
log = logging.getLogger("rowlock.api")
PAGE = 1000
POLL_SECONDS = 0.05  # on SQLite
CHECK_SECONDS = 1.0  # on PostgreSQL, where a wake-up may be lost
LISTEN_SECONDS = 30.0
PENDING = 1000  # most events queued for a slow client; with more it must reload its jobs
WRITER_LOOKS, WRITER_SECONDS = 10, 0.02  # how long a reader that begins waits for transactions that write events
STALL_SECONDS = 1.0  # without progress of the mark, before it is asked which transactions write events
RETRY_SECONDS = 1.0  # between attempts to reach a database that is away


class EventPosition(NamedTuple):
    """How far a client has read the events."""

    mark: int
    last: int

    def __str__(self) -> str:
        return f"{self.mark}.{self.last}"

    @classmethod
    def read(cls, text: str | None) -> EventPosition | None:
        """Parse the position that a client sends; None if it is not valid."""
        found = POSITION.fullmatch(text or "")
        return None if found is None else cls(int(found[1]), int(found[2]))


class EventReader:
    """Tracks which ids were read, which are missing, and the mark: up to it no more events can appear. Without I/O."""

    def __init__(self, newest: int, gaps: Sequence[Gap] = (), deleted: int = 0) -> None:
        self.newest, self.gaps = newest, list(gaps)  # the gaps are in the order of their ids
        self.deleted = deleted  # the largest id of a deleted event that this reader knows
        self.forgotten: Gap | None = None  # from the first to the last of the gaps that were too many to remember
        # Events may have come in forgotten gaps, and no more can; or they were deleted before they were read, because
        # the database was out of reach for long: all clients must reload.
        self.lost = False
        self._forget()

    @property
    def mark(self) -> int:
        first = self.forgotten or next(iter(self.gaps), None)  # the forgotten gaps are older than the others
        return self.newest if first is None else first.first - 1

    @property
    def until(self) -> int | None:
        """The largest number that a gap waits for; None if none waits for one."""
        gaps = self.gaps if self.forgotten is None else [*self.gaps, self.forgotten]
        return max((gap.until for gap in gaps if gap.until is not None), default=None)

    def learn(self, news: News, limit: int) -> list[Event]:
        """The events that were not known before, oldest first. `news` was read for all gaps, at most `limit` events:
        if it has that many, some gaps were not looked into, and none is given up."""
        late = sum(event.id <= self.newest for event in news.events)
        self.lost = self.lost or news.deleted > self.newest
        fresh = [event for event in news.events if self._is_new(event.id, news.running_to)]
        self.gaps = [_bounded(gap, news) for gap in self.gaps]
        if late < limit:
            ended = [gap for gap in self.gaps if _has_ended(gap, news)]
            self.lost = self.lost or any(self.deleted < gap.last and gap.first <= news.deleted for gap in ended)
            self.gaps, self.deleted = [gap for gap in self.gaps if not _has_ended(gap, news)], news.deleted
        if self.forgotten is not None:
            self.forgotten = _bounded(self.forgotten, news)
            if _has_ended(self.forgotten, news):
                self.forgotten, self.lost = None, True
        self._forget()
        return fresh

    def _is_new(self, event_id: int, running_to: int | None) -> bool:
        """Note that this event was read: the gap before it, or the gap that it was in."""
        if event_id > self.newest:
            if event_id > self.newest + 1:
                self.gaps.append(Gap(self.newest + 1, event_id - 1, running_to))
            self.newest = event_id
            return True
        at = bisect_right(self.gaps, event_id, key=attrgetter("first")) - 1
        if at < 0 or self.gaps[at].last < event_id:
            return False
        first, last, until = self.gaps[at]
        rest = [Gap(first, event_id - 1, until), Gap(event_id + 1, last, until)]
        self.gaps[at : at + 1] = [gap for gap in rest if gap.first <= gap.last]
        return True

    def _forget(self) -> None:
        """Keep the newest gaps. The mark stays below the others until no more events can appear in them."""
        if len(self.gaps) <= MOST_GAPS:
            return
        old = [] if self.forgotten is None else [self.forgotten]  # in the order of the ids, as the gaps are
        old, self.gaps = old + self.gaps[:-MOST_GAPS], self.gaps[-MOST_GAPS:]
        untils = [gap.until for gap in old if gap.until is not None]
        self.forgotten = Gap(old[0].first, old[-1].last, max(untils) if len(untils) == len(old) else None)


def _bounded(gap: Gap, news: News) -> Gap:
    """The gap, with a number of a transaction if it had none."""
    return gap._replace(until=news.running_to) if gap.until is None else gap


def _has_ended(gap: Gap, news: News) -> bool:
    """Whether every transaction that could bring an event of the gap has ended."""
    return gap.until is not None and gap.until <= news.running_from


class EventWatcher:
    """A client that watches the jobs of an owner, or one job. Queued progress is replaced by newer progress of that
    job; every end of a job is kept."""

    def __init__(self, owner: Owner, job_id: str | None) -> None:
        self.owner, self.job_id = owner, job_id
        self.overrun = False  # too many events are queued: the client must reload its jobs
        self.pages = set[str]()  # of the dashboard, which the client must read again
        self._pending: dict[tuple[str, int], tuple[Event, EventPosition]] = {}
        self._news = asyncio.Event()

    def wants(self, event: Event) -> bool:
        return self.owner in (EVERYONE, event.owner) and self.job_id in (None, event.job_id)

    def put(self, event: Event, position: EventPosition) -> None:
        key = (event.job_id, 0 if event.type == "job.progress" else event.id)
        self._pending.pop(key, None)
        if len(self._pending) >= PENDING:
            self.give_up()
        if not self.overrun:
            self._pending[key] = (event, position)
        self._news.set()

    def give_up(self) -> None:
        """Drop the queue: events would be missing, so the client must reload its jobs."""
        self.overrun = True
        self._pending.clear()
        self._news.set()

    async def take(self, seconds: float) -> list[tuple[Event, EventPosition]]:
        """The queued events; waits for them up to `seconds`, or until `wake`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()
        self._news.clear()
        taken, self._pending = list(self._pending.values()), {}
        return taken

    def wake(self) -> None:
        """Let `take` return, even without events, because there is something else to send to the client."""
        self._news.set()


class Feed:
    """Hands each new event to the clients that watch its job."""

    def __init__(self, store: Callable[[], Awaitable[Store]]) -> None:
        self._store = store
        self._watchers: set[EventWatcher] = set()
        self._reader = EventReader(0)
        self._reading: asyncio.Task[None] | None = None  # None while no client watches
        self._tasks: set[asyncio.Task[None]] = set()  # including readers that are about to end
        self.ended = False  # the server is about to stop: no more events are sent
        self._ready = asyncio.Event()
        self._woken = asyncio.Event()
        self._mark, self._stalled_since = 0, 0.0  # the mark at the last look, and since when it does not move

    @contextlib.asynccontextmanager
    async def watching(self, owner: Owner, job_id: str | None = None) -> AsyncIterator[EventWatcher]:
        """A watcher while the block runs; it gets every event that is committed from now on."""
        watcher = EventWatcher(owner, job_id)
        self._watchers.add(watcher)
        try:
            if self._reading is None or self._reading.done():
                self._ready.clear()
                self._reading = asyncio.get_running_loop().create_task(self._run())
                self._tasks.add(self._reading)
                self._reading.add_done_callback(self._tasks.discard)
            await self._ready.wait()
            yield watcher
        finally:
            self._watchers.discard(watcher)
            self._woken.set()

    def position(self) -> EventPosition:
        return EventPosition(self._reader.mark, self._reader.mark)

    async def missed(self, watcher: EventWatcher, position: str) -> list[tuple[Event, EventPosition]] | None:
        """The events since the position that a client sent. None if it is not valid, if they are too many, or if some
        of them are already deleted: then the client must reload its jobs."""
        if (since := EventPosition.read(position)) is None:
            return None
        store = await self._store()
        found: list[tuple[Event, EventPosition]] = []
        # Before the pages: an event that the reader learns while they are read is queued for the client, but is not in
        # them, and their positions must not pass it.
        mark = max(since.mark, self._reader.mark)
        owner, at = None if watcher.owner is EVERYONE else str(watcher.owner), since.mark
        while page := await store.run(events.after(at, PAGE, owner)):
            at = page[-1].id
            found += [
                (e, EventPosition(min(mark, e.id), e.id)) for e in page if e.id != since.last and watcher.wants(e)
            ]
            if len(found) > 10 * PENDING:
                return None
        # Checked afterwards, because retention may have deleted events while the pages were read.
        deleted, newest = await store.run(events.bounds())
        return found if deleted <= since.mark <= newest else None

    def end(self) -> None:
        """Disconnect all clients; they reconnect to another server, or to this one after its restart."""
        self.ended = True
        for watcher in self._watchers:
            watcher.wake()

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- the reader

    async def _run(self) -> None:
        store = await self._opened()
        listener = f"server-{secrets.token_hex(8)}"
        wakeups = await store.listen(self._on_wakeup) if store.dialect.notifies else None
        try:
            await self._follow(store, wakeups, listener)
            # Before the first await: a client that connects during this cleanup must start a new reader.
            self._reading = None
        finally:
            if wakeups is not None:
                await wakeups.close()
                with contextlib.suppress(StoreError):
                    await store.run(events.stop_listening(listener))

    async def _opened(self) -> Store:
        """The store; waits while the database is unavailable, because clients wait for this reader."""
        while True:
            try:
                return await self._store()
            except StoreUnavailable as error:
                log.warning("no events yet: %s", error)
                await asyncio.sleep(RETRY_SECONDS)

    async def _follow(self, store: Store, wakeups: Wakeups | None, listener: str) -> None:
        announced = 0.0
        while self._watchers:
            try:
                if wakeups is not None and time.monotonic() > announced:
                    await store.run(events.listen(listener, LISTEN_SECONDS))
                    announced = time.monotonic() + LISTEN_SECONDS / 3
                if not self._ready.is_set():
                    self._reader = await self._begin(store)
                    self._ready.set()
                await self._read(store, self._reader)
            except StoreError as error:
                store.outage.failed("events", error)
                await asyncio.sleep(RETRY_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CHECK_SECONDS if wakeups is not None else POLL_SECONDS):
                    await self._woken.wait()
            self._woken.clear()

    async def _begin(self, store: Store) -> EventReader:
        """A reader that starts after the newest event, and knows which smaller ids may still appear."""
        if not store.dialect.notifies:  # one transaction writes at a time: no smaller id can appear
            deleted, newest = await store.run(events.bounds())
            return EventReader(newest, deleted=deleted)
        deleted, newest, running_to = await store.run(events.begin())
        for _ in range(WRITER_LOOKS):
            if running_to is not None and await store.run(events.writers_from(running_to)) == running_to:
                return EventReader(newest, deleted=deleted)
            await asyncio.sleep(WRITER_SECONDS)
        gaps = await store.run(events.gaps(newest, running_to))
        return EventReader(newest, gaps, deleted)

    async def _read(self, store: Store, reader: EventReader) -> None:
        while True:
            ended = await self._ended(store, reader)
            news = await store.run(events.news(reader.newest, reader.gaps, PAGE))
            news = news._replace(running_from=max(news.running_from, ended))
            for event in reader.learn(news, PAGE):
                # Not past this event: a client that disconnects after it must still get events that were read with it.
                position = EventPosition(min(reader.mark, event.id), event.id)
                for watcher in list(self._watchers):
                    if watcher.wants(event):
                        watcher.put(event, position)
            if reader.lost:
                reader.lost = False
                for watcher in self._watchers:
                    watcher.give_up()
            if len(news.events) < PAGE:
                return

    async def _ended(self, store: Store, reader: EventReader) -> int:
        """A number: every transaction below it that took an id of a gap has ended. 0 while the mark moves. A
        transaction that writes no events may run for hours, also in another database, and must not hold the mark."""
        now, until = time.monotonic(), reader.until if store.dialect.notifies else None
        if until is None or reader.mark != self._mark:
            self._mark, self._stalled_since = reader.mark, now
        if until is None or now - self._stalled_since < STALL_SECONDS:
            return 0
        self._stalled_since = now
        return await store.run(events.writers_from(until))

    def _on_wakeup(self, what: str) -> None:
        if what == "events":
            self._woken.set()
