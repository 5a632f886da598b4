"""Runs several worker processes: starts them, restarts them when they die, and stops them together."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Callable, Sequence
from contextlib import suppress

from rowlock.cli.kit.failures import FAILED
from rowlock.worker.lifecycle import on_stop_signals
from rowlock.worker.systemd import Notifier

log = logging.getLogger("rowlock.supervisor")
FIRST_DELAY = 0.2
LONGEST_DELAY = 30.0
QUICK_SECONDS = 10.0  # a child that died sooner after its start died quickly
GIVE_UP_AFTER = 5  # quick deaths in a row


def same_command(*changed: str) -> list[str]:
    """This process's command line plus `changed` options, which win because the last value of an option counts."""
    return [sys.executable, "-m", "rowlock", *sys.argv[1:], *changed, "--parent", str(os.getpid())]


async def start(command: Sequence[str]) -> Process:
    """Start a child in its own session: Ctrl-C must reach only this process, which passes it on once."""
    return await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL, start_new_session=True)


def send_signal(child: Process, number: int) -> None:
    """Send a signal to a child, unless it has ended."""
    if child.returncode is None:
        with suppress(ProcessLookupError):
            child.send_signal(number)


class Supervisor:
    """Keeps `count` children alive until a stop signal, or until a child repeatedly dies right after its start.
    `command` returns the command line of a child, which are numbered from 1."""

    def __init__(self, command: Callable[[int], Sequence[str]], count: int) -> None:
        self._command, self._count = command, count
        self._living: dict[int, Process] = {}
        self._stopping = asyncio.Event()
        self._service = Notifier()

    async def run(self) -> int:
        """Run until all children have ended; returns the exit code."""
        on_stop_signals(self._stop)
        self._service.ready()  # systemd watches this process, which watches the children
        kept = await asyncio.gather(*(self._keep(number) for number in range(1, self._count + 1)))
        return 0 if all(kept) else FAILED

    def _stop(self) -> None:
        """Pass each stop signal to all children as a SIGTERM. Workers count them: finish, release, exit."""
        self._service.stopping()
        self._stopping.set()
        for child in self._living.values():
            send_signal(child, signal.SIGTERM)

    async def _keep(self, number: int) -> bool:
        """Run a child, and restart it when it dies, but not after `rowlock workers drain`. False if it died too often,
        or failed while stopping."""
        quick = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            code = await self._run_one(number)
            if self._stopping.is_set():
                return code in (0, -signal.SIGTERM)  # -SIGTERM: it had not yet installed its signal handlers
            if code == 0:
                log.info("worker process %d has stopped as requested and will not be restarted", number)
                return True
            quick = quick + 1 if time.monotonic() - began < QUICK_SECONDS else 0
            if quick > GIVE_UP_AFTER:
                log.error("worker process %d died %d times in a row; giving up", number, quick)
                self._stop()
                return False
            await self._pause(number, code, quick)
        return True

    async def _run_one(self, number: int) -> int:
        child = await start(self._command(number))
        self._living[number] = child
        log.info("worker process %d started, pid %d", number, child.pid)
        if self._stopping.is_set():  # a stop signal came while this child was starting
            send_signal(child, signal.SIGTERM)
        code = await child.wait()
        del self._living[number]
        return code

    async def _pause(self, number: int, code: int, quick: int) -> None:
        delay = min(LONGEST_DELAY, FIRST_DELAY * 2 ** max(quick - 1, 0))
        log.warning("worker process %d ended with code %d; restarting it in %.1f s", number, code, delay)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), delay)
