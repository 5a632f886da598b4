"""Counts of the Redis streams, for `rowlock stats` and for the metrics of a bridge."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from rowlock.bridge import outbox
from rowlock.bridge.messages import DEAD_LETTERS, PROGRESS, REQUESTS, RESULTS
from rowlock.bridge.streams import COUNTERS, GROUP, TROUBLE, Streams
from rowlock.client.client import Client
from rowlock.signals.metrics import Sample, Samples

READ_SECONDS = 5.0


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


class BridgeMeter:
    """Asks Redis every few seconds, so that a scrape waits for nothing."""

    def __init__(self, app: Client, streams: Streams) -> None:
        self._app, self._streams = app, streams
        self._found: Samples = {}

    async def round(self) -> float:
        """One reading; without Redis there are no numbers. Returns the delay before the next."""
        try:
            found = await numbers(self._app, self._streams)
        except TROUBLE:
            self._found = {}
            return READ_SECONDS
        lag = Counter[str]()
        for one in found.streams:
            lag[one.stream] += one.lag or 0
        self._found = {
            "rowlock_bridge_lag_entries": [Sample((stream,), entries) for stream, entries in sorted(lag.items())],
            "rowlock_deadletter_entries": [Sample((), found.dead_letters)],
        }
        return READ_SECONDS

    def samples(self) -> Samples:
        """The numbers of the last reading."""
        return self._found
