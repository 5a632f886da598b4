"""The SQLite file of the answer cache: finding, storing and evicting answers, and replacing a corrupt file.

Reading takes no write lock: which answers were read is kept in memory, and stored (for the LRU order) with the next new
answer.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

log = logging.getLogger("rowlock.cache")
T = TypeVar("T")

PAUSE_SECONDS = 60.0  # after an error, the file is not tried again for this long
BUSY_SECONDS = 5.0
BATCH = 200  # most rows or pages that one transaction deletes, so that other processes wait only briefly
ROW_BYTES = 128  # overhead of a row, so that a million tiny answers count towards max_bytes
PAGE_BYTES = 4096
APPLICATION = 0x524C4143  # the application_id that marks a file as an answer cache ("RLAC")
BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

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


class AnswerFile:
    """The SQLite file. All methods run on the one thread of the cache."""

    def __init__(self, path: Path, max_bytes: int, clock: Callable[[], float]) -> None:
        self._path, self._max_bytes, self._clock = path, max_bytes, clock
        self._connection: sqlite3.Connection | None = None
        self._opened: tuple[int, int] | None = None  # device and inode of the open file
        self._read_keys: dict[str, None] = {}  # keys read since the last write, most recent last
        self._resume_at = 0.0
        self._warned = self._recreated = False

    def safely(self, work: Callable[..., T], *args: object) -> T | None:
        """The result of `work(connection, …)`; None while the file cannot be used. Replaces a corrupt file."""
        if self._clock() < self._resume_at:
            return None
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
            return None

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
            with self._alone():
                _create_private(self._path)
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
        _create_private(Path(f"{self._path}.lock"))
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


def _create_private(path: Path) -> None:
    """Create an empty file that only its owner can read, unless there is a file already. SQLite would leave the mode to
    the umask. If the file cannot be created, SQLite's own attempt raises the reason."""
    with contextlib.suppress(OSError):
        os.close(os.open(os.path.realpath(path), os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))


def _identity(path: Path) -> tuple[int, int] | None:
    with contextlib.suppress(FileNotFoundError):
        found = path.stat()
        return found.st_dev, found.st_ino
    return None
