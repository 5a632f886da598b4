"""A cache for answers of sources, in an SQLite file that all processes of a machine share.

The cache may lose answers and may be unavailable, but it must never return a wrong answer or make a job fail. An error
of the file is logged once, and for a minute every lookup is a miss; then the file is tried again. Reading takes no
write lock: which answers were read is kept in memory, and stored (for the LRU order) with the next new answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from rowlock import ConfigError, InvalidArguments, network_filesystem

log = logging.getLogger("rowlock.cache")
T = TypeVar("T")

TTL_SECONDS, MAX_TTL_SECONDS, MAX_BYTES = 3600.0, 3_200_000_000, 64 * 1024 * 1024
PAUSE_SECONDS = 60.0  # after an error, the file is not tried again for this long
BUSY_SECONDS = 5.0
BATCH = 200  # most rows or pages that one transaction deletes, so that other processes wait only briefly
ROW_BYTES = 128  # overhead of a row, so that a million tiny answers count towards max_bytes
PAGE_BYTES = 4096
APPLICATION = 0x524C4143  # the application_id that marks a file as an answer cache ("RLAC")
BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
SWITCH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}

# `used` is a counter, not a time: values are unique, and setting the clock back cannot make a new answer the oldest.
# Triggers maintain the sum of all sizes, so that storing an answer does not have to add up a million rows.
SCHEMA = f"""
BEGIN IMMEDIATE;
PRAGMA application_id = {APPLICATION};
CREATE TABLE IF NOT EXISTS answers
    (key TEXT PRIMARY KEY, value TEXT NOT NULL, size INTEGER NOT NULL, expires REAL NOT NULL, used INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS answers_expires ON answers (expires);
CREATE INDEX IF NOT EXISTS answers_used ON answers (used);
CREATE TABLE IF NOT EXISTS total (bytes INTEGER NOT NULL);
INSERT INTO total SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM total);
CREATE TRIGGER IF NOT EXISTS answer_added AFTER INSERT ON answers
    BEGIN UPDATE total SET bytes = bytes + new.size; END;
CREATE TRIGGER IF NOT EXISTS answer_deleted AFTER DELETE ON answers
    BEGIN UPDATE total SET bytes = bytes - old.size; END;
