"""Notifies systemd, for services with `Type=notify`: started, stopping, and watchdog beats while the event loop turns.

Each message is one datagram to the socket that $NOTIFY_SOCKET names; without the variable nothing is sent. The
variables are removed from the environment, so that processes started by jobs cannot send in this one's name.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import MutableMapping
from contextlib import suppress


class Notifier:
    def __init__(self, environ: MutableMapping[str, str] | None = None) -> None:
        found = os.environ if environ is None else environ
        self._address = found.pop("NOTIFY_SOCKET", "")
        microseconds, process = found.pop("WATCHDOG_USEC", ""), found.pop("WATCHDOG_PID", "")
        watched = microseconds.isdecimal() and process in ("", str(os.getpid()))
        self._beat = int(microseconds) / 2_000_000 if watched else 0.0  # half of the allowed interval
        self._beating: asyncio.Task[None] | None = None

    def ready(self) -> None:
        """The process has started: notify systemd, and start the watchdog beats if it wants them."""
        self._send("READY=1")
        if self._address and self._beat and self._beating is None:
            self._beating = asyncio.get_running_loop().create_task(self._keep_beating())

    def stopping(self) -> None:
        """The process has begun to stop. The watchdog beats go on."""
        self._send("STOPPING=1")

    def close(self) -> None:
        if self._beating is not None:
            self._beating.cancel()

    async def _keep_beating(self) -> None:
        while True:
            self._send("WATCHDOG=1")
            await asyncio.sleep(self._beat)

    def _send(self, message: str) -> None:
        if not self._address:
            return
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sending:
            sending.setblocking(False)  # a service manager that does not read must not block this process
            sending.sendto(message.encode(), address)
