"""What sources have answered, in an SQLite file that all processes of a machine share.

A cache may forget and may be away, but it must not lie, and it must not be why a job fails. Whatever goes wrong with
the file is logged once and then means "nothing is cached"; a minute later the file is tried again. Reading takes no
lock: which answers were read is noted in memory and written down together with the next answer.
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
PAUSE_SECONDS = 60.0  # how long a file that cannot be used is left alone
BUSY_SECONDS = 5.0
BATCH = 200  # most rows or pages that one transaction gives up, so that no other process waits long
ROW_BYTES = 128  # what a row takes besides key and value; without it a million small answers would weigh nothing
PAGE_BYTES = 4096
APPLICATION = 0x524C4143  # how a file of ours is told from every other database
BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
SWITCH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}

# `used` counts uses, not seconds: no two are equal, and a clock that is put back makes no new answer the oldest.
# Triggers keep the sum of the sizes, so that nobody has to add up a million rows for each new one.
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
# An answer that is still good; its text is looked at, because SQLite does not notice when a disk changes it.
FIND = "SELECT value FROM answers WHERE key = ? AND expires > ? AND json_valid(value)"
# A new answer is the one used last, and one that was read becomes it.
ADD = "INSERT INTO answers VALUES (?, ?, ?, ?, (SELECT coalesce(max(used), 0) + 1 FROM answers))"
TOUCH = "UPDATE answers SET used = (SELECT max(used) + 1 FROM answers) WHERE key = ?"
FORGET = "DELETE FROM answers WHERE key = ?"
# Some of those that ran out, some of all, and those that were not used for longest.
EXPIRE = "DELETE FROM answers WHERE rowid IN (SELECT rowid FROM answers WHERE expires <= ? ORDER BY expires LIMIT ?)"
CLEAR = "DELETE FROM answers WHERE rowid IN (SELECT rowid FROM answers LIMIT ?)"
OLDEST = "SELECT rowid, size FROM answers ORDER BY used LIMIT ?"


class AnswerCache:
    """Answers by key, each for `ttl` seconds, in at most `max_bytes`. For one event loop; close it in the end."""

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
        if not isinstance(enabled, bool):  # "false" would be true
            raise InvalidArguments(f"AnswerCache(enabled=) must be True or False, not {enabled!r}")
        self.enabled = enabled
        self.hits = self.misses = 0
        self._ttl = _lifetime(ttl, "AnswerCache(ttl=)")
        self._file = _AnswerFile(Path(path).absolute(), max_bytes, clock)  # wherever the process goes later
        self._thread = ThreadPoolExecutor(1, "rowlock-cache")  # one: a connection belongs to the thread that made it
        self._calls: dict[str, asyncio.Future[str]] = {}

    @classmethod
    def from_env(cls, path: str | Path, env: Mapping[str, str] = os.environ, **options: Any) -> AnswerCache:
        """As CACHE_ENABLED and CACHE_TTL_SECONDS say; `options` are `max_bytes` and `clock`."""
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
        """The parts in the order given, as in `ebay|1921|D|1|Morgan|`; a | inside of a part is escaped."""
        texts = ("" if part is None else str(part) for part in parts.values())
        return "|".join(text.replace("\\", "\\\\").replace("|", "\\|") for text in texts)

    async def get(self, key: str) -> Any | None:
        """The answer, or None if there is none that is still good."""
        text = await self._find(_checked(key))
        return None if text is None else json.loads(text)

    async def put(self, key: str, value: Any, ttl: float | timedelta | None = None) -> None:
        """Keep this answer instead of the one before; if it alone is larger than the cache, keep neither."""
        lifetime = self._ttl if ttl is None else _lifetime(ttl, "put(ttl=)")
        await self._do(None, self._file.store, _checked(key), _json(value), lifetime)

    async def forget(self, key: str) -> None:
        """Drop one answer."""
        await self._do(None, self._file.forget, _checked(key))

    async def clear(self) -> None:
        """Drop all answers and give their space back."""
        await self._do(None, self._file.clear)

    async def get_or_call(self, key: str, function: Callable[[], Awaitable[Any]]) -> Any:
        """The cached answer, else that of `function`, which runs once for all who ask at the same time.

        Its error goes to all of them, so that a source that is down is not asked by each in turn. If the one who runs
        it is cancelled, another one runs it. The answer is always as JSON gives it back, cached or not.
        """
        while call := self._calls.get(_checked(key)):
            await asyncio.wait([call])  # `await call` could not tell our own cancelling from the other's
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
            call.exception()  # seen, also if nobody else waits for it
            raise
        finally:
            call.cancel()  # without effect if it has its outcome
            del self._calls[key]

    async def close(self) -> None:
        """Let go of the file; from now on nothing is cached."""
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
    """The file, as the one thread that may use it sees it."""

    def __init__(self, path: Path, max_bytes: int, clock: Callable[[], float]) -> None:
        self._path, self._max_bytes, self._clock = path, max_bytes, clock
        self._connection: sqlite3.Connection | None = None
        self._opened: tuple[int, int] | None = None  # which file that is, whatever its name is now
        self._read_keys: dict[str, None] = {}  # since the last write, the latest at the end
        self._resume_at = 0.0
        self._warned = self._recreated = False

    def safely(self, otherwise: T, work: Callable[..., T], *args: object) -> T:
        """What `work` makes of the connection, or `otherwise` while the file cannot be used."""
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
            # As a script: `execute` takes one step only of a statement without columns, and frees one page.
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
        """Make room by dropping a batch of what was not used for longest; whether more has to go."""
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
                raise OSError(f"it is on a {kind} filesystem, where SQLite's locks do not hold; use a local disk")
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
            raise OSError("it is the database of another program; give the cache a file of its own")
        log_pages = min(max(self._max_bytes // PAGE_BYTES // 8, 32), 1000)
        for pragma in (
            "auto_vacuum = INCREMENTAL",  # before the first table, or never
            "journal_mode = WAL",
            "synchronous = NORMAL",  # a power cut may cost the last answers, but not the file
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
                return  # another process was quicker
            for tail in ("-wal", "-shm"):  # before the file itself: later they could be those of a new one
                Path(f"{self._path}{tail}").unlink(missing_ok=True)
            os.replace(self._path, f"{self._path}.corrupt")
        log.warning("The answer cache %s was corrupt (%s); it is now %s.corrupt", self._path, error, self._path)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One process at a time opens the file or sets it aside, else one could take the new file of another away."""
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
        raise InvalidArguments(f"a key must be whole text, not {key!r:.60}; AnswerCache.key() makes one") from None
    return key


def _json(value: object) -> str:
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArguments(
            f"an answer must be JSON to be cached ({error}); make it of dict, list, str, …"
        ) from None
