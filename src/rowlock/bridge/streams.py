"""The bridge's Redis commands: create the streams and consumer groups; read, add and trim entries.

Works with Redis and Valkey. Decides nothing about jobs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from rowlock.bridge.messages import DEAD_LETTERS, MAX_BYTES, PROGRESS, RESULTS, Fields, message_size
from rowlock.bridge.replies import UNREAD, BoundedParser
from rowlock.core.config import RedisSettings
from rowlock.core.error_text import scrub
from rowlock.core.errors import ConfigError
from rowlock.store.engine.outage import Outage
from rowlock.store.engine.store import redact

try:
    from redis import asyncio as client
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.exceptions import (
        AuthenticationError,
        NoPermissionError,
        OutOfMemoryError,
        ReadOnlyError,
        RedisError,
        ResponseError,
    )
except ImportError as error:
    raise ConfigError('the Redis bridge needs a package: pip install "rowlock[redis]"') from error

log = logging.getLogger("rowlock.bridge")

GROUP = "rowlock"
COUNTERS = "job.bridge"  # a hash: how many messages were accepted, ignored, …
ALONE = "job.alone"  # a hash: how many bridges began to handle a suspect message alone and died before the end
MOST_LETTERS = 10_000  # dead letters to keep, so that a worker that writes nonsense can't fill Redis
MOST_PENDING = 10_000  # more than a bridge reads before it acknowledges
BLOCK_MS = 250  # longest wait of a read for new entries, and so of a stopping bridge
TIMEOUT = 10.0
REPLY_SECONDS = 300.0  # for reading a whole reply; BoundedParser limits the wait for its next bytes
LOOKED_UP = 100  # requests to look up in one round trip: each comes with its arguments
TROUBLE = (RedisError, OSError)
REFUSED = (AuthenticationError, NoPermissionError)


class StreamEntry(NamedTuple):
    """One entry of a stream, without the prefix in the stream's name."""

    stream: str
    id: str
    fields: Fields


class Unwritten(NamedTuple):
    """The dead letters that Redis had no memory for."""

    waiting: Sequence[StreamEntry]  # refused messages that stay unacknowledged until Redis has memory for their letters
    lost: Sequence[Mapping[str, str]]  # letters of large messages, which were acknowledged and deleted to free memory


class Group(NamedTuple):
    name: str
    pending: int
    last_delivered: str
    lag: int | None  # None: Redis doesn't know it


