"""Reads replies of Redis in bounded memory, whatever a stranger has written to a stream.

The parser of redis-py keeps several copies of a whole reply in memory. This one discards data while it reads. From the
long strings of one array, such as the fields of an entry, it keeps as many bytes as a message may have; from an array
with too many elements, the first ones; and after BUDGET bytes of one reply, nothing. It marks what it discards: a `Cut`
knows its original length, and UNREAD replaces a string that was skipped only because the reply was too large, so that
its entry can be read again. A reply with one entry of each stream is never too large, whatever the entries contain.
"""

from __future__ import annotations

import asyncio
from typing import Any

from redis._parsers import BaseParser
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import InvalidResponse

LONGEST = 64 * 1024  # bytes to keep of one string, and of all strings of one array that are longer than SHORT
SHORT = 256  # a string of up to this many bytes is always kept: an id, a name
MOST_ELEMENTS = 20_000  # to keep of one array; no reply to the bridge needs more
BUDGET = 16 * 1024 * 1024  # bytes to keep of one reply
OVERHEAD = 64  # bytes of memory that a string takes in addition to its content
CHUNK_SECONDS = 10.0  # until the next bytes arrive; a whole reply may take longer if it is large
CLOSED = "Connection closed by server."


class Cut(bytes):
    """The beginning of a string, and the string's original size in bytes."""

    size: int

    @classmethod
    def of(cls, kept: bytes, size: int) -> Cut:
        made = cls(kept)
        made.size = size
        return made


UNREAD = Cut.of(b"", 0)


def size_of(data: bytes) -> int:
    """The size in bytes of a string in Redis."""
    return data.size if isinstance(data, Cut) else len(data)


class BoundedParser(BaseParser):
    """A parser of RESP2 for the connections of redis-py (`parser_class`)."""

    def __init__(self, socket_read_size: int) -> None:
        self._chunk = max(socket_read_size, LONGEST)
        self._stream: asyncio.StreamReader | None = None
        self._buffer, self._at, self._budget, self._room = b"", 0, 0, 0

    def on_connect(self, connection: Any) -> None:
        self._stream, self._buffer, self._at = connection._reader, b"", 0

    def on_disconnect(self) -> None:
        self._stream = None

    async def can_read(self) -> bool:
        """Whether there are unexpected bytes or the server has closed the connection: then the pool reconnects."""
        if self._stream is None:
            raise OSError("the connection is closed")
        waiting: Any = self._stream
        return self._at < len(self._buffer) or bool(waiting._buffer) or self._stream.at_eof()

    async def read_response(self, disable_decoding: bool = False) -> Any:
        """The next reply. Returns errors of Redis instead of raising them: they may be one reply of a pipeline."""
        self._budget, self._room = BUDGET, LONGEST
        reply = await self._reply()
        self._buffer, self._at = self._buffer[self._at :], 0
        return reply

    async def _reply(self) -> Any:
        end = self._buffer.find(b"\r\n", self._at)
        while end < 0:
            await self._more()
            end = self._buffer.find(b"\r\n", self._at)
        kind, line = self._buffer[self._at : self._at + 1], self._buffer[self._at + 1 : end]
        self._at = end + 2
        if kind == b"$":
            return await self._string(int(line))
        if kind == b"*":
            return await self._array(int(line))
        if kind == b":":
            return int(line)
        if kind == b"+":
            return line
        if kind == b"-":
            error: Exception = self.parse_error(line.decode("utf-8", "replace"))  # type: ignore[no-untyped-call]
            if isinstance(error, Disconnected):
                raise error
            return error
        raise InvalidResponse(f"Redis sent a reply of an unknown kind: {kind + line!r:.100}")

    async def _string(self, length: int) -> bytes | None:
        if length < 0:
            return None
        kept = await self._take(length if length <= SHORT else min(length, self._room))
        self._room -= len(kept) if length > SHORT else 0
        await self._skip(length - len(kept) + 2)
        self._budget -= len(kept) + OVERHEAD
        if self._budget < 0:
            return UNREAD
        return kept if len(kept) == length else Cut.of(kept, length)

    async def _array(self, length: int) -> list[Any] | None:
        if length < 0:
            return None
        outside, self._room = self._room, LONGEST
        items, dropped, fits = list[Any](), 0, True
        for place in range(length):
            if place % 2 == 0:  # a field and its value are kept together
                fits = place == 0 or (self._budget >= 0 and place < MOST_ELEMENTS)
            one = await self._reply()
            if fits or isinstance(one, list):
                items.append(one)
            else:
                dropped += size_of(one) if isinstance(one, bytes) else 0
        if length > MOST_ELEMENTS and isinstance(items[-1], bytes) and items[-1] is not UNREAD:
            items[-1] = Cut.of(items[-1], max(LONGEST + 1, size_of(items[-1]) + dropped))
        self._room = outside
        return items

    async def _take(self, length: int) -> bytes:
        while len(self._buffer) - self._at < length:
            await self._more()
        taken = self._buffer[self._at : self._at + length]
        self._at += length
        return taken

    async def _skip(self, length: int) -> None:
        while len(self._buffer) - self._at < length:
            length -= len(self._buffer) - self._at
            self._at = len(self._buffer)
            await self._more()
        self._at += length

    async def _more(self) -> None:
        if self._stream is None:
            raise Disconnected(CLOSED)
        async with asyncio.timeout(CHUNK_SECONDS):
            data = await self._stream.read(self._chunk)
        if not data:
            raise Disconnected(CLOSED)
        self._buffer, self._at = self._buffer[self._at :] + data, 0
