"""How long an import takes, how much memory, and what it leaves for others: in a process of its own.

The figures asked for are 50,000 bookmarks in 10 s, 200 MB, and 50 ms of loop lag at the 99th percentile. The long test
asks for them as they are, on a machine with nothing else to do. The short one runs beside others: it imports a fifth,
and counts the time that the process was given, which may be twice a fifth. Memory and lag do not depend on the number.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from apps.bookmarks.files import large_lines, write_lines

MEASURE = Path(__file__).with_name("measure_import.py")
TRIES = 3


def measured(database: str, file: Path) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, MEASURE, database, file], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, float] = json.loads(done.stdout)
    return found


def try_it(database: str, engine: str, file: Path, number: int, clock: str, seconds: float) -> None:
    found: list[dict[str, float]] = []
    for n in range(TRIES):
        # A second import into PostgreSQL finds the links there; only a SQLite file can be had anew for nothing.
        found.append(measured(f"{database}.{n}" if engine == "sqlite" else database, file))
        best = {name: min(one[name] for one in found) for name in (clock, "peak_mb")}
        lag = min(one["lag_p99"] - one["idle_lag_p99"] for one in found)
        if (best[clock] <= seconds and lag <= 0.05) or engine == "postgres":
            break
    assert (found[0]["items"], found[0]["jobs"], found[0]["done_at_once"]) == (number, number * 0.91, number * 0.09)
    assert best["peak_mb"] <= 200
    assert lag <= 0.05, found
    assert best[clock] <= seconds, found


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_ten_thousand_bookmarks_are_imported_quickly_and_beside_other_work(
    database: str, engine: str, tmp_path: Path
) -> None:
    try_it(database, engine, write_lines(tmp_path / "large.html", large_lines(10_000)), 10_000, "cpu_seconds", 4)


@pytest.mark.soak
def test_fifty_thousand_bookmarks_are_imported_in_ten_seconds(database: str, engine: str, tmp_path: Path) -> None:
    try_it(database, engine, write_lines(tmp_path / "large.html", large_lines(50_000)), 50_000, "seconds", 10)
