"""Process groups: a child process and everything that it has started, which is signalled and awaited together."""

from __future__ import annotations

import os
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path


def signal_group(process: BaseProcess, number: int) -> None:
    """Send a signal to a process and to everything that it has started."""
    if process.pid is None:
        return
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        if process.exitcode is None:  # it has no group of its own yet
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)
    except PermissionError:
        pass


def group_lives(number: int) -> bool:
    """Whether a process group has living members. Zombies do not count: where process 1 is no init, they stay."""
    try:
        os.killpg(number, 0)
        processes = [entry for entry in os.listdir("/proc") if entry.isdigit()]
    except ProcessLookupError:
        return False
    except OSError:  # no permission to signal it, or a system without /proc
        return True
    for process in processes:
        with suppress(OSError):
            # pid (name) state parent group …, where a name may have spaces and brackets
            state, _, group = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[:3]
            if int(group) == number and state not in "ZX":
                return True
    return False
