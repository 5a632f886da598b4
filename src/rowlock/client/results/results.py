"""Result files of jobs: private while they are written, then published once under the path of their attempt.

    results/.partial/JOB.ATTEMPT.TOKEN/name     while the attempt runs; nobody else looks there
    results/JOB/ATTEMPT/name                    from the moment the attempt has succeeded

An attempt that lost its lease never gets to the second path of another attempt, and no file is ever overwritten.
`Results` is what workers and the API use. `ResultFolder` (folder.py) keeps the files in a local folder, `ResultObjects`
(objects.py) in object storage. Both write unfinished files locally.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shutil
import stat
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import NamedTuple, ParamSpec, TypeVar

from rowlock.core.errors import InvalidArguments, Permanent

PARTIAL = ".partial"
NAME_BYTES = 255  # most that file systems take
THREADS = 16
INVALID_PATH = "INVALID_OUTPUT_PATH"

P = ParamSpec("P")
T = TypeVar("T")


class Published(NamedTuple):
    """A result's file: where it is below the folder, and what is in it."""

    uri: str
    checksum: str  # sha256: and hex


class OutsideOfFolder(Exception):
    """A path does not lead to a regular file below the folder, or goes through a symbolic link."""


class Content(NamedTuple):
    """A result's file that is open for reading."""

    size: int
    chunk: int  # how much to read at a time
    read: Callable[[int, int], bytes]  # (from which byte on, how many); fewer only at the end


class Results(ABC):
    """Where results are kept. Everything here may wait for a disk or a network: call it with `run`."""

    def __init__(self, path: str | Path, most_bytes: int) -> None:
        self.path, self._most_bytes = Path(path), most_bytes  # the folder of files that are still written
        self._threads: tuple[int, ThreadPoolExecutor] | None = None  # and the process that they belong to

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call something here in a thread of the results. They are not asyncio's threads, in which host names are
        resolved and handlers may work: those must not wait while the storage hangs."""
        if self._threads is None or self._threads[0] != os.getpid():
            self._threads = os.getpid(), ThreadPoolExecutor(THREADS, "rowlock-results")
        return await asyncio.get_running_loop().run_in_executor(self._threads[1], partial(work, *args, **kwargs))

    def partial(self, job_id: str, attempt: int, token: str, name: str) -> Path:
        """Where an attempt may write its file."""
        if not _can_be_downloaded(name):
            raise InvalidArguments(
                f"result_file takes a plain file name of up to 200 characters and {NAME_BYTES} bytes of UTF-8,"
                f" and not {PARTIAL!r}: {name!r:.250}"
            )
        folder = self._private(job_id, attempt, token)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder / name

    def publish(self, job_id: str, attempt: int, token: str, name: str) -> Published:
        """Make an attempt's file the result under the attempt's own path. It is stored for good when this returns."""
        written = self.partial(job_id, attempt, token, name)
        checksum, found = self._digest(written)
        uri = f"{job_id}/{attempt}/{name}"
        if not self._put(written, uri, checksum, found):
            raise Permanent(f"the result {uri} exists already and is not overwritten", code="RESULT_EXISTS")
        self.discard(job_id, attempt, token)
        return Published(uri, checksum)

    @abstractmethod
    def _put(self, written: Path, uri: str, checksum: str, found: os.stat_result) -> bool:
        """Store a written file under this path for good; False if there is another file already."""

    @abstractmethod
    def content(self, uri: str) -> AbstractContextManager[Content]:
        """A result's file, open for reading; FileNotFoundError if it is gone."""

    def signed_url(self, uri: str) -> str | None:
        """An address that opens this one file for a short time, if downloads are to go there."""
        return None

    @abstractmethod
    def jobs(self, older_than: float) -> Iterator[str]:
        """Ids of the jobs that have files here, without jobs that have a file younger than this many seconds."""

    @abstractmethod
    def published(self, job_id: str) -> list[str]:
        """What the attempts of a job have published, as paths that begin with JOB/ATTEMPT."""

    @abstractmethod
    def remove(self, paths: Sequence[str]) -> None:
        """Remove what `publish` or `published` has named."""

    def _digest(self, written: Path) -> tuple[str, os.stat_result]:
        """The checksum of a written file, which must be a regular one, and what the file is; flushed to disk."""
        try:
            opened = os.open(written, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            raise Permanent(
                f"the handler wrote nothing to result_file({written.name!r})", code="RESULT_MISSING"
            ) from None
        except OSError as error:
            raise Permanent(f"result_file({written.name!r}) isn't a regular file: {error}", code=INVALID_PATH) from None
        with open(opened, "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
                raise Permanent(f"result_file({written.name!r}) isn't a regular file with one link", code=INVALID_PATH)
            if found.st_size > self._most_bytes:
                too_large = f"{found.st_size:,} bytes; results.file_bytes allows {self._most_bytes:,}"
                raise Permanent(f"result_file({written.name!r}) has {too_large}", code="RESULT_TOO_LARGE")
            digest = hashlib.file_digest(file, "sha256")
            os.fsync(file.fileno())
        return f"sha256:{digest.hexdigest()}", found

    def discard(self, job_id: str, attempt: int | str, token: str) -> None:
        """Remove what an attempt has written in private."""
        shutil.rmtree(self._private(job_id, attempt, token), ignore_errors=True)

    def _private(self, job_id: str, attempt: int | str, token: str) -> Path:
        return self.path / PARTIAL / f"{job_id}.{attempt}.{token}"

    def partial_older_than(self, seconds: float) -> list[tuple[str, str, str]]:
        """The attempts (job, number, token) whose private folders were made more than `seconds` seconds ago. They may
        still run: a file that is written for hours does not change the time of its folder."""
        found: list[tuple[str, str, str]] = []
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(self.path / PARTIAL) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # its attempt has ended meanwhile
                    if entry.stat(follow_symlinks=False).st_mtime < time.time() - seconds:
                        job_id, _, rest = entry.name.partition(".")
                        attempt, _, token = rest.partition(".")
                        found.append((job_id, attempt, token))
        return found


def plain_parts(uri: str) -> list[str]:
    """The parts of a relative path, none of which leads elsewhere."""
    parts = uri.split("/")
    if any(part in ("", ".", "..", PARTIAL) or "\x00" in part or "\\" in part for part in parts):
        raise OutsideOfFolder(uri)
    return parts


def _can_be_downloaded(name: str) -> bool:
    """Whether this is one part of a path that `plain_parts` lets through, and that a file can have."""
    plain = name not in ("", ".", "..", PARTIAL) and "/" not in name and "\\" not in name and name.isprintable()
    return plain and len(name) <= 200 and len(name.encode()) <= NAME_BYTES
