"""The bench's own arithmetic, and one adapter from end to end: figures that nobody checks are worth nothing."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.adapter import Tally, read_tally
from bench.stats import paired, percentile, spread

ROOT = Path(__file__).parents[2]


def test_ratios_are_taken_within_a_round() -> None:
    # The second round was twice as slow for both: no ratio may mix it with another round.
    assert paired({0: 100.0, 1: 50.0, 2: 90.0}, {0: 50.0, 1: 25.0}) == [2.0, 2.0]
    assert paired({0: 1.0}, {1: 1.0}) == []


def test_the_median_decides_and_the_extremes_are_shown() -> None:
    found = spread([3.0, 1.0, 10.0])
    assert found is not None
    assert (found.median, found.low, found.high, found.rounds) == (3.0, 1.0, 10.0, 3)
    assert spread([]) is None


@pytest.mark.parametrize(("share", "value"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.001, 1)])
def test_percentiles(share: float, value: float) -> None:
    assert percentile(range(1, 101), share) == value


def test_a_tally_is_read_by_another_process(tmp_path: Path) -> None:
    slot, latencies = tmp_path / "slot", tmp_path / "latencies"
    assert read_tally(slot) == (0, 0, 0)
    tally = Tally(slot, latencies)
    began = time.monotonic_ns()
    tally.handled(sent_ns=began)
    tally.handled()
    assert read_tally(slot)[0] == 0  # not before it is published
    tally.publish()
    count, first, last = read_tally(slot)
    assert count == 2
    assert began <= first <= last
    assert latencies.stat().st_size == 8  # one was sent with a time


async def test_an_adapter_runs_as_a_program(tmp_path: Path) -> None:
    url, slot = f"sqlite:///{tmp_path}/jobs.db", tmp_path / "slot"

    def start(verb: str, *more: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "bench.systems.rowlock_variants", verb, "--url", url, *more]
        return subprocess.Popen(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=-1, text=True)

    for verb, *more in (["setup"], ["bulk", "--jobs", "300"], ["enqueue", "--jobs", "20"]):
        program = start(verb, *more)
        said, _ = program.communicate(timeout=60)
        assert program.returncode == 0, verb
        assert verb == "setup" or json.loads(said)["seconds"] > 0
    worker = start("work", "--slot-file", str(slot))
    try:
        deadline = time.monotonic() + 30
        while read_tally(slot)[0] < 325:  # five of them to warm up
            assert time.monotonic() < deadline, f"{read_tally(slot)[0]} handled"
            await asyncio.sleep(0.02)
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=30)
    assert worker.returncode == 0
    assert read_tally(slot)[0] == 325
