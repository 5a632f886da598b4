"""The numbers of a bridge: what its readers have not read of each stream, and the dead letters."""

from __future__ import annotations

from collections import Counter

from rowlock.bridge.numbers import numbers
from rowlock.bridge.streams import TROUBLE, Streams
from rowlock.client.client import Client
from rowlock.signals.families import Sample, Samples, number

READ_SECONDS = 5.0


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
            **dict([number("rowlock_deadletter_entries", found.dead_letters)]),
        }
        return READ_SECONDS

    def samples(self) -> Samples:
        """The numbers of the last reading."""
        return self._found