COMMIT;
"""
# An answer that has not expired. json_valid, because SQLite does not notice when a disk has corrupted the text.
FIND = "SELECT value FROM answers WHERE key = ? AND expires > ? AND json_valid(value)"
# ADD and TOUCH give an answer the largest `used`: it becomes the most recently used one.
ADD = "INSERT INTO answers VALUES (?, ?, ?, ?, (SELECT coalesce(max(used), 0) + 1 FROM answers))"
TOUCH = "UPDATE answers SET used = (SELECT max(used) + 1 FROM answers) WHERE key = ?"
FORGET = "DELETE FROM answers WHERE key = ?"
# A batch of expired answers, a batch of any answers, and the least recently used answers.
EXPIRE = "DELETE FROM answers WHERE rowid IN (SELECT rowid FROM answers WHERE expires <= ? ORDER BY expires LIMIT ?)"
CLEAR = "DELETE FROM answers WHERE rowid IN (SELECT rowid FROM answers LIMIT ?)"
OLDEST = "SELECT rowid, size FROM answers ORDER BY used LIMIT ?"


class AnswerCache:
    """Keeps answers by key for `ttl` seconds, in at most `max_bytes`. Use it in one event loop, and `close` it."""

    def __init__(
        self,
        path: str | Path,
        *,
        ttl: float | timedelta = TTL_SECONDS,
        enabled: bool = True,
        max_bytes: int = MAX_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not isinstance(max_bytes, int) or max_bytes < 1:
            raise InvalidArguments(f"AnswerCache(max_bytes=) must be a whole number above zero, not {max_bytes!r}")
        if not isinstance(enabled, bool):  # the text "false" would count as true
            raise InvalidArguments(f"AnswerCache(enabled=) must be True or False, not {enabled!r}")
        self.enabled = enabled
        self.hits = self.misses = 0
        self._ttl = _lifetime(ttl, "AnswerCache(ttl=)")
        self._file = _AnswerFile(Path(path).absolute(), max_bytes, clock)  # the process may chdir later
        # One thread: an SQLite connection may be used only in the thread that opened it.
        self._thread = ThreadPoolExecutor(1, "rowlock-cache")
        self._calls: dict[str, asyncio.Future[str]] = {}

    @classmethod
    def from_env(cls, path: str | Path, env: Mapping[str, str] = os.environ, **options: Any) -> AnswerCache:
        """A cache configured by the variables CACHE_ENABLED and CACHE_TTL_SECONDS; `options`: `max_bytes`, `clock`."""
        switch, ttl = env.get("CACHE_ENABLED", "true"), env.get("CACHE_TTL_SECONDS", str(TTL_SECONDS))
        enabled = SWITCH.get(switch.strip().lower())
        if enabled is None:
            raise ConfigError(f"CACHE_ENABLED = {switch!r} (environment): must be true or false; correct or unset it")
        try:
            lifetime = _lifetime(float(ttl), "CACHE_TTL_SECONDS")
        except ValueError:
            must = "must be a number of seconds above zero; correct or unset it"
            raise ConfigError(f"CACHE_TTL_SECONDS = {ttl!r} (environment): {must}") from None
        return cls(path, ttl=lifetime, enabled=enabled, **options)

    @staticmethod
    def key(**parts: object) -> str:
        """A key made of the values in the order given, such as `ebay|1921|D|1|Morgan|`; a | in a value is escaped."""
        texts = ("" if part is None else str(part) for part in parts.values())
        return "|".join(text.replace("\\", "\\\\").replace("|", "\\|") for text in texts)

    async def get(self, key: str) -> Any | None:
        """The cached answer; None if there is none, or it has expired."""
        text = await self._find(_checked(key))
        return None if text is None else json.loads(text)

    async def put(self, key: str, value: Any, ttl: float | timedelta | None = None) -> None:
        """Store an answer and remove the old one. An answer that is larger than `max_bytes` is not stored."""
        lifetime = self._ttl if ttl is None else _lifetime(ttl, "put(ttl=)")
        await self._do(None, self._file.store, _checked(key), _json(value), lifetime)

    async def forget(self, key: str) -> None:
        """Drop one answer."""
        await self._do(None, self._file.forget, _checked(key))

    async def clear(self) -> None:
        """Drop all answers and give their space back."""
        await self._do(None, self._file.clear)

    async def get_or_call(self, key: str, function: Callable[[], Awaitable[Any]]) -> Any:
        """The cached answer, or else the result of `function`, which is then cached.

        Concurrent callers with one key share one call of `function`. If it raises, all of them get the error, so that a
        source that is down is not called once by each. If the caller that runs it is cancelled, another caller runs it.
        The answer always passes through JSON, cached or not: a tuple comes back as a list.
        """
        while call := self._calls.get(_checked(key)):
            await asyncio.wait([call])  # not `await call`: a cancellation of us and of `call` would look alike
            if not call.cancelled():
                self._count(call.exception() is None)
                return json.loads(call.result())
        call = self._calls[key] = asyncio.get_running_loop().create_future()
        try:
            text = await self._find(key)
            if text is None:
                text = _json(await function())
                await self._do(None, self._file.store, key, text, self._ttl)
            call.set_result(text)
            return json.loads(text)
        except Exception as error:
            call.set_exception(error)
            call.exception()  # marks the error as retrieved: asyncio would log it if nobody else waits
            raise
        finally:
            call.cancel()  # no effect if it already has a result or an error
            del self._calls[key]

    async def close(self) -> None:
        """Close the file. Afterwards nothing is cached any more."""
        if self.enabled:
            self.enabled = False
            await asyncio.get_running_loop().run_in_executor(self._thread, self._file.close)
        self._thread.shutdown(wait=False)

    async def _find(self, key: str) -> str | None:
        text = await self._do(None, self._file.find, key)
        self._count(text is not None)
        return text

    def _count(self, hit: bool) -> None:
        self.hits, self.misses = self.hits + hit, self.misses + (not hit)

    async def _do(self, otherwise: T, work: Callable[..., T], *args: object) -> T:
        if not self.enabled:
            return otherwise
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._file.safely, otherwise, work, *args)


class _AnswerFile:
    """The SQLite file. All methods run on the one thread of the cache."""

    def __init__(self, path: Path, max_bytes: int, clock: Callable[[], float]) -> None:
        self._path, self._max_bytes, self._clock = path, max_bytes, clock
        self._connection: sqlite3.Connection | None = None
        self._opened: tuple[int, int] | None = None  # device and inode of the open file
        self._read_keys: dict[str, None] = {}  # keys read since the last write, most recent last
        self._resume_at = 0.0
        self._warned = self._recreated = False

    def safely(self, otherwise: T, work: Callable[..., T], *args: object) -> T:
        """The result of `work(connection, …)`; `otherwise` while the file cannot be used. Replaces a corrupt file."""
        if self._clock() < self._resume_at:
            return otherwise
        try:
            try:
                return work(self._connected(), *args)
            except sqlite3.DatabaseError as error:
                if self._recreated or getattr(error, "sqlite_errorcode", 0) & 0xFF not in BROKEN:
                    raise
                self._set_aside(error)
                return work(self._connected(), *args)
        except (sqlite3.Error, OSError) as error:
            self._disconnect()
            self._resume_at = self._clock() + PAUSE_SECONDS
            if not self._warned:
                self._warned = True
                log.warning("The answer cache %s cannot be used and is off: %s", self._path, error)
            return otherwise

    def find(self, connection: sqlite3.Connection, key: str) -> str | None:
        row = connection.execute(FIND, (key, self._clock())).fetchone()
        if row is None:
            return None
        self._read_keys.pop(key, None)
        self._read_keys[key] = None
        if len(self._read_keys) >= BATCH:
            with _transaction(connection):
                self._note_reads(connection)
        return str(row[0])

    def store(self, connection: sqlite3.Connection, key: str, text: str, ttl: float) -> None:
        now, size = self._clock(), len(key.encode()) + len(text) + ROW_BYTES
        fits = size <= self._max_bytes
        with _transaction(connection):
            self._note_reads(connection)
            connection.execute(FORGET, (key,))
            connection.execute(EXPIRE, (now, BATCH))
            more = self._evict(connection, size if fits else 0)
            if fits:
                connection.execute(ADD, (key, text, size, now + ttl))
        while more:
            with _transaction(connection):
                more = self._evict(connection, 0)
        (free,) = connection.execute("PRAGMA freelist_count").fetchone()
        if free * PAGE_BYTES > self._max_bytes // 8:
            # executescript: `execute` would run only one step of this statement, which frees only one page.
            connection.executescript(f"PRAGMA incremental_vacuum({BATCH})")

    def forget(self, connection: sqlite3.Connection, key: str) -> None:
        connection.execute(FORGET, (key,))

    def clear(self, connection: sqlite3.Connection) -> None:
        while connection.execute(CLEAR, (BATCH,)).rowcount:
            pass
        connection.executescript("PRAGMA incremental_vacuum")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        if self._connection:
            with contextlib.suppress(sqlite3.Error), _transaction(self._connection):
                self._note_reads(self._connection)
        self._disconnect()

    def _note_reads(self, connection: sqlite3.Connection) -> None:
        connection.executemany(TOUCH, [(key,) for key in self._read_keys])
        self._read_keys.clear()

    def _evict(self, connection: sqlite3.Connection, room: int) -> bool:
        """Delete a batch of least recently used answers to free `room` bytes. True if more must be deleted."""
        (total,) = connection.execute("SELECT bytes FROM total").fetchone()
        over, dropped = total + room - self._max_bytes, []
        for rowid, size in connection.execute(OLDEST, (BATCH,)).fetchall() if over > 0 else ():
            if over > 0:
                over -= size
                dropped.append((rowid,))
        connection.executemany("DELETE FROM answers WHERE rowid = ?", dropped)
        return over > 0 and bool(dropped)

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if kind := network_filesystem(self._path.parent):
                raise OSError(f"the file is on a {kind} filesystem, where SQLite's locks do not work; use a local disk")
            with self._alone():
                self._opened = _identity(self._path)
                self._connection = sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None)
                self._prepare(self._connection)
                self._opened = _identity(self._path)
        return self._connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        (owner,) = connection.execute("PRAGMA application_id").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if owner != APPLICATION and (owner or tables):
            raise OSError("the file is the database of another program; give the cache its own file")
        log_pages = min(max(self._max_bytes // PAGE_BYTES // 8, 32), 1000)
        for pragma in (
            "auto_vacuum = INCREMENTAL",  # takes effect only before the first table is created
            "journal_mode = WAL",
            "synchronous = NORMAL",  # a power cut may lose the last answers, but does not corrupt the file
            f"wal_autocheckpoint = {log_pages}",
            f"journal_size_limit = {log_pages * PAGE_BYTES}",
        ):
            connection.execute(f"PRAGMA {pragma}").fetchall()
        connection.executescript(SCHEMA)

    def _set_aside(self, error: sqlite3.DatabaseError) -> None:
        self._recreated = True
        self._disconnect()
        with self._alone():
            if _identity(self._path) != self._opened:
                return  # another process has replaced the file already
            for tail in ("-wal", "-shm"):  # first: later they might belong to a new file
                Path(f"{self._path}{tail}").unlink(missing_ok=True)
            os.replace(self._path, f"{self._path}.corrupt")
        log.warning("The answer cache %s was corrupt (%s); it is now %s.corrupt", self._path, error, self._path)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold a lock while opening or replacing the file, so that no process moves away the new file of another."""
        lock = sqlite3.connect(f"{self._path}.lock", timeout=BUSY_SECONDS, isolation_level=None)
        with contextlib.closing(lock):
            lock.execute("BEGIN EXCLUSIVE")
            yield

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection:
            with contextlib.suppress(sqlite3.Error):
                connection.close()


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    with connection:
        yield


def _identity(path: Path) -> tuple[int, int] | None:
    with contextlib.suppress(FileNotFoundError):
        found = path.stat()
        return found.st_dev, found.st_ino
    return None


def _lifetime(ttl: float | timedelta, what: str) -> float:
    number = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise InvalidArguments(f"{what} must be seconds or a timedelta, not {ttl!r}")
    if not 0 < number <= MAX_TTL_SECONDS:
        must = "must be above zero and at most 100 years"
        raise InvalidArguments(f"{what} {must}, not {ttl!r}; to cache nothing, use enabled=False")
    return float(number)


def _checked(key: str) -> str:
    try:
        key.encode()
    except (AttributeError, UnicodeEncodeError):
        raise InvalidArguments(f"a key must be valid text, not {key!r:.60}; AnswerCache.key() makes one") from None
    return key


def _json(value: object) -> str:
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArguments(
            f"an answer must be JSON to be cached ({error}): dict, list, str, int, float, bool or None"
        ) from None
