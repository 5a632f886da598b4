"""A disk that is full whenever a file says so, for every process that uses it: no mount, no root."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw


class _File(apsw.VFSFile):
    def __init__(self, name: str | apsw.URIFilename | None, flags: list[int], full: Path) -> None:
        super().__init__("unix", name, flags)
        self._full = full

    def xWrite(self, data: bytes, offset: int) -> None:
        if self._full.exists():
            raise apsw.FullError("no space left on the disk of this test")
        super().xWrite(data, offset)


class Disk(apsw.VFS):
    """SQLite's way to the disk, for all connections that are opened from now on."""

    def __init__(self, full: Path) -> None:
        super().__init__("race", "unix", makedefault=True)
        self._full = full

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return _File(name, flags, self._full)


@contextmanager
def disk(full: Path) -> Iterator[None]:
    """Use such a disk in this process for as long as the block lasts."""
    made = Disk(full)
    try:
        yield
    finally:
        made.unregister()
