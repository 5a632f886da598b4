"""Which encoding an uploaded file is in, whatever it says itself.

Chrome writes UTF-8. Files that went through other programs come in anything and lie about it, so what they declare is
believed only if all of the file can be read that way.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import BinaryIO

from .charsets import codec_of

CHUNK = 1 << 20
DECLARED = re.compile(rb"charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:\-]{1,40})", re.IGNORECASE)
MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_TWO_HIGH = re.compile(rb"[\x80-\xff]{2,}")
_HIGH = re.compile(rb"[\x80-\xff]")


def encoding_of(file: BinaryIO) -> str:
    """The name of a codec that fits; the file is read from its beginning."""
    file.seek(0)
    start = file.read(4096)
    for mark, codec in MARKS.items():
        if start.startswith(mark):
            return codec
    if wide := _utf16_without_mark(start):
        return wide
    if _fits(file, "utf-8"):
        return "utf-8"
    declared = _declared(start)
    for codec in filter(None, (declared, "cp949")):  # of those without a declaration, cp949 is the easiest to rule out
        if _fits(file, codec):
            return codec
    # Cyrillic words are runs of high bytes; in western languages an accent stands between plain letters.
    return "cp1251" if _mostly_runs(file) else "cp1252"


def text_of(file: BinaryIO, codec: str) -> Iterator[str]:
    """The file as text, piece by piece. What cannot be read becomes U+FFFD and takes nothing else with it."""
    file.seek(0)
    decoder = codecs.getincrementaldecoder(codec)("replace")
    while data := file.read(CHUNK):
        yield decoder.decode(data)
    yield decoder.decode(b"", True)


def _utf16_without_mark(start: bytes) -> str | None:
    """UTF-16 is known by its zeros: every second byte of what is mostly ASCII."""
    sample = start[:400]
    if len(sample) < 8:
        return None
    even, odd = sample[0::2].count(0) / len(sample), sample[1::2].count(0) / len(sample)
    if odd > 0.35 and even < 0.05:
        return "utf-16-le"
    return "utf-16-be" if even > 0.35 and odd < 0.05 else None


def _declared(start: bytes) -> str | None:
    found = DECLARED.search(start)
    if found is None:
        return None
    codec = codec_of(found[1].decode("ascii"))
    return None if codec is None or codec.startswith("utf") else codec


def _fits(file: BinaryIO, codec: str) -> bool:
    """Whether every byte of the file can be read so."""
    decoder = codecs.getincrementaldecoder(codec)("strict")
    file.seek(0)
    try:
        while data := file.read(CHUNK):
            decoder.decode(data)
        decoder.decode(b"", True)
    except UnicodeError:
        return False
    return True


def _mostly_runs(file: BinaryIO) -> bool:
    file.seek(0)
    high = runs = 0
    while data := file.read(CHUNK):
        high += len(_HIGH.findall(data))
        runs += sum(map(len, _TWO_HIGH.findall(data)))
    return runs * 2 > high