class Streams:
    def __init__(self, settings: RedisSettings, consumer: str) -> None:
        if settings.url is None:
            raise ConfigError("no Redis is configured: set redis.url in the config file or ROWLOCK_REDIS__URL")
        self.place, self.consumer, self._prefix = redact(settings.url), consumer, settings.prefix
        self.cut = False  # a reply was too large: entries after the returned ones are pending, but unread
        try:
            # Any, because redis-py annotates its methods for the sync and the async client at once.
            self.redis: Any = client.Redis.from_url(
                settings.url,
                protocol=2,
                parser_class=BoundedParser,
                socket_timeout=REPLY_SECONDS,
                socket_connect_timeout=TIMEOUT,
                client_name="rowlock",
                # After a failover the old primary refuses writes. Close the connection, so that the next one goes to
                # the new primary, but don't repeat the command.
                retry=Retry(NoBackoff(), 0),
                retry_on_error=[ReadOnlyError],
            )
        except ValueError as error:
            raise ConfigError(f"redis.url = {self.place}: {scrub(str(error))}") from None

    def key(self, name: str) -> str:
        return self._prefix + name

    async def close(self) -> None:
        await self.redis.aclose()

    # --- in

    async def make_groups(self) -> None:
        """Create the bridges' consumer groups, and the streams if they don't exist. A group starts at the beginning of
        its stream, so that messages written before its creation are read; reading one twice does no harm."""
        for name in (PROGRESS, RESULTS):
            try:
                await self.redis.xgroup_create(self.key(name), GROUP, id="0", mkstream=True)
            except ResponseError as error:
                if not str(error).startswith("BUSYGROUP"):
                    raise

    async def read(self, count: int, again: Mapping[str, str] | None = None) -> list[StreamEntry]:
        """Up to `count` entries of each stream. New ones, waiting up to BLOCK_MS for them, or with `again` the ones
        after these ids that this consumer received and has not acknowledged."""
        streams = {self.key(name): again[name] if again is not None else ">" for name in (PROGRESS, RESULTS)}
        block = None if again is not None else BLOCK_MS
        answer = await self.redis.xreadgroup(GROUP, self.consumer, streams, count=count, block=block)
        return [entry for name, entries in answer or () for entry in self._entries(name, entries)]

    async def take_over(self, name: str, idle: float, count: int) -> list[StreamEntry]:
        """Take over entries that another consumer received and has neither acknowledged nor kept for `idle` seconds."""
        start: Any = "0-0"
        while True:
            # One call covers only a part of the pending entries, and those of live bridges may come before the rest.
            start, entries, *_ = await self.redis.xautoclaim(
                self.key(name), GROUP, self.consumer, min_idle_time=int(idle * 1000), start_id=start, count=count
            )
            if entries or start == b"0-0":
                return self._entries(self.key(name).encode(), entries)

    async def deliveries(self, name: str, entries: Sequence[StreamEntry]) -> dict[str, int]:
        """How often entries that are pending for this consumer, given in order, were delivered to any consumer."""
        rows = await self.redis.xpending_range(
            self.key(name),
            GROUP,
            min=entries[0].id,
            max=entries[-1].id,
            count=MOST_PENDING,
            consumername=self.consumer,
        )
        return {row["message_id"].decode(): int(row["times_delivered"]) for row in rows}

    async def keep(self, entries: Sequence[StreamEntry]) -> None:
        """Restart the time after which other consumers may take over these entries from this one."""
        for name, ids in _by_stream(entries).items():
            # With JUSTID this doesn't count as a delivery. Redis skips entries that were acknowledged meanwhile.
            await self.redis.xclaim(self.key(name), GROUP, self.consumer, 0, ids, justid=True)

    async def begin_alone(self, entry: StreamEntry) -> int:
        """Note that this bridge handles an entry alone. Returns how many bridges have begun this without an end,
        including this one."""
        return int(await self.redis.hincrby(self.key(ALONE), f"{entry.stream} {entry.id}", 1))

    async def end_alone(self, entry: StreamEntry) -> None:
        """Note that a bridge survived an entry that it handled alone."""
        await self.redis.hdel(self.key(ALONE), f"{entry.stream} {entry.id}")

    def _entries(self, key: bytes, entries: Sequence[Any]) -> list[StreamEntry]:
        """The entries of one stream, up to the first that wasn't read completely because the reply was too large."""
        if entries and _unread(*entries[-1]):  # once a reply is too large, the rest of it is unread
            self.cut = True
            entries = entries[: next(n for n, one in enumerate(entries) if _unread(*one))]
        # An entry that was trimmed while it was pending has no fields; Redis before 7 doesn't even send its id.
        name = key.decode().removeprefix(self._prefix)
        return [StreamEntry(name, one.decode(), fields or {}) for one, fields in entries if one is not None]

    async def acknowledge(
        self,
        entries: Sequence[StreamEntry],
        letters: Mapping[tuple[str, str], Mapping[str, str]],
        counts: Mapping[str, int],
    ) -> Unwritten:
        """In one Redis transaction, add the dead letters (by stream and id of their entries), increase the counters,
        and acknowledge the entries. If Redis lacks memory for copies of the messages, the letters go without. If it has
        no memory at all, entries without a letter are acknowledged and deleted, because nothing else would free memory,
        and so are messages that are larger than their letters. The other entries stay unacknowledged."""
        small = {place: _without_copy(letter) for place, letter in letters.items()}
        for tried in (letters, small) if letters else (letters,):
            try:
                await self._write(entries, tried.values(), counts)
                return Unwritten((), ())
            except OutOfMemoryError:
                continue
        refused = [entry for entry in entries if (entry.stream, entry.id) in letters]
        waiting = [entry for entry in refused if message_size(entry.fields) <= MAX_BYTES]
        await self._write([entry for entry in entries if entry not in waiting], (), {}, delete=True)
        lost = [small[entry.stream, entry.id] for entry in refused if entry not in waiting]
        try:
            await self._write((), lost, {})
        except OutOfMemoryError:
            return Unwritten(waiting, lost)
        return Unwritten(waiting, ())

    async def _write(
        self,
        entries: Sequence[StreamEntry],
        letters: Iterable[Mapping[str, str]],
        counts: Mapping[str, int],
        delete: bool = False,
    ) -> None:
        """One transaction. With `delete`, also delete the acknowledged entries, unless another group reads the
        stream."""
        pipe = self.redis.pipeline(transaction=True)
        for letter in letters:
            pipe.xadd(self.key(DEAD_LETTERS), letter, maxlen=MOST_LETTERS, approximate=True)
        for name, number in counts.items():
            pipe.hincrby(self.key(COUNTERS), name, number)
        for name, ids in _by_stream(entries).items():
            pipe.xack(self.key(name), GROUP, *ids)
            if delete and [group.name for group in await self.groups(name)] == [GROUP]:
                pipe.xdel(self.key(name), *ids)
        await pipe.execute()

    # --- out

    async def add_many(self, name: str, messages: Sequence[Mapping[str, str]]) -> list[str]:
        """Append messages to a stream; returns the ids of their entries."""
        pipe = self.redis.pipeline(transaction=False)
        for message in messages:
            pipe.xadd(self.key(name), message)
        return [entry.decode() for entry in await pipe.execute()]

    async def has_entries(self, name: str, ids: Sequence[str]) -> list[bool]:
        there: list[bool] = []
        for start in range(0, len(ids), LOOKED_UP):
            pipe = self.redis.pipeline(transaction=False)
            for entry in ids[start : start + LOOKED_UP]:
                pipe.xrange(self.key(name), min=entry, max=entry, count=1)
            there += [bool(found) for found in await pipe.execute()]
        return there

    async def last_id(self, name: str) -> str:
        """The last id that a stream has generated; "0-0" if the stream does not exist."""
        try:
            found = await self.redis.xinfo_stream(self.key(name))
        except ResponseError:
            return "0-0"
        return str(found["last-generated-id"].decode())

    async def groups(self, name: str) -> list[Group]:
        try:
            rows = await self.redis.xinfo_groups(self.key(name))
        except ResponseError:  # there is no such stream
            return []
        return [
            Group(row["name"].decode(), row["pending"], row["last-delivered-id"].decode(), row.get("lag"))
            for row in rows
        ]

    async def pending(self, name: str, group: str, entry: str) -> bool:
        """Whether a consumer of a group has received an entry and not acknowledged it."""
        return bool(await self.redis.xpending_range(self.key(name), group, min=entry, max=entry, count=1))

    async def trim(self, name: str) -> None:
        """Delete the entries that all groups have acknowledged. Without a group, nothing is deleted."""
        oldest: list[str] = []
        for group in await self.groups(name):
            summary = await self.redis.xpending(self.key(name), group.name)
            oldest.append(summary["min"].decode() if summary["pending"] else group.last_delivered)
        if oldest:
            await self.redis.xtrim(self.key(name), minid=min(oldest, key=place_of), approximate=True)

    async def trim_before(self, name: str, age: float) -> None:
        """Delete the entries that are older than `age` seconds."""
        await self.redis.xtrim(self.key(name), minid=f"{int((time.time() - age) * 1000)}-0", approximate=True)


