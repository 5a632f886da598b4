"""Counts of the Redis streams, for `rowlock stats` and the metrics of a bridge."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from rowlock.bridge import outbox
from rowlock.bridge.messages import DEAD_LETTERS, PROGRESS, REQUESTS, RESULTS
from rowlock.bridge.streams import COUNTERS, GROUP, Streams
from rowlock.client.client import Client
from rowlock.signals.metrics import Sample, Samples


@dataclass(frozen=True, slots=True)
class StreamNumbers:
    stream: str
    group: str
    lag: int | None  # entries that the group has not read; None: Redis doesn't know
    pending: int  # read, but not acknowledged


@dataclass(frozen=True, slots=True)
class BridgeNumbers:
    streams: tuple[StreamNumbers, ...]
    unread: int  # published requests that no worker has answered
    dead_letters: int
    counters: dict[str, int]  # how many messages were accepted, late, stale, …


async def numbers(app: Client, streams: Streams) -> BridgeNumbers:
    """Read the counts from Redis and from the outbox in the database."""
    found = [
        StreamNumbers(name, group.name, group.lag, group.pending)
        for name in (REQUESTS, PROGRESS, RESULTS)
        for group in await streams.groups(name)
        if name == REQUESTS or group.name == GROUP
    ]
    counters = await streams.redis.hgetall(streams.key(COUNTERS))
    return BridgeNumbers(
        streams=tuple(found),
        unread=await (await app.store()).run(outbox.unread()),
        dead_letters=await streams.redis.xlen(streams.key(DEAD_LETTERS)),
        counters={name.decode(): int(number) for name, number in sorted(counters.items())},
    )


def samples(found: BridgeNumbers) -> Samples:
    lag = Counter[str]()
    for one in found.streams:
        lag[one.stream] += one.lag or 0
    return {
        "rowlock_bridge_lag_entries": [Sample((stream,), entries) for stream, entries in sorted(lag.items())],
        "rowlock_deadletter_entries": [Sample((), found.dead_letters)],
    }
