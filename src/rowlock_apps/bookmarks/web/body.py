"""The bytes of an answer, inflated step by step, with an end whatever the server sends."""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, AsyncIterator

from rowlock import Permanent, SourceError

MOST_BYTES = 5 << 20  # of output
MOST_RATIO = 200  # output to input; text is rarely packed to less than a twentieth
RATIO_FROM = 64 << 10  # bytes of output below which the ratio means nothing
STEP = 64 << 10
PLAIN, GZIP = {"", "identity"}, {"gzip", "x-gzip"}


async def inflated(chunks: AsyncIterator[bytes], encoding: str, most: int = MOST_BYTES) -> AsyncGenerator[bytes, None]:
    """What the chunks hold, in steps of at most 64 KiB, and not more than `most` bytes."""
    name = encoding.strip().lower()
    if name not in PLAIN | GZIP:
        raise Permanent(f"the page is packed as {name[:40]!r}, which was not asked for", code="ENCODING")
    left = min(most, MOST_BYTES)
    async for step in _unpacked(chunks) if name in GZIP else chunks:
        yield step[:left]
        left -= len(step)
        if left <= 0:
            return


async def _unpacked(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    packed = unpacked = 0
    stream = zlib.decompressobj(16 + zlib.MAX_WBITS)
    async for chunk in chunks:
        packed += len(chunk)
        while chunk and not stream.eof:
            try:
                step = stream.decompress(chunk, STEP)
            except zlib.error as error:
                raise SourceError(f"the page's gzip is broken: {error}", code="ENCODING") from None
            chunk = stream.unconsumed_tail
            unpacked += len(step)
            used = packed - len(chunk)
            if unpacked > RATIO_FROM and unpacked > MOST_RATIO * used:
                raise Permanent(f"{used} bytes unpack to more than {unpacked}: a bomb", code="BOMB")
            if step:
                yield step
        if stream.eof:
            return
