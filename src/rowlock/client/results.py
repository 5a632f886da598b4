"""Files that jobs make: written in private, visible once under the attempt's own path, read only below one place.

    results/.partial/JOB.ATTEMPT.TOKEN/name     while the attempt runs; nobody else looks there
    results/JOB/ATTEMPT/name                    from the moment the attempt has succeeded

An attempt that lost its lease never gets to the second path of another attempt, and no file is ever overwritten.
`Results` is what workers and the API use; `ResultFolder` keeps the files in a local folder, `ResultObjects` (in
result_objects.py) in object storage. Files that are still written are local in both cases.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

from rowlock.core.errors import InvalidArguments, Permanent
from rowlock.store.ids import valid_id

PARTIAL = ".partial"
CHUNK = 1 << 20
INVALID_PATH = "INVALID_OUTPUT_PATH"


class Published(NamedTuple):
    """A result's file: where it is below the folder, what is in it, and how large it is."""

    uri: str
    checksum: str  # sha256: and hex
    size: int


class Partial(NamedTuple):
    """The private folder of an attempt."""

    name: str
    job_id: str
    token: str


class OutsideOfFolder(Exception):
    """A path does not lead to a regular file below the folder, or goes through a symbolic link."""


class Content(Protocol):
    """A result's file that is open for reading."""

    size: int
    chunk: int  # how much to read at a time

    def read(self, at: int, length: int) -> bytes:
        """Bytes from a place on; fewer only at the end."""


class Results(ABC):
    """Where results are kept. Everything here may wait for a disk or a network: call it in a thread."""

    def __init__(self, path: str | Path, most_bytes: int) -> None:
        self.path, self._most_bytes = Path(path), most_bytes  # the folder of files that are still written

    def partial(self, job_id: str, attempt: int, token: str, name: str) -> Path:
        """Where an attempt may write its file."""
        if not name or name in (".", "..") or "/" in name or "\\" in name or not name.isprintable() or len(name) > 200:
            raise InvalidArguments(f"result_file takes a plain file name of up to 200 characters, not {name!r:.250}")
        folder = self.path / PARTIAL / _attempt(job_id, attempt, token)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder / name

    @abstractmethod
    def publish(self, job_id: str, attempt: int, token: str, name: str) -> Published:
        """Make an attempt's file the result under the attempt's own path. It is stored for good when this returns."""

    @abstractmethod
    def withdraw(self, uri: str) -> None:
        """Remove a file that was published and that no job names."""

    @abstractmethod
    def content(self, uri: str) -> AbstractContextManager[Content]:
        """A result's file, open for reading; FileNotFoundError if it is gone."""

    @abstractmethod
    def signed_url(self, uri: str) -> str | None:
        """An address that opens this one file for a short time, if downloads are to go there."""

    @abstractmethod
    def jobs(self, older_than: float) -> Iterator[str]:
        """Ids of the jobs that have files here, without jobs that have a file younger than this many seconds."""

    @abstractmethod
    def published(self, job_id: str) -> list[str]:
        """What the attempts of a job have published, as paths that begin with JOB/ATTEMPT."""

    @abstractmethod
    def remove(self, paths: Sequence[str]) -> None:
        """Remove what `published` has named."""

    def _digest(self, written: Path) -> tuple[str, os.stat_result]:
        """The checksum of a written file, which must be a regular one, and what the file is; flushed to disk."""
        try:
            opened = os.open(written, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            raise Permanent(
                f"the handler wrote nothing to result_file({written.name!r})", code="RESULT_MISSING"
            ) from None
        except OSError as error:
            raise Permanent(f"result_file({written.name!r}) is no regular file: {error}", code=INVALID_PATH) from None
        with open(opened, "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
                raise Permanent(f"result_file({written.name!r}) is no regular file of its own", code=INVALID_PATH)
            if found.st_size > self._most_bytes:
                too_large = f"{found.st_size:,} bytes; results.file_bytes allows {self._most_bytes:,}"
                raise Permanent(f"result_file({written.name!r}) has {too_large}", code="RESULT_TOO_LARGE")
            digest = hashlib.file_digest(file, "sha256")
            os.fsync(file.fileno())
        return f"sha256:{digest.hexdigest()}", found

    def discard(self, job_id: str, attempt: int, token: str) -> None:
        """Remove what an attempt has written in private."""
        shutil.rmtree(self.path / PARTIAL / _attempt(job_id, attempt, token), ignore_errors=True)

    def partial_older_than(self, seconds: float) -> list[Partial]:
        """The private folders that were made more than `seconds` seconds ago. Their attempts may still run: a file that
        is written for hours does not change the time of its folder."""
        found: list[Partial] = []
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(self.path / PARTIAL) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # its attempt has ended meanwhile
                    if entry.stat(follow_symlinks=False).st_mtime < time.time() - seconds:
                        job_id, _, rest = entry.name.partition(".")
                        found.append(Partial(entry.name, job_id, rest.partition(".")[2]))
        return found

    def remove_partial(self, folder: Partial) -> None:
        """Remove what an attempt that is over has written in private."""
        shutil.rmtree(self.path / PARTIAL / folder.name, ignore_errors=True)


class ResultFolder(Results):
    """Results in a local folder."""

    def publish(self, job_id: str, attempt: int, token: str, name: str) -> Published:
        """Make an attempt's file the result under the attempt's own path. The file is on disk when this returns."""
        written = self.partial(job_id, attempt, token, name)
        checksum, found = self._digest(written)
        uri = f"{job_id}/{attempt}/{name}"
        target = self.path / uri
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        try:
            os.link(written, target, follow_symlinks=False)  # unlike a rename, it never replaces a file
        except FileExistsError:
            raise Permanent(f"the result {uri} exists already and is not overwritten", code="RESULT_EXISTS") from None
        if not os.path.samestat(os.stat(target, follow_symlinks=False), found):
            target.unlink()
            raise Permanent(f"result_file({name!r}) was replaced while it was read", code=INVALID_PATH)
        _sync(target.parent)
        self.discard(job_id, attempt, token)
        return Published(uri, checksum, found.st_size)

    def withdraw(self, uri: str) -> None:
        shutil.rmtree((self.path / uri).parent, ignore_errors=True)  # the attempt's own folder

    @contextlib.contextmanager
    def content(self, uri: str) -> Iterator[Content]:
        with self.opened(uri) as file:
            yield FileContent(file)

    def signed_url(self, uri: str) -> str | None:
        return None

    @contextlib.contextmanager
    def opened(self, uri: str) -> Iterator[int]:
        """A descriptor of a result's file. Each part of the path is opened by itself, and none may be a symbolic link:
        so nothing outside of the folder is read, also if another program changes it meanwhile."""
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
            shutil.rmtree(self.path / path, ignore_errors=True)
            with contextlib.suppress(OSError):  # not empty: another attempt has a file
                os.rmdir((self.path / path).parent)


class FileContent:
    """A local file, by its descriptor."""

    chunk = 1 << 18

    def __init__(self, file: int) -> None:
        self._file, self.size = file, os.fstat(file).st_size

    def read(self, at: int, length: int) -> bytes:
        return os.pread(self._file, length, at)


def plain_parts(uri: str) -> list[str]:
    """The parts of a relative path, none of which leads elsewhere."""
    parts = uri.split("/")
    if any(part in ("", ".", "..", PARTIAL) or "\x00" in part or "\\" in part for part in parts):
        raise OutsideOfFolder(uri)
    return parts


def _attempt(job_id: str, attempt: int, token: str) -> str:
    return f"{job_id}.{attempt}.{token}"


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
