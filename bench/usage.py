"""What a process and its children use, from /proc, or from `ps` where there is none."""

import os
import subprocess
from pathlib import Path

PROC = Path("/proc")


def cpu_seconds(pid: int) -> float:
    """Processor time so far, of the process and all below it."""
    if (PROC / "self/stat").exists():
        return sum(sum(map(int, fields(one)[11:13])) for one in family(pid)) / os.sysconf("SC_CLK_TCK")
    return sum(clock(word) for word in ask(pid, "time"))


def resident_mb(pid: int) -> float:
    """Resident memory, of the process and all below it. Pages that they share are counted for each."""
    if (PROC / "self/stat").exists():
        return sum(int(fields(one)[21]) for one in family(pid)) * os.sysconf("SC_PAGE_SIZE") / 1024**2
    return sum(map(int, ask(pid, "rss"))) / 1024


def family(pid: int) -> list[int]:
    """The process and all below it."""
    members, parents = [pid], {}
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = int(fields(int(folder.name))[1])
            except ProcessLookupError:
                continue  # it has ended meanwhile
    for member in members:  # grows while it is walked
        members += [child for child, parent in parents.items() if parent == member]
    return members


def fields(pid: int) -> list[str]:
    """/proc/PID/stat from the state on; the name before it may hold spaces and brackets."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessLookupError(pid) from None


def ask(pid: int, column: str) -> list[str]:
    """`ps` tells only of the process itself."""
    done = subprocess.run(["ps", "-o", f"{column}=", "-p", str(pid)], capture_output=True, text=True)
    if done.returncode != 0:
        raise ProcessLookupError(pid)
    return done.stdout.split()


def clock(word: str) -> float:
    """[[days-]hours:]minutes:seconds as seconds."""
    days, _, rest = word.rpartition("-")
    seconds = 0.0
    for part in rest.split(":"):
        seconds = seconds * 60 + float(part)
    return seconds + 86_400 * int(days or 0)
