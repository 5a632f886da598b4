"""The file at outputPath: written once, never over another, with its checksum."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path


@asynccontextmanager
async def written_once(target: Path) -> AsyncIterator[Path]:
    """A path to write to. When the block ends well, what is there gets the target's name, unless a file has it already;
    when the block raises, nothing is left behind."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{uuid.uuid4().hex}.partial")
    try:
        yield partial
        _flush(partial)
        _link(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def checksum(path: Path) -> str:
    """The checksum of what is delivered."""
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _link(partial: Path, target: Path) -> None:
    try:
        os.link(partial, target)  # unlike a rename, it never replaces a file
    except FileExistsError:
        return  # another worker has done this request meanwhile, and its file stays
    _flush(target.parent)


def _flush(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
