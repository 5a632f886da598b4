"""Finds the encoding of an uploaded file, whatever the file declares, and how much of the file does not fit it.

Chrome writes UTF-8. Files that went through other programs may have any encoding, declare a wrong one, and contain
bytes that aren't text at all. One such byte must not change how the rest is read, so an encoding fits if nearly all of
the file can be read that way.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from .charsets import codec_of

CHUNK = 1 << 20
DECLARED = re.compile(rb"charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:\-]{1,40})", re.IGNORECASE)
MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
# Of the characters beyond ASCII, the share that may be replaced while an encoding still counts as the file's. Bytes of
# another encoding are UTF-8 only by rare chance; in the two-byte encodings of Asia nearly every pair is a character.
MOST_REPLACED_OF_UTF8, MOST_REPLACED_OF_DECLARED_UTF8, MOST_REPLACED = 0.25, 0.5, 0.01
_TWO_HIGH = re.compile(rb"[\x80-\xff]{2,}")
_HIGH = re.compile(rb"[\x80-\xff]")
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]")
_REPLACEMENT = "\ufffd".encode()


class Encoding(NamedTuple):
    """How a file is read."""

    codec: str
    replaced: int  # characters that are U+FFFD because their bytes aren't text in this encoding


def encoding_of(file: BinaryIO) -> Encoding:
    """The encoding that fits a file best; the file is read from its beginning."""
    file.seek(0)
    start = file.read(4096)
    marked = next((codec for mark, codec in MARKS.items() if start.startswith(mark)), None)
    if codec := marked or _utf16_without_mark(start):
        return Encoding(codec, 0 if _fits(file, codec) else _measured(file, codec).replaced)
    declared, declares_utf8 = _declared(start)
    for codec in filter(None, ("utf-8", declared)):
        if _fits(file, codec):
            return Encoding(codec, 0)
    share_of_utf8 = MOST_REPLACED_OF_DECLARED_UTF8 if declares_utf8 else MOST_REPLACED_OF_UTF8
    for codec, share in ((declared, MOST_REPLACED), ("utf-8", share_of_utf8)):
        if codec and (found := _measured(file, codec)).replaced <= share * found.beyond_ascii:
            return Encoding(codec, found.replaced)
    if _fits(file, "cp949"):  # without a declaration: the encoding that is easiest to rule out
        return Encoding("cp949", 0)
    # Cyrillic words are runs of high bytes; in western languages an accent is between plain letters.
    codec = "cp1251" if _mostly_runs(file) else "cp1252"
    return Encoding(codec, _measured(file, codec).replaced)


def text_of(file: BinaryIO, codec: str) -> Iterator[str]:
    """The file as text, piece by piece. Bytes that cannot be read become U+FFFD; the text around them is not
    affected."""
    file.seek(0)
    decoder = codecs.getincrementaldecoder(codec)("replace")
    for data in _chunks(file):
        yield decoder.decode(data, not data)


def _utf16_without_mark(start: bytes) -> str | None:
    """UTF-16 is recognised by its zeros: every second byte, if the text is mostly ASCII."""
    sample = start[:400]
    if len(sample) < 8:
        return None
    even, odd = sample[0::2].count(0) / len(sample), sample[1::2].count(0) / len(sample)
    if odd > 0.35 and even < 0.05:
        return "utf-16-le"
    return "utf-16-be" if even > 0.35 and odd < 0.05 else None


def _declared(start: bytes) -> tuple[str | None, bool]:
    """The encoding that the file declares, unless that is a form of Unicode; and whether it declares UTF-8."""
    found = DECLARED.search(start)
    codec = codec_of(found[1].decode("ascii")) if found else None
    if codec is None or codec.startswith("utf"):
        return None, codec is not None and codec.replace("_", "-").startswith("utf-8")
    return codec, False


def _fits(file: BinaryIO, codec: str) -> bool:
    """Whether every byte of the file can be decoded with it."""
    decoder = codecs.getincrementaldecoder(codec)("strict")
    file.seek(0)
    try:
        for data in _chunks(file):
            decoder.decode(data, not data)
    except UnicodeError:
        return False
    return True


class _Measure(NamedTuple):
    replaced: int
    beyond_ascii: int  # characters that are not ASCII, replaced ones included


def _measured(file: BinaryIO, codec: str) -> _Measure:
    decoder = codecs.getincrementaldecoder(codec)("replace")
    file.seek(0)
    replaced = beyond = 0
    tail = b""
    for data in _chunks(file):
        text = decoder.decode(data, not data)
        replaced += text.count("\ufffd")
        beyond += len(_BEYOND_ASCII.findall(text))
        if codec.startswith("utf-8"):  # another program may have written U+FFFD itself
            replaced -= (tail + data).count(_REPLACEMENT)
            tail = (tail + data)[-2:]
    return _Measure(replaced, beyond)


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    """The rest of a file, and an empty piece as its end."""
    while data := file.read(CHUNK):
        yield data
    yield b""


def _mostly_runs(file: BinaryIO) -> bool:
    file.seek(0)
    high = runs = 0
    while data := file.read(CHUNK):
        high += len(_HIGH.findall(data))
        runs += sum(map(len, _TWO_HIGH.findall(data)))
    return runs * 2 > high
