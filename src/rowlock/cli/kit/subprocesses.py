"""Child processes that run this command line with some options changed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from asyncio.subprocess import Process
from collections.abc import Sequence


def same_command(*changed: str) -> list[str]:
    """This process's command line with options appended; where an option is given twice, the last value counts."""
    return [sys.executable, "-m", "rowlock", *sys.argv[1:], *changed, "--parent", str(os.getpid())]


async def start(command: Sequence[str]) -> Process:
    """Start a child in its own session, so that Ctrl-C reaches only this process, which passes it on once."""
    return await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL, start_new_session=True)


def send_signal(child: Process, number: int) -> None:
    """Send a signal to a child that may just have ended."""
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(number)
