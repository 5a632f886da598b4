"""`make path` follows a real job; what it finds must be the path that the README shows."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def printed() -> str:
    command = [sys.executable, "-m", "bench.path"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout


def numbers(printed: str, name: str) -> list[int]:
    """(functions, files, body lines, hops, hops in the engine, hops of the wake-up, files of the spine, …)."""
    found = re.search(rf"^{name}: .*\n  spine: .*", printed, re.MULTILINE)
    assert found is not None, printed
    return [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", found[0])]


@pytest.mark.parametrize("name", ["a plain job", "a job with a source", "a tick of a schedule"])
def test_numbers_of_a_path_are_plausible(printed: str, name: str) -> None:
    functions, files, lines, hops, engine, waking, spine_files, *_ = numbers(printed, name)
    assert 0 < engine + waking < hops <= functions
    assert 0 < spine_files <= files <= functions <= lines


def test_path_of_a_plain_job_leads_through_every_step_in_order(printed: str) -> None:
    plain = printed.split("a job with a source:")[0]
    steps = re.findall(r"^    (\w[\w -]*?) {2,}(\S+)", plain, re.MULTILINE)
    assert [step for step, _ in steps] == ["enqueue", "wake-up", "claim", "user code", "decide", "settle"]
    assert re.search(r"client/tasks\.py +\w+\.enqueue$", plain, re.MULTILINE)
    assert re.search(r"core/policy\.py +decide$", plain, re.MULTILINE)
    for file in ("store/jobs.py", "worker/settler.py", "worker/executor.py"):
        assert file in plain


def test_lines_of_the_folders_add_up(printed: str) -> None:
    counted = printed.split("lines of the package")[1]
    rows = {name: int(lines.replace(",", "")) for name, lines in re.findall(r"^    (\S+) +([\d,]+)$", counted, re.M)}
    together = rows.pop("together")
    assert together == sum(rows.values())
    assert together > 10_000
