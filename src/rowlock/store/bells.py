"""How one process wakes another on SQLite: a datagram socket per worker, in a private folder of the machine.

Ringing is best effort: a bell that is gone is skipped, and every worker also polls.
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

log = logging.getLogger("rowlock.store")

WARN_SECONDS = 60.0
_warned = -WARN_SECONDS  # when


def _folder(file: Path) -> Path:
    name = hashlib.sha256(str(file).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"rowlock-{os.getuid()}-{name}"


class DatagramBell:
    """This worker's bell; `address` is stored with the worker's row."""

    def __init__(self, sock: socket.socket, address: str, heard: Callable[[str], None]) -> None:
        self.address: str | None = address
        self._socket, self._heard = sock, heard
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock.fileno(), self._read)

    @classmethod
    def open(cls, file: Path, heard: Callable[[str], None]) -> DatagramBell | SilentBell:
        """Bind a bell for a worker on `file`; where the platform has no such sockets, polling must do."""
        if not hasattr(socket, "AF_UNIX") or not hasattr(os, "getuid"):
            return SilentBell()
        try:
            folder = _folder(file)
            folder.mkdir(mode=0o700, exist_ok=True)
            _take_down_the_dead(folder)
            address = str(folder / f"{uuid.uuid4().hex[:12]}.bell")
            return cls(_bound(address), address, heard)
        except OSError as error:  # no temporary folder that we may write to, a path too long, no descriptor left
            log.warning("no wake-ups, new jobs are found by polling: %s", error)
            return SilentBell()

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            while True:
                self._heard(self._socket.recv(64).decode(errors="replace"))

    async def close(self) -> None:
        """Take the bell down."""
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


def _take_down_the_dead(folder: Path) -> None:
    """Remove the bells of processes that were killed; nobody else does."""
    for bell in folder.glob("*.bell"):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            try:
                sock.connect(str(bell))
            except ConnectionRefusedError:
                bell.unlink()


class SilentBell:
    """No bell: the worker polls."""

    address: str | None = None

    async def close(self) -> None:
        """Nothing to close."""


def ring(addresses: Iterable[str], what: str) -> None:
    """Say `what` ("work" or "cancel") to these bells. One that is gone or full is passed over; and whoever has no
    descriptor left to ring with has committed all the same."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            for address in addresses:
                with contextlib.suppress(OSError):
                    sock.sendto(what.encode(), address)
    except OSError as error:
        _warn_now_and_then("workers are not woken and find new jobs by polling: %s", error)


def _warn_now_and_then(text: str, *args: object) -> None:
    global _warned
    if time.monotonic() > _warned + WARN_SECONDS:
        _warned = time.monotonic()
        log.warning(text, *args)
