"""Worker replicas as processes of their own, for the demo: what a container platform does."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress

# Short, so that the demo shows how a dead worker is noticed. The config has the numbers of the real system.
FLAGS = (
    *("--lease-seconds", "2", "--heartbeat-seconds", "0.5", "--sweep-seconds", "0.5"),
    *("--shutdown-timeout-seconds", "1"),
)
STOP_SECONDS = 5.0


class Replica:
    """One `rowlock worker` process. What it logs is given to `heard`, line by line."""

    def __init__(self, name: str, heard: Callable[[str], None]) -> None:
        self.name, self._heard = name, heard
        self.killed = False
        self.last_words = ""
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    async def start(self, env: Mapping[str, str]) -> None:
        """Start the process. The database URL goes into its environment, because all users can read a command line."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "rowlock", "worker", "--app", "rowlock_apps.stickers:app", *FLAGS),
            env={**os.environ, **env},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        self._reading = asyncio.create_task(self._read(self._process))

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            self.last_words = line.decode(errors="replace").strip()
            self._heard(self.last_words)

    def kill(self) -> None:
        """Kill the process at once, as a power cut would."""
        self.killed = True
        if self.alive and self._process is not None:
            self._process.kill()

    async def stop(self) -> None:
        """Stop the process as a deploy does: SIGTERM, then SIGKILL if it does not end in time."""
        if self._process is None or self._reading is None:
            return
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._process.wait()
        except TimeoutError:
            self.kill()
            await self._process.wait()
        await self._reading
