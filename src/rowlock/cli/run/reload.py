"""For development: run a command in a child process, and restart it when a Python file changes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from rowlock.cli.run import supervisor
from rowlock.core.errors import InvalidArguments
from rowlock.worker.lifecycle import on_stop_signals

LOOK_SECONDS = 0.5
PATIENCE = (3.0, 7.0)  # seconds to wait after the first and after the second SIGTERM, before SIGKILL
IGNORED = frozenset({"node_modules", "__pycache__"})


class Reloader:
    def __init__(self, command: Sequence[str], folders: Sequence[Path]) -> None:
        for folder in folders:
            if not folder.is_dir():
                raise InvalidArguments(f"--reload-dir {str(folder)!r}: no such folder")
        self._command, self._folders = command, folders
        self._child: Process | None = None
        self._stopping = asyncio.Event()

    async def run(self) -> int:
        """Run until a stop signal; returns the child's exit code."""
        on_stop_signals(self._stop)
        seen = snapshot(self._folders)
        self._child = await supervisor.start(self._command)
        while not self._stopping.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), LOOK_SECONDS)
            now = snapshot(self._folders)
            if now == seen or self._stopping.is_set():
                continue
            first = min(file for file, _ in seen.items() ^ now.items())
            print(f"rowlock: {first} changed, restarting", file=sys.stderr, flush=True)
            await end(self._child)
            if not self._stopping.is_set():
                seen, self._child = now, await supervisor.start(self._command)
        code = await self._child.wait()
        return 0 if code == -signal.SIGTERM else code

    def _stop(self) -> None:
        self._stopping.set()
        if self._child:
            supervisor.send_signal(self._child, signal.SIGTERM)


async def end(child: Process) -> None:
    """Stop a child: a SIGTERM lets its jobs finish, a second one releases them, and finally SIGKILL ends it."""
    for patience in PATIENCE:
        supervisor.send_signal(child, signal.SIGTERM)
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(child.wait()), patience)
            return
    supervisor.send_signal(child, signal.SIGKILL)
    await child.wait()


def snapshot(folders: Sequence[Path]) -> dict[Path, int]:
    found = {}
    for file in (file for folder in folders for file in python_files(folder)):
        with suppress(OSError):  # removed in the meantime
            found[file] = file.stat().st_mtime_ns
    return found


def python_files(folder: Path) -> Iterator[Path]:
    """All .py files below a folder, except in hidden folders, virtual environments and installed packages."""
    for here, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not (name.startswith(".") or name in IGNORED)]
        if "pyvenv.cfg" in files:
            folders.clear()
            continue
        yield from (Path(here, name) for name in files if name.endswith(".py"))
