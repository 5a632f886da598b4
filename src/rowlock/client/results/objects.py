"""Results in object storage that speaks S3's protocol, through obstore.

A file is written locally, and uploaded under `JOB/ATTEMPT/name` when its attempt has succeeded. An attempt's number is
given to one attempt only, and an upload is refused where there is an object already: none is ever overwritten.
"""

from __future__ import annotations

import hashlib
import itertools
import mimetypes
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import S3Store

from rowlock.client.results.results import Content, OutsideOfFolder, Results, plain_parts
from rowlock.core.errors import ConfigError, ResultsUnavailable
from rowlock.store.engine.ids import valid_id

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from rowlock.core.config import ResultSettings

WHOLE_BYTES = 16_000_000  # up to here a file is uploaded in one request, on condition that there is no such object
CHUNK = 1 << 22  # bytes that one request reads
RETRIES: Any = {"max_retries": 4, "retry_timeout": timedelta(seconds=30)}


class ResultObjects(Results):
    """Results in a bucket, below a prefix."""

    def __init__(
        self, store: ObjectStore, path: str | Path, most_bytes: int, signed_seconds: float | None = None
    ) -> None:
        super().__init__(path, most_bytes)
        self._store, self._signed_seconds = store, signed_seconds

    def _put(self, written: Path, uri: str, checksum: str, found: os.stat_result) -> bool:
        with _reaching("upload"):
            return self._upload(written, uri, found.st_size) or self._checksum(uri) == checksum

    def _upload(self, written: Path, uri: str, size: int) -> bool:
        """Whether the object was made; if not, there is one already."""
        kind = mimetypes.guess_type(uri)[0] or "application/octet-stream"
        # A signed address leads past our API: what a browser must not guess is stored with the object.
        shown: Any = {
            "Content-Type": kind,
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(written.name)}",
        }
        try:
            if size <= WHOLE_BYTES:
                obstore.put(self._store, uri, written, attributes=shown, mode="create", use_multipart=False)
            elif self._is_there(uri):  # an upload in parts knows no condition
                return False
            else:
                obstore.put(self._store, uri, written, attributes=shown)
        except AlreadyExistsError:  # perhaps our own: the answer to it was lost, and it was repeated
            return False
        return True

    def _is_there(self, uri: str) -> bool:
        try:
            obstore.head(self._store, uri)
        except FileNotFoundError:
            return False
        return True

    def _checksum(self, uri: str) -> str:
        digest = hashlib.sha256()
        for part in obstore.get(self._store, uri):
            digest.update(part)
        return f"sha256:{digest.hexdigest()}"

    @contextmanager
    def content(self, uri: str) -> Iterator[Content]:
        key = "/".join(plain_parts(uri))
        with _reaching("read"):
            size = obstore.head(self._store, key)["size"]

        def read(at: int, length: int) -> bytes:
            with _reaching("read"):
                return bytes(obstore.get_range(self._store, key, start=at, length=length))

        yield Content(size, CHUNK, read)

    def signed_url(self, uri: str) -> str | None:
        if self._signed_seconds is None:
            return None
        if not isinstance(self._store, S3Store):
            raise ConfigError("results.signed_urls needs storage that can sign: s3://")
        key = "/".join(plain_parts(uri))
        return obstore.sign(self._store, "GET", key, timedelta(seconds=self._signed_seconds))

    def jobs(self, older_than: float) -> Iterator[str]:
        before = datetime.now(UTC) - timedelta(seconds=older_than)
        with _reaching("list"):
            # Listings are in the order of keys, so that the objects of a job come one after the other.
            found = itertools.chain.from_iterable(obstore.list(self._store, chunk_size=1000))
            for job_id, objects in itertools.groupby(found, key=lambda one: one["path"].partition("/")[0]):
                is_old = all([one["last_modified"] < before for one in objects])
                if is_old and valid_id(job_id) == job_id:
                    yield job_id

    def published(self, job_id: str) -> list[str]:
        with _reaching("list"):
            return [one["path"] for part in obstore.list(self._store, f"{job_id}/") for one in part]

    def remove(self, paths: Sequence[str]) -> None:
        with _reaching("remove"), suppress(FileNotFoundError):  # another worker was quicker
            if paths:
                obstore.delete(self._store, list(paths))


def open_bucket(settings: ResultSettings, scratch: str) -> ResultObjects:
    """The results of a URL s3://bucket/prefix. Credentials come from the environment, as for any program of S3."""
    assert settings.url is not None
    options: Any = {}
    if settings.endpoint is not None:
        options = {"endpoint": settings.endpoint, "virtual_hosted_style_request": False}
    if settings.region is not None:
        options["region"] = settings.region
    client: Any = {"allow_http": (settings.endpoint or "").startswith("http://"), "connect_timeout": "5s"}
    try:
        store = S3Store.from_url(settings.url, config=options or None, client_options=client, retry_config=RETRIES)
    except (BaseError, ValueError) as error:
        raise ConfigError(f"results.url = {settings.url!r} cannot be used: {error}") from error
    return ResultObjects(store, scratch, settings.file_bytes, settings.signed_seconds if settings.signed_urls else None)


@contextmanager
def _reaching(what: str) -> Iterator[None]:
    """Failures of the storage as one of ours: an attempt that meets one fails, and is tried again."""
    try:
        yield
    except (AlreadyExistsError, OutsideOfFolder):
        raise
    except BaseError as error:
        first = str(error).partition("\n")[0]
        raise ResultsUnavailable(f"the storage of results cannot be used ({what}): {first:.300}") from error
