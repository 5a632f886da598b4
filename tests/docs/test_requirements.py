"""docs/requirements.md lists every demand once, and each test it names exists."""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from support.each import each

ROOT = Path(__file__).resolve().parents[2]
COUNTS = {"S0": 31, "S1": 23, "S2": 36, "S3": 36, "S4": 31}
EXPECTED = [f"{document}.{n}" for document, count in COUNTS.items() for n in range(1, count + 1)]
OPEN = re.compile(r"open(\b.*)?")
NAMED_TEST = re.compile(r"(?P<file>tests/[\w/]+/test_\w+\.py)::(?P<name>test_\w+)")


def rows(page: str) -> list[tuple[str, str, str]]:
    """The cells of each table row that starts with a demand's number."""
    lines = (line.strip() for line in page.splitlines())
    cells = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|"))
    return [(row[0], row[1], "|".join(row[2:])) for row in cells if re.match(r"S\d", row[0])]


def problems(number: str, demand: str, shown_by: str) -> list[str]:
    """What is wrong with one row, in words."""
    found = [] if demand else [f"{number}: no wording"]
    if OPEN.fullmatch(shown_by):
        return found
    for name in re.split(r"<br\s*/?>|,", shown_by):
        named = NAMED_TEST.fullmatch(name.strip().strip("`"))
        if named is None:
            found.append(f"{number}: {name.strip()!r} is neither `open` nor tests/path/test_x.py::test_name")
        elif named["name"] not in functions_in(ROOT / named["file"]):
            found.append(f"{number}: {named['name']} is not in {named['file']}")
    return found


@cache
def functions_in(path: Path) -> frozenset[str]:
    if not path.is_file():
        return frozenset()
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, functions))


@pytest.fixture(scope="module")
def listed() -> list[tuple[str, str, str]]:
    return rows((ROOT / "docs" / "requirements.md").read_text(encoding="utf-8"))


def test_every_number_is_listed_once_and_in_order(listed: list[tuple[str, str, str]]) -> None:
    numbers = [number for number, _, _ in listed]
    assert [number for number, count in Counter(numbers).items() if count > 1] == []
    assert numbers == EXPECTED


def test_every_named_test_exists(listed: list[tuple[str, str, str]]) -> None:
    assert [problem for row in listed for problem in problems(*row)] == []


HERE = "tests/docs/test_requirements.py"


@each(
    "cell",
    [
        "open",
        "open: needs the API",
        f"{HERE}::test_every_named_test_exists",
        f"`{HERE}::test_a_row_that_names_existing_tests_or_is_open_has_no_problem`",
    ],
)
def test_a_row_that_names_existing_tests_or_is_open_has_no_problem(cell: str) -> None:
    assert problems("S0.1", "a demand", cell) == []


@each(
    "cell",
    [
        "",
        "done",
        "opened",
        f"{HERE}::test_that_nobody_wrote",
        "tests/docs/test_absent.py::test_a_row_that_names_existing_tests_or_is_open_has_no_problem",
        f"{HERE}::test_a_row_that_names_existing_tests_or_is_open_has_no_problem<br>{HERE}::test_that_nobody_wrote",
        f"{HERE}::test_a_row_that_names_existing_tests_or_is_open_has_no_problem, later",
    ],
)
def test_a_bad_row_is_found(cell: str) -> None:
    assert len(problems("S0.1", "a demand", cell)) == 1
