"""`make path` follows a real job; what it finds must be the path that the README and the page about it show."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.each import each

ROOT = Path(__file__).parents[2]


# The longest that each path may get: hops and files of its spine, then functions and files that a reader opens.
BOUNDS = {
    "a plain job": {"hops": 20, "files": 12, "opened": 40, "opened_files": 19},
    "a job with a source": {"hops": 26, "files": 13, "opened": 66, "opened_files": 25},
    "a tick of a schedule": {"hops": 9, "files": 5, "opened": 22, "opened_files": 8},
    "a list in the dashboard": {"hops": 14, "files": 11, "opened": 28, "opened_files": 12},
    "a job behind Redis": {"hops": 28, "files": 15, "opened": 58, "opened_files": 26},
}
TOGETHER = re.compile(
    r": (?P<ran>\d+) functions in (?P<ran_files>\d+) files.*\n"
    r"  spine: (?P<hops>\d+) hops \((?P<engine>\d+) of them in the engine, (?P<waking>\d+) of the wake-up\)"
    r" in (?P<files>\d+) files.*\n"
    r"  opened by a reader: (?P<opened>\d+) functions in (?P<opened_files>\d+) files"
)


@pytest.fixture(scope="module")
def printed() -> str:
    command = [sys.executable, "-m", "bench.path"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=180).stdout


def numbers(printed: str, name: str) -> dict[str, int]:
    found = re.search("^" + name + TOGETHER.pattern, printed, re.MULTILINE)
    assert found is not None, printed
    return {key: int(number) for key, number in found.groupdict().items()}


@each("name", BOUNDS)
def test_a_path_is_no_longer_than_it_was(printed: str, name: str) -> None:
    found = numbers(printed, name)
    longer = {what: found[what] for what, bound in BOUNDS[name].items() if found[what] > bound}
    assert longer == {}, f"{name} may have {BOUNDS[name]}\n{printed}"


@each("name", BOUNDS)
def test_the_functions_that_a_reader_opens_are_the_spine_and_some_that_ran_beside_it(printed: str, name: str) -> None:
    found, listed = numbers(printed, name), functions(printed, name)
    assert len(listed) == len(set(listed)) == found["opened"]
    assert len({file for _, file, _ in listed}) == found["opened_files"]
    assert len([step for step, _, _ in listed if step != "beside it"]) == found["hops"] < found["opened"] < found["ran"]
    assert len([file for _, file, _ in listed if file.startswith("signals/")]) == 0


def functions(printed: str, name: str) -> list[tuple[str, str, str]]:
    """(step, file, function) of one way, in order; the step is empty where it is that of the line before."""
    following = printed.partition(f"{name}: ")[2]
    part = re.split(r"^\w.*: \d[\d,]* functions|^lines of the package", following, flags=re.M)[0]
    found = re.findall(r"^ {4}(.{10}) (\S+\.py) +(\S+)$", part, re.MULTILINE)
    assert found, printed
    return [(step.strip(), file, function) for step, file, function in found]


def test_path_of_a_plain_job_leads_through_every_step_in_order(printed: str) -> None:
    plain = printed.split("a job with a source:")[0]
    steps = re.findall(r"^    (\w[\w -]*?) {2,}(\S+)", plain, re.MULTILINE)
    assert list(dict.fromkeys(step for step, _ in steps)) == [
        *("enqueue", "wake-up", "claim", "user code", "decide", "settle", "beside it")
    ]
    assert re.search(r"client/tasks/task\.py +\w+\.enqueue$", plain, re.MULTILINE)
    assert re.search(r"core/policy\.py +decide$", plain, re.MULTILINE)
    for file in ("store/jobs/settle.py", "worker/settler.py", "worker/attempt/executor.py"):
        assert file in plain


def spine(printed: str, name: str) -> list[str]:
    """The functions on the spine of one way outside of the engines, in order, as the pages write them."""
    on_it = [(file, function) for step, file, function in functions(printed, name) if step != "beside it"]
    return [f"{file}: {function}" for file, function in on_it if not file.startswith("store/engine/")]


def test_the_readme_shows_the_path_of_a_plain_job_in_the_order_in_which_it_is_run(printed: str) -> None:
    section = (ROOT / "README.md").read_text().partition("## The path of one job\n")[2].partition("\n## ")[0]
    shown = re.findall(r"`([\w/]+\.py: [\w.]+)`", section)
    assert len(shown) >= 9
    way = spine(printed, "a plain job")
    assert [name for name in way if name in shown] == shown


@each("name", BOUNDS)
def test_the_page_about_the_path_names_every_function_on_it(printed: str, name: str) -> None:
    page = (ROOT / "docs" / "explanation" / "path.md").read_text()
    named = set(re.findall(r"`([\w/]+\.py: [\w.]+)`", page))
    assert [step for step in spine(printed, name) if step not in named] == []


def test_the_lines_of_the_package_are_those_of_its_files_folder_by_folder(printed: str) -> None:
    counted = printed.split("lines of the package")[1]
    rows = {name: int(lines.replace(",", "")) for name, lines in re.findall(r"^    (\S+) +([\d,]+)$", counted, re.M)}
    package = ROOT / "src" / "rowlock"
    core = (package / "core").glob("*.py")
    assert rows["core/*.py"] == sum(len(file.read_text().splitlines()) for file in core)
    files = [file for kind in ("*.py", "*.sql") for file in package.rglob(kind)]
    assert rows.pop("together") == sum(rows.values()) == sum(len(file.read_text().splitlines()) for file in files)
