"""A small connection pool for PostgreSQL: connections are opened on demand, kept open, and reused last in, first out.

asyncpg's own pool starts a task for each acquire with a timeout and for each release. Together they would cost a single
enqueue as much as its statement does.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from rowlock.core.errors import StoreError
from rowlock.store.engine import forking
from rowlock.store.engine.postgres.connector import Connector

IDLE_SECONDS = 300.0  # an unused connection is closed after this
CLOSE_SECONDS = 5.0
CANCEL_SECONDS = 1.0  # how long to wait for the server to confirm that it has cancelled a statement


class Connections:
    """At most `size` connections of one kind."""

    def __init__(self, connector: Connector, size: int) -> None:
        self._connector, self.size = connector, size
        self.place = connector.place
        self._room = asyncio.Semaphore(size)
        self._idle: deque[tuple[float, Any]] = deque()  # (since, connection), the longest idle first
        self._open: set[Any] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self._over: str | None = None  # once closed, the error message for later callers
        forking.watch(self)

    def widen(self, size: int) -> None:
        """Raise the limit on open connections to `size`, if it is lower."""
        for _ in range(size - self.size):
            self._room.release()
        self.size = max(self.size, size)

    @property
    def crowded(self) -> bool:
        """Whether every connection that may be open is in use."""
        return self._room.locked()

    async def take(self, timeout: float) -> Any:
        """A connection for the caller's exclusive use. TimeoutError if none is free within `timeout` seconds."""
        if self._over is not None:
            raise StoreError(self._over)
        if self._room.locked():
            await self._wait_for_room(timeout)
        else:
            await self._room.acquire()  # does not wait
        while self._idle:
            connection = self._idle.pop()[1]
            if not connection.is_closed():
                return connection
            self._open.discard(connection)
        try:
            if self._over is not None:  # closed while this caller waited
                raise StoreError(self._over)
            return await self._connect(timeout)
        except BaseException:
            self._room.release()
            raise

    async def _connect(self, timeout: float) -> Any:
        connection = await self._connector.connect(timeout)
        if self._over is not None:
            connection.terminate()
            raise StoreError(self._over)
        self._open.add(connection)
        return connection

    async def _wait_for_room(self, timeout: float) -> None:
        try:
            async with asyncio.timeout(timeout):
                await self._room.acquire()
        except TimeoutError:
            raise TimeoutError(
                f"all {self.size} connections to {self.place} are in use, and none became free in {timeout:g} s"
            ) from None

    def give_back(self, connection: Any) -> None:
        """Return a connection to the pool. Closes it if it is broken, still in a transaction, or marked `retired`."""
        self._room.release()
        closed = connection.is_closed()
        if not closed and (connection.retired or connection.is_unfinished()):
            connection.terminate()
            closed = True
        if closed:
            self._open.discard(connection)
            return
        now = time.monotonic()
        self._idle.append((now, connection))
        while self._idle and self._idle[0][0] < now - IDLE_SECONDS:
            self._close_soon(self._idle.popleft()[1])

    @asynccontextmanager
    async def one(self, timeout: float = 30.0) -> AsyncIterator[Any]:
        """A connection for the duration of a block."""
        connection = await self.take(timeout)
        try:
            yield connection
        finally:
            self.give_back(connection)

    def retire(self) -> None:
        """Close every connection (those in use as soon as they are returned): new ones may lead to another server."""
        for connection in self._open:
            connection.retired = True
        while self._idle:
            self._close_soon(self._idle.popleft()[1])

    def _close_soon(self, connection: Any) -> None:
        task = asyncio.get_running_loop().create_task(self._close(connection))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _close(self, connection: Any) -> None:
        self._open.discard(connection)
        try:
            await connection.close(timeout=CLOSE_SECONDS)
        except Exception:  # the server is gone, or does not answer
            connection.terminate()

    def before_fork(self) -> None:
        """Nothing to do in the parent."""

    def after_fork(self, child: bool) -> None:
        """After a fork the child shares the sockets with its parent, so its copies of the connections must not send
        anything to the server."""
        if child:
            self._over = "this store was opened before a fork; open it again in the child"
            self.cut()

    def cut(self) -> None:
        """Detach every connection from its socket without sending anything to the server. Needs no event loop."""
        for connection in self._open:
            cut(connection)

    def abandon(self) -> None:
        """Close without an event loop, after the one of these connections has ended."""
        self._over = "this store is closed"
        self.cut()
        self._open.clear()
        self._idle.clear()

    async def close(self) -> None:
        """Wait up to CLOSE_SECONDS for connections in use, then close all. A dead server can't make it hang."""
        if self._over is not None:
            return
        self._over = "this store is closed"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                while len(self._idle) < len(self._open):
                    await asyncio.sleep(0.01)
        in_use = self._open - {connection for _, connection in self._idle}
        for connection in in_use:
            connection.terminate()
        await asyncio.gather(*(self._close(connection) for _, connection in self._idle), *self._closing)
        self._idle.clear()
        self._open.clear()


async def cancel_and_close(connection: Any, timeout: float) -> None:
    """Cancel the statement that is running on a connection, and close the connection. Otherwise the server would finish
    and commit the statement after its caller has given up. Waits for the server for at most a second."""
    try:
        await connection.close(timeout=min(timeout, CANCEL_SECONDS))
    except Exception:
        connection.terminate()


def cut(connection: Any) -> None:
    """Replace a connection's socket by /dev/null under the same descriptor. The descriptor must stay in use until the
    connection is garbage-collected. Only then do asyncpg and the event loop touch it (to send a Terminate message, to
    remove it from epoll), and if it were reused, that would hit another file."""
    sock = connection._transport.get_extra_info("socket") if connection._transport is not None else None
    if sock is not None and sock.fileno() >= 0:
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        os.dup2(nothing, sock.fileno(), inheritable=False)
        os.close(nothing)
