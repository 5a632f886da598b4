"""`make path` follows a real job; what it finds must be the path that the README and the page about it show."""

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
    for file in ("store/jobs/settle.py", "worker/settle/settler.py", "worker/attempt/executor.py"):
        assert file in plain


def spine(printed: str, name: str) -> list[str]:
    """The functions of one way outside of the engines, in order, as the pages write them: `file: function`."""
    following = printed.partition(f"{name}: ")[2]
    part = re.split(r"^\w.*: \d[\d,]* functions|^lines of the package", following, flags=re.M)[0]
    found = re.findall(r"^ {4}.{11}(\S+\.py) +(\S+)$", part, re.MULTILINE)
    assert found, printed
    return [f"{file}: {function}" for file, function in found if not file.startswith("store/engine/")]


def test_the_readme_shows_the_path_of_a_plain_job_in_the_order_in_which_it_is_run(printed: str) -> None:
    section = (ROOT / "README.md").read_text().partition("## The path of one job\n")[2].partition("\n## ")[0]
    shown = re.findall(r"`([\w/]+\.py: [\w.]+)`", section)
    assert len(shown) >= 9
    way = spine(printed, "a plain job")
    assert [name for name in way if name in shown] == shown


@pytest.mark.parametrize("name", ["a plain job", "a job with a source", "a tick of a schedule"])
def test_the_page_about_the_path_names_every_function_on_it(printed: str, name: str) -> None:
    page = (ROOT / "docs" / "explanation" / "path.md").read_text()
    named = set(re.findall(r"`([\w/]+\.py: [\w.]+)`", page))
    assert [step for step in spine(printed, name) if step not in named] == []


def test_lines_of_the_folders_add_up(printed: str) -> None:
    counted = printed.split("lines of the package")[1]
    rows = {name: int(lines.replace(",", "")) for name, lines in re.findall(r"^    (\S+) +([\d,]+)$", counted, re.M)}
    together = rows.pop("together")
    assert together == sum(rows.values())
    assert together > 10_000
