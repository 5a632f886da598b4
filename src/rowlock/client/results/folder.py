"""Results in a local folder."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rowlock.client.results.results import INVALID_PATH, Content, OutsideOfFolder, Results, plain_parts
from rowlock.core.errors import Permanent
from rowlock.store.engine.ids import valid_id

CHUNK = 1 << 18  # bytes that are read at a time


class ResultFolder(Results):
    def _put(self, written: Path, uri: str, checksum: str, found: os.stat_result) -> bool:
        target = self.path / uri
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        try:
            os.link(written, target, follow_symlinks=False)  # unlike a rename, it never replaces a file
        except FileExistsError:
            return False
        if not os.path.samestat(os.stat(target, follow_symlinks=False), found):
            target.unlink()
            raise Permanent(f"result_file({written.name!r}) was replaced while it was read", code=INVALID_PATH)
        _sync(target.parent)
        return True

    @contextlib.contextmanager
    def content(self, uri: str) -> Iterator[Content]:
        with self.opened(uri) as file:
            yield Content(os.fstat(file).st_size, CHUNK, lambda at, length: os.pread(file, length, at))

    @contextlib.contextmanager
    def opened(self, uri: str) -> Iterator[int]:
        """A descriptor of a result's file. Each part of the path is opened by itself, and none may be a symbolic link:
        so nothing outside the folder is read, even if another program changes it meanwhile."""
        parts = self.parts(uri)
        with contextlib.ExitStack() as stack:
            try:
                at = _open(stack, self.path, os.O_DIRECTORY)
                for part in parts[:-1]:
                    at = _open(stack, part, os.O_DIRECTORY | os.O_NOFOLLOW, at)
                file = _open(stack, parts[-1], os.O_NOFOLLOW | os.O_NONBLOCK, at)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
                    raise OutsideOfFolder(uri) from None
                raise
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise OutsideOfFolder(uri)
            yield file

    def parts(self, uri: str) -> list[str]:
        """The parts of a result's path below the folder: it may be relative, or absolute inside of it."""
        if uri.startswith("/"):
            inside = os.path.join(os.path.realpath(self.path), "")
            if not uri.startswith(inside):
                raise OutsideOfFolder(uri)
            uri = uri.removeprefix(inside)
        return plain_parts(uri)

    def jobs(self, older_than: float) -> Iterator[str]:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(self.path) as entries:
            for entry in entries:
                if valid_id(entry.name) != entry.name or not entry.is_dir(follow_symlinks=False):
                    continue
                if entry.stat(follow_symlinks=False).st_mtime < time.time() - older_than:
                    yield entry.name

    def published(self, job_id: str) -> list[str]:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return [f"{job_id}/{attempt}" for attempt in os.listdir(self.path / job_id)]
        return []

    def remove(self, paths: Sequence[str]) -> None:
        for path in paths:
            job_id, attempt, *_ = path.split("/")
            shutil.rmtree(self.path / job_id / attempt, ignore_errors=True)
            with contextlib.suppress(OSError):  # not empty: another attempt has a file
                os.rmdir(self.path / job_id)


def _open(stack: contextlib.ExitStack, path: str | Path, flags: int, at: int | None = None) -> int:
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags, dir_fd=at)
    stack.callback(os.close, opened)
    return opened


def _sync(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
