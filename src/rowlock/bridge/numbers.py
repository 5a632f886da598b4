"""Counts of the Redis streams, for `rowlock stats`."""

from __future__ import annotations

from dataclasses import dataclass

from rowlock.bridge.messages import DEAD_LETTERS, PROGRESS, REQUESTS, RESULTS
from rowlock.bridge.streams import COUNTERS, GROUP, Streams
from rowlock.client.client import Client
from rowlock.store import outbox


@dataclass(frozen=True, slots=True)
class StreamNumbers:
    """One consumer group of a stream."""

    stream: str
    group: str
    lag: int | None  # entries that the group has not read; None: Redis does not know
    pending: int  # read and not acknowledged


@dataclass(frozen=True, slots=True)
class BridgeNumbers:
    """Redis, as `rowlock stats` shows it."""

    streams: tuple[StreamNumbers, ...]
    unread: int  # published requests that no worker has answered
    dead_letters: int
    counters: dict[str, int]  # by name: messages that were accepted, late, stale, …


async def numbers(app: Client, streams: Streams) -> BridgeNumbers:
    """Read the counts from Redis and from the outbox in the database."""
    found = []
    for name in (REQUESTS, PROGRESS, RESULTS):
        ours = () if name == REQUESTS else (GROUP,)
        for group in await streams.groups(name):
            if not ours or group.name in ours:
                found.append(StreamNumbers(name, group.name, group.lag, group.pending))
    counters = await streams.redis.hgetall(streams.key(COUNTERS))
    return BridgeNumbers(
        streams=tuple(found),
        unread=await (await app.store()).run(outbox.unread()),
        dead_letters=await streams.redis.xlen(streams.key(DEAD_LETTERS)),
        counters={name.decode(): int(number) for name, number in sorted(counters.items())},
    )