@asynccontextmanager
async def opened_streams(settings: RedisSettings) -> AsyncIterator[Streams]:
    """A connection for the duration of a block. Errors of Redis become a ConfigError of one line, without secrets."""
    streams = Streams(settings, "operator")
    try:
        yield streams
    except TROUBLE as error:
        raise ConfigError(f"Redis at {streams.place}: {scrub(str(error))}") from None
    finally:
        await streams.close()


def _unread(entry_id: bytes | None, fields: Mapping[bytes, bytes] | None) -> bool:
    return entry_id is UNREAD or (fields is not None and any(value is UNREAD for value in fields.values()))


def _without_copy(letter: Mapping[str, str]) -> dict[str, str]:
    """A dead letter without the message, for when Redis has no memory for it."""
    text = f"{letter['text']} (Redis had no memory for a copy of the message)"
    return {name: value for name, value in letter.items() if name != "message"} | {"text": text}


def _by_stream(entries: Sequence[StreamEntry]) -> dict[str, list[str]]:
    ids: dict[str, list[str]] = {}
    for entry in entries:
        ids.setdefault(entry.stream, []).append(entry.id)
    return ids


def redis_outage(streams: Streams) -> Outage:
    """A new record of Redis outages. Publisher and listener have one each, because a publisher with nothing to send
    succeeds without calling Redis."""
    return Outage(of=f"Redis at {streams.place}", logger=log)


def redis_failed(outage: Outage, part: str, error: BaseException) -> float:
    """Note that Redis failed; returns the seconds to wait before trying again."""
    outage.failed(part, scrub(f"{type(error).__name__}: {error}"))
    return outage.pause


def place_of(entry: str) -> tuple[int, int]:
    """An entry's id as a pair of numbers, which compare like ids."""
    milliseconds, _, number = entry.partition("-")
    return int(milliseconds), int(number or 0)


def missing_group(error: BaseException) -> bool:
    """Whether an error means that a stream or its group is gone: it was deleted, or Redis restarted without data."""
    return isinstance(error, ResponseError) and str(error).startswith(("NOGROUP", "UNBLOCKED"))
