"""New events, read once for all clients of this server.

One reader queries the database, whatever the number of clients: NOTIFY wakes it on PostgreSQL, on SQLite it polls, and
it stops while no client watches. positions.py says how it misses no event.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from rowlock.api.access.own_jobs import EVERYONE, Owner
from rowlock.api.live import events
from rowlock.api.live.cursor import Position, Reader
from rowlock.api.live.events import Event
from rowlock.core.errors import StoreError, StoreUnavailable
from rowlock.store.engine.store import Store, Wakeups

log = logging.getLogger("rowlock.api")

PAGE = 1000
POLL_SECONDS = 0.05  # on SQLite
CHECK_SECONDS = 1.0  # on PostgreSQL, where a wake-up may be lost
LISTEN_SECONDS = 30.0
PENDING = 1000  # most events queued for a slow client; with more it must reload its jobs
WRITER_LOOKS, WRITER_SECONDS = 10, 0.02  # how long a reader that begins waits for transactions that write events
STALL_SECONDS = 1.0  # without progress of the mark, before it is asked which transactions write events
RETRY_SECONDS = 1.0  # between attempts to reach a database that is away


class Watcher:
    """A client that watches the jobs of an owner, or one job. Queued progress is replaced by newer progress of that
    job; every end of a job is kept."""

    def __init__(self, owner: Owner, job_id: str | None) -> None:
        self.owner, self.job_id = owner, job_id
        self.overrun = False  # too many events are queued: the client must reload its jobs
        self._pending: dict[tuple[str, int], tuple[Event, Position]] = {}
        self._news = asyncio.Event()

    def wants(self, event: Event) -> bool:
        """Whether this client may see the event, and asked for it."""
        return self.owner in (EVERYONE, event.owner) and self.job_id in (None, event.job_id)

    def put(self, event: Event, position: Position) -> None:
        """Queue an event for the client."""
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

    async def take(self, seconds: float) -> list[tuple[Event, Position]]:
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
        self._watchers: set[Watcher] = set()
        self._reader: Reader | None = None
        self._reading: asyncio.Task[None] | None = None  # None while no client watches
        self._tasks: set[asyncio.Task[None]] = set()  # including readers that are about to end
        self.ended = False  # the server is about to stop: no more events are sent
        self._ready = asyncio.Event()
        self._woken = asyncio.Event()
        self._mark, self._stalled_since = 0, 0.0  # the mark at the last look, and since when it does not move

    @contextlib.asynccontextmanager
    async def watching(self, owner: Owner, job_id: str | None = None) -> AsyncIterator[Watcher]:
        """A watcher while the block runs; it gets every event that is committed from now on."""
        watcher = Watcher(owner, job_id)
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

    def position(self) -> Position:
        """The position of a client that starts now."""
        mark = self._reader.mark if self._reader else 0
        return Position(mark, mark)

    async def missed(self, watcher: Watcher, position: str) -> list[tuple[Event, Position]] | None:
        """The events since the position that a client sent. None if it is not valid, if they are too many, or if some
        of them are already deleted: then the client must reload its jobs."""
        if (since := Position.read(position)) is None:
            return None
        store = await self._store()
        found: list[tuple[Event, Position]] = []
        # Before the pages: an event that the reader learns while they are read is queued for the client, but is not in
        # them, and their positions must not pass it.
        mark = max(since.mark, self._reader.mark if self._reader else 0)
        owner, at = None if watcher.owner is EVERYONE else str(watcher.owner), since.mark
        while page := await store.run(events.after(at, PAGE, owner)):
            at = page[-1].id
            found += [(e, Position(min(mark, e.id), e.id)) for e in page if e.id != since.last and watcher.wants(e)]
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
        """Stop reading."""
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
                if self._reader is None or not self._ready.is_set():
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

    async def _begin(self, store: Store) -> Reader:
        """A reader that starts after the newest event, and knows which smaller ids may still appear."""
        begun = await store.run(events.begin())
        newest, deleted, running_to = begun
        if not store.dialect.notifies:
            return Reader(newest, deleted=deleted)
        for _ in range(WRITER_LOOKS):
            if running_to is not None and await store.run(events.writers_from(running_to)) == running_to:
                return Reader(newest, deleted=deleted)
            await asyncio.sleep(WRITER_SECONDS)
        gaps = await store.run(events.gaps(newest, running_to))
        return Reader(newest, gaps, deleted)

    async def _read(self, store: Store, reader: Reader) -> None:
        while True:
            ended = await self._ended(store, reader)
            news = await store.run(events.news(reader.newest, reader.gaps, PAGE))
            news = news._replace(running_from=max(news.running_from, ended))
            for event in reader.learn(news, PAGE):
                # Not past this event: a client that disconnects after it must still get events that were read with it.
                position = Position(min(reader.mark, event.id), event.id)
                for watcher in list(self._watchers):
                    if watcher.wants(event):
                        watcher.put(event, position)
            if reader.lost:
                reader.lost = False
                for watcher in self._watchers:
                    watcher.give_up()
            if len(news.events) < PAGE:
                return

    async def _ended(self, store: Store, reader: Reader) -> int:
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
