"""How one process wakes another on SQLite: by a datagram socket for each worker, in a private temporary folder.

Wake-ups are best effort: missing sockets are skipped, and every worker also polls.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import socket
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path

from rowlock.store.engine.operation import Wake

log = logging.getLogger("rowlock.store")

WARN_SECONDS = 60.0
_warned = -WARN_SECONDS  # time of the last warning


def _folder(file: Path) -> Path:
    name = hashlib.sha256(str(file).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"rowlock-{os.getuid()}-{name}"


class DatagramWakeups:
    """The wake-ups of one worker. `address` is stored in its row."""

    def __init__(self, sock: socket.socket, address: str, on_wakeup: Callable[[str], None]) -> None:
        self.address: str | None = address
        self._socket, self._on_wakeup = sock, on_wakeup
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock.fileno(), self._read)

    @classmethod
    def open(cls, file: Path, on_wakeup: Callable[[str], None]) -> DatagramWakeups | NoWakeups:
        """Bind a socket for a worker on `file`. If the platform has no Unix sockets, the worker polls."""
        if not hasattr(socket, "AF_UNIX") or not hasattr(os, "getuid"):
            return NoWakeups()
        try:
            folder = _folder(file)
            folder.mkdir(mode=0o700, exist_ok=True)
            _remove_dead_sockets(folder)
            address = str(folder / f"{uuid.uuid4().hex[:12]}.bell")
            return cls(_bound(address), address, on_wakeup)
        except OSError as error:  # no writable temporary folder, a path that is too long, no file descriptor left
            log.warning("no wake-ups, new jobs are found by polling: %s", error)
            return NoWakeups()

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            while True:
                self._on_wakeup(self._socket.recv(64).decode(errors="replace"))

    async def close(self) -> None:
        """Close and remove the socket."""
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        if self.address:
            with contextlib.suppress(OSError):
                os.unlink(self.address)
            with contextlib.suppress(OSError):
                os.rmdir(os.path.dirname(self.address))


def _bound(address: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        sock.setblocking(False)
        sock.bind(address)
    except BaseException:
        sock.close()
        raise
    return sock


def _remove_dead_sockets(folder: Path) -> None:
    """Remove the sockets of processes that were killed before they could remove them."""
    for path in folder.glob("*.bell"):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            try:
                sock.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()


class NoWakeups:
    """No wake-ups: the worker polls."""

    address: str | None = None

    async def close(self) -> None:
        """Nothing to close."""


def send_all(wakes: Iterable[Wake]) -> None:
    """Send the wake-ups of operations whose transaction has committed."""
    for wake in wakes:
        send_wakeups(wake.addresses, wake.message)


def send_wakeups(addresses: Iterable[str], message: str) -> None:
    """Send `message` ("work" or "cancel") to these workers, skipping sockets that are gone or whose buffer is full.
    Never raises, because the transaction behind the wake-up has committed."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            for address in addresses:
                with contextlib.suppress(OSError):
                    sock.sendto(message.encode(), address)
    except OSError as error:
        global _warned
        if time.monotonic() > _warned + WARN_SECONDS:
            _warned = time.monotonic()
            log.warning("workers are not woken and find new jobs by polling: %s", error)
