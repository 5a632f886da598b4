"""The ledger of a race: what handlers wrote down themselves, and a checker that compares it with the database.

A line is `kind job attempt token worker boottime`. It is written with one `write` on a file opened with O_APPEND, so it
is there even if the process is killed right after. Kinds: `start`; `end`, the handler returned; `stop`, it was
cancelled; anything else is a note of one test.
"""

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

FINAL = ("succeeded", "dead", "cancelled")


@dataclass(frozen=True)
class Entry:
    """One line."""

    kind: str
    job: str
    attempt: int
    token: str
    worker: str
    at: float


@dataclass(frozen=True)
class Row:
    """What the database says of a job in the end."""

    state: str
    attempt: int = 1
    max_attempts: int = 5
    releases: int = 0
    losses: int = 0
    token: str | None = None
    error_code: str | None = None

    @property
    def tries(self) -> int:
        """Attempts that count against `max_attempts`."""
        return self.attempt - self.releases - self.losses


class Ledger:
    """A file that many processes write to."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)

    def write(self, kind: str, job: str, attempt: int, token: str) -> None:
        """Add one line."""
        line = f"{kind} {job} {attempt} {token} {os.getpid()} {boottime():.6f}\n"
        os.write(self._file, line.encode())

    def close(self) -> None:
        os.close(self._file)


def boottime() -> float:
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def read(path: Path | str) -> list[Entry]:
    """All lines so far; the last may be in the middle of being written."""
    try:
        text = Path(path).read_text()
    except FileNotFoundError:
        return []
    entries = []
    for line in text[: text.rfind("\n") + 1].splitlines():
        kind, job, attempt, token, worker, at = line.split(" ")
        entries.append(Entry(kind, job, int(attempt), token, worker, float(at)))
    return entries


def problems(
    accepted: Iterable[str],
    entries: Iterable[Entry],
    rows: Mapping[str, Row],
    lease: float,
    claimed: Mapping[tuple[str, int], float] | None = None,
    settled: Mapping[tuple[str, int], float] | None = None,
) -> list[str]:
    """What is wrong, as sentences. An empty list is a run in which every promise held.

    `claimed` says when the lease of an attempt began, where that is known: on a busy machine its handler writes its
    first line a good while later. `settled` says when the holder of an attempt's lease has given it up by writing an
    outcome: a handler in a child process that is killed for that cannot write down that it has stopped.
    """
    runs: dict[str, dict[str, list[Entry]]] = defaultdict(lambda: defaultdict(list))
    for entry in entries:
        runs[entry.job][entry.kind].append(entry)
    found = [f"{job} ran and was never accepted" for job in set(runs) - set(accepted)]
    for job in accepted:
        row = rows.get(job)
        if row is None:
            found.append(f"{job} is lost: accepted, and not in the database")
            continue
        found += [f"{job} {what}" for what in _state(row) + _starts(runs[job], row) + _outcome(runs[job], row)]
        found += [f"{job} {what}" for what in _overlaps(runs[job], lease, claimed or {}, settled or {})]
    return found


def _state(row: Row) -> list[str]:
    found = []
    if row.state not in FINAL:
        found.append(f"is stuck: {row.state}")
    if row.tries > row.max_attempts:
        found.append(f"used {row.tries} tries of {row.max_attempts}")
    return found


def _starts(run: Mapping[str, list[Entry]], row: Row) -> list[str]:
    found = []
    starts = run.get("start", [])
    numbers = [entry.attempt for entry in starts]
    if len(set(numbers)) < len(numbers):
        found.append(f"started an attempt twice: {sorted(numbers)}")
    if len({entry.token for entry in starts}) < len(set(numbers)):
        found.append("ran two attempts under one token")
    if numbers and max(numbers) > row.attempt:
        found.append(f"started attempt {max(numbers)}, but only {row.attempt} were claimed")
    return found


def _outcome(run: Mapping[str, list[Entry]], row: Row) -> list[str]:
    """A success belongs to the attempt that held the last lease."""
    if row.state != "succeeded":
        return []
    by_token = {entry.token: entry.attempt for entry in run.get("end", [])}
    if row.token not in by_token:
        return ["succeeded under a token with which no handler returned"]
    if by_token[row.token] != row.attempt:
        return [f"succeeded as attempt {by_token[row.token]}, but attempt {row.attempt} held the lease"]
    return []


def _overlaps(
    run: Mapping[str, list[Entry]],
    lease: float,
    claimed: Mapping[tuple[str, int], float],
    settled: Mapping[tuple[str, int], float],
) -> list[str]:
    """An attempt begins after the one before it has returned or was settled by its holder, or a lease after that was
    claimed: never beside it."""
    over = {entry.token: settled.get((entry.job, entry.attempt), float("inf")) for entry in run.get("start", [])}
    over |= {entry.token: entry.at for kind in ("end", "stop") for entry in run.get(kind, [])}
    starts = sorted(run.get("start", []), key=lambda entry: entry.at)
    return [
        f"attempt {after.attempt} began while attempt {before.attempt} had its lease"
        for before, after in pairwise(starts)
        if after.at
        < min(over.get(before.token, float("inf")), claimed.get((before.job, before.attempt), before.at) + lease)
    ]


def unfaulted(accepted: Iterable[str], entries: Iterable[Entry], rows: Mapping[str, Row]) -> list[str]:
    """What must also hold when nothing went wrong: every job started once, in its first attempt."""
    starts: dict[str, int] = defaultdict(int)
    for entry in entries:
        starts[entry.job] += entry.kind == "start"
    return [
        f"{job} started {starts[job]} times in {rows[job].attempt} attempts, {rows[job].losses} of them lost"
        for job in accepted
        if job in rows and (starts[job], rows[job].attempt, rows[job].losses) != (1, 1, 0)
    ]
