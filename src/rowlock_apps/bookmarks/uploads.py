"""An uploaded bookmarks file: opened, checked as a whole, then read bookmark by bookmark."""

from __future__ import annotations

import io
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO, NamedTuple

from rowlock import RowlockError

from .chrome_html import Bookmark, bookmarks
from .encoding import Encoding, encoding_of, text_of
from .links import Link, link_of

MOST_BYTES = 100 << 20
MOST_BOOKMARKS = 500_000
Upload = bytes | str | Path


class BadUpload(RowlockError, ValueError):
    """The file is not one that can be imported; nothing was written."""


class Item(NamedTuple):
    """A bookmark and what it points at."""

    position: int
    bookmark: Bookmark
    link: Link | None
    skipped: str | None  # why there is no link


@contextmanager
def opened(upload: Upload) -> Iterator[BinaryIO]:
    """The file, or the bytes as one."""
    if isinstance(upload, bytes):
        yield io.BytesIO(upload)
        return
    with _open(upload) as file:
        yield file


def _open(path: str | Path) -> BinaryIO:
    try:
        if stat.S_ISCHR(kind := os.stat(path).st_mode) or stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind):
            reason = "it is no file, which can be read twice; save what it gives, and import that"
        else:
            return open(path, "rb")
    except OSError as error:
        reason = error.strerror or str(error)
    except ValueError as error:  # a NUL
        path, reason = repr(path), str(error)
    raise BadUpload(f"cannot read {path}: {reason}")


class Contents(NamedTuple):
    """The contents of a file."""

    total: int  # bookmarks
    encoding: str
    replaced_characters: int


def put_aside(file: BinaryIO, lines: IO[bytes]) -> Contents:
    """All bookmarks of a file, read before anything is written to the database: then a bad file leaves nothing behind,
    and how many there are is known from the beginning. `lines` gets each of them as JSON."""
    encoding = _check_outside(file)
    total = listed = 0
    for bookmark in bookmarks(text_of(file, encoding.codec)):
        total += 1
        listed += bookmark.listed
        if total > MOST_BOOKMARKS:
            raise BadUpload(f"the file has more than {MOST_BOOKMARKS:,} bookmarks; split it")
        lines.write(json.dumps(bookmark).encode() + b"\n")
    if not listed:
        found = "links, but none in a <DL> list" if total else "no <A HREF=…> in a <DL> list"
        raise BadUpload(f"this is not a bookmarks file: it has {found}; upload the HTML file that the browser exports")
    lines.seek(0)
    return Contents(total, encoding.codec.removesuffix("-sig"), encoding.replaced)


def _check_outside(file: BinaryIO) -> Encoding:
    """The encoding of a file that looks like bookmarks."""
    size = file.seek(0, io.SEEK_END)
    if size == 0:
        raise BadUpload("the file is empty; export the bookmarks again (Chrome: Bookmark manager, Export bookmarks)")
    if size > MOST_BYTES:
        raise BadUpload(f"the file has {size:,} bytes, more than {MOST_BYTES:,}; split it, or delete its icons")
    encoding = encoding_of(file)
    file.seek(0)
    if not encoding.codec.startswith("utf-16") and b"\x00" in file.read(4096):
        raise BadUpload("the file is binary, not text; upload the HTML file that the browser exports")
    return encoding


def items(lines: IO[bytes]) -> Iterator[Item]:
    """Each bookmark that was put aside, and the canonical link that it points at."""
    for position, line in enumerate(lines):
        bookmark = Bookmark(*json.loads(line))
        link = link_of(bookmark.href)
        if isinstance(link, Link):
            yield Item(position, bookmark, link, None)
        else:
            yield Item(position, bookmark, None, link)
