"""The file of an SQLite database: create it readable only by its owner, check that its path still leads to it, and
detect network filesystems, where SQLite's locks are unreliable and the file may be corrupted."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Hashable
from pathlib import Path
from typing import ClassVar, NoReturn
from weakref import WeakSet

from rowlock.core.errors import StoreUnavailable

log = logging.getLogger("rowlock.store")

CHECK_SECONDS = 0.001  # between checks at commits that the path still leads to the open file
NETWORK = {
    *("nfs", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "afs", "ncpfs", "9p", "ceph", "glusterfs", "lustre"),
    *("gfs2", "ocfs2", "beegfs", "davfs", "afpfs", "webdav"),
    *("fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.davfs2"),
}


def network_filesystem(folder: Path, mounts: str | None = None) -> str | None:
    """The kind of network filesystem that `folder` is on, such as "nfs4"; None if it is local or unknown. Useful for
    programs that keep an SQLite file. Tests pass the text of /proc/mounts as `mounts`."""
    if mounts is None:
        if not sys.platform.startswith("linux"):
            return None
        try:
            mounts = Path("/proc/mounts").read_text(errors="replace")
        except OSError as error:  # no /proc, or no file descriptor left: then opening the file will fail
            log.warning("cannot tell whether %s is on a network filesystem: %s", folder, error)
            return None
    best, kind = "", ""
    target = str(folder.resolve())
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        point = fields[1].replace("\\040", " ")
        inside = target == point or target.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind if kind in NETWORK else None


class DatabaseFile:
    """The file that the connections of one store have open. If it is deleted, moved or replaced, it stays open, and
    SQLite would go on writing jobs to it that no other process ever sees. All stores of a process on one path share
    this object, because two files under one name would share one write-ahead log, which destroys both."""

    _in_use: ClassVar[dict[Path, DatabaseFile]] = {}

    def __init__(self, path: Path) -> None:
        self.path, self._text = path, str(path)  # stat is twice as fast with a str
        self._identity: tuple[int, int] | None = None  # device and inode, once a connection has opened it
        self._checked = 0.0  # by `time.monotonic`
        self._users: WeakSet[Hashable] = WeakSet()  # the stores that have it open

    @classmethod
    def at(cls, path: Path) -> DatabaseFile:
        """The file that other stores of this process have open under this path; if there is none, a new object."""
        known = cls._in_use.get(path)
        return known if known is not None and known._users else cls(path)

    def begin_use(self, store: Hashable) -> None:
        """Register an open store: later ones on this path must find the same file."""
        self._users.add(store)
        self._in_use[self.path] = self

    def end_use(self, store: Hashable) -> None:
        """Unregister a closed store. After the last one, another file may be opened under this path."""
        self._users.discard(store)
        if not self._users and self._in_use.get(self.path) is self:
            del self._in_use[self.path]

    def create(self) -> None:
        """Before the first connection, create an empty file that only its owner can read, if there is none. SQLite
        would leave its mode to the umask, so on most machines every user could read the jobs; the -wal and -shm files
        get the file's mode. Don't open an existing file: closing it would release the locks that SQLite holds on it in
        this process. If the file can't be created, SQLite's own attempt will report why. Later connections don't
        create anything: they must find the file that is open."""
        if self._identity is not None:
            self.check()
            return
        with contextlib.suppress(OSError):
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))

    def opened(self) -> None:
        """Remember the file that the first connection has opened, and check later ones against it."""
        self._identity = self._identity or self._found()
        self.check()

    def check(self) -> None:
        """Raise if the path no longer leads to the open file."""
        if self._found() != self._identity:
            self._refuse("there is another file at this path now")

    def check_lately(self, now: float) -> None:
        """Like `check`, but at most once a millisecond: at each commit it would take 4 % of an enqueue. A write in this
        millisecond is as safe as one just before the file was removed."""
        if not 0.0 <= now - self._checked < CHECK_SECONDS:
            self.check()
            self._checked = now

    def _found(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._text)
        except (FileNotFoundError, NotADirectoryError):
            self._refuse("there is no file at this path any more")
        except OSError:  # an unreadable folder doesn't mean that the file is gone
            return self._identity
        return found.st_dev, found.st_ino

    def _refuse(self, why: str) -> NoReturn:
        raise StoreUnavailable(
            f"the database {self.path} was deleted, moved or replaced while it was open ({why}): nothing is written, "
            "because no other process would see it; put the file back, or restart this process to open the path again"
        )
