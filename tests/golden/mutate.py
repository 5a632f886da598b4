"""Runs the mutants of `mutants.toml`: small changes that break the product, each of which a named test must catch.

    python -m golden.mutate               all of them, from the folder tests; `make mutants` does the same
    python -m golden.mutate claim batch   those whose names contain one of these words
    python -m golden.mutate --check       only look whether each text to be changed is still there, exactly once

A mutant names the text that it changes and not the file, so that the list outlives a move of the code. The change is
made in a copy of `src`, which the test imports instead of the checkout: the working tree is never touched.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from support.servers.postgres import URL_VARIABLE, shared_server

TESTS = Path(__file__).parents[1]
SOURCE = TESTS.parent / "src"
LIST = Path(__file__).with_name("mutants.toml")
PACKAGE = "rowlock"
COPY_VARIABLE = "MUTATED_SOURCE"  # tells a test process which copy of `src` it must import
FAILED = 1  # pytest's exit code for a failed test; the others tell of a test that did not run


class Mutant(NamedTuple):
    """One change of the product."""

    name: str  # what breaks
    was: str
    now: str
    test: str  # the id of the test that must fail


class Outcome(NamedTuple):
    """What became of a test."""

    code: int
    failures: list[str]  # the tests that failed, with the reason; without those that failed in their set-up
    output: str


def mutants() -> list[Mutant]:
    """The list, as it is written."""
    return [Mutant(**one) for one in tomllib.loads(LIST.read_text("utf-8"))["mutant"]]


def problems(listed: Sequence[Mutant]) -> list[str]:
    """What is wrong with the list itself: each sentence names its mutant."""
    texts = _texts()
    names = Counter(one.name for one in listed)
    found = [f"{name}: {times} mutants have this name" for name, times in names.items() if times > 1]
    for one in listed:
        times = sum(text.count(one.was) for text in texts.values())
        if times != 1:
            found.append(f"{one.name}: the source has the text to be changed {times} times, not once: {one.was!r}")
        if one.was == one.now:
            found.append(f"{one.name}: it changes nothing")
        file, _, function = one.test.partition("[")[0].partition("::")
        path = TESTS.parent / file
        if not path.is_file() or (function and f"def {function}(" not in path.read_text("utf-8")):
            found.append(f"{one.name}: there is no test {one.test}")
    return found


def _texts() -> dict[Path, str]:
    """All source files that a mutant may change, by their path below `src`."""
    files = [file for file in (SOURCE / PACKAGE).rglob("*") if file.suffix in (".py", ".sql")]
    return {file.relative_to(SOURCE): file.read_text("utf-8") for file in sorted(files)}


@contextmanager
def copied(mutant: Mutant | None) -> Iterator[Path]:
    """A copy of `src`, with this change."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy = Path(folder) / "src"
        shutil.copytree(SOURCE, copy)
        if mutant is not None:
            (file,) = [path for path, text in _texts().items() if mutant.was in text]
            (copy / file).write_text(_texts()[file].replace(mutant.was, mutant.now), "utf-8")
        yield copy


def environment(copy: Path) -> dict[str, str]:
    """The variables of a process that imports this copy, and not the checkout that is installed."""
    path = os.pathsep.join(filter(None, (str(copy), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, "COLUMNS": "300", COPY_VARIABLE: str(copy)}


def run(tests: Sequence[str], copy: Path, *options: str) -> Outcome:
    """Run tests against this copy."""
    ids = [str(TESTS.parent / test) for test in tests]
    quiet = ["-q", "--no-header", "--tb=line", "-rf", "--color=no", "-p", "no:cacheprovider", "--randomly-seed=1"]
    command = [sys.executable, "-m", "pytest", "-p", "golden.mutate", *quiet, *options, *ids]
    done = subprocess.run(command, cwd=TESTS, env=environment(copy), capture_output=True, text=True)
    lines = done.stdout.splitlines()
    failures = [line.removeprefix("FAILED ") for line in lines if line.startswith("FAILED ")]
    return Outcome(done.returncode, failures, done.stdout + done.stderr)


def pytest_configure() -> None:
    """In the process of a test, of which this module is a plugin: end it if the package is not that of the copy."""
    if not _imported_from().is_relative_to(os.environ[COPY_VARIABLE]):
        raise pytest.UsageError(f"the tests would import {_imported_from()}, which has no mutant")


def _imported_from() -> Path:
    import rowlock  # here, because the process that starts the tests needs none of it

    return Path(rowlock.__file__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen mutants. Returns 1 if one of them lives, or if the list or a test is wrong."""
    parser = argparse.ArgumentParser(prog="python -m golden.mutate", description="Run the mutants.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="a name, or a part of one; without any: all mutants")
    parser.add_argument("--check", action="store_true", help="check the list, and run nothing")
    given = parser.parse_args(arguments)
    listed = mutants()
    wrong = problems(listed)
    print(*wrong, sep="\n", end="\n" if wrong else "")
    if wrong or given.check:
        return 1 if wrong else 0
    chosen = [one for one in listed if not given.names or any(name in one.name for name in given.names)]
    if not chosen:
        parser.error(f"no mutant has a name with {' or '.join(given.names)}")
    with shared_server() as server:
        os.environ[URL_VARIABLE] = server.url  # one PostgreSQL for all of them: each test makes its own database there
        return 0 if _tests_pass(chosen) and _all_caught(chosen) else 1


def _tests_pass(chosen: Sequence[Mutant]) -> bool:
    """Whether the tests pass without a mutant; if not, says which do not."""
    tests = sorted({one.test for one in chosen})
    with copied(None) as copy:
        shown = [sys.executable, "-c", "import rowlock; print(rowlock.__file__)"]
        imported = subprocess.run(shown, cwd=TESTS, env=environment(copy), capture_output=True, text=True, check=True)
        print(f"{len(chosen)} mutants, {len(tests)} tests; the tests import {imported.stdout.strip()}", flush=True)
        assert Path(imported.stdout.strip()).is_relative_to(copy), "the tests would import the checkout"
        outcome = run(tests, copy)
    if outcome.code != 0:
        print("not all of the tests pass without a mutant:", outcome.output, sep="\n")
    return outcome.code == 0


def _all_caught(chosen: Sequence[Mutant]) -> bool:
    """Whether each mutant is caught. Prints a line for each, and the output of the test where one lives."""
    print(f"{'result':8}{'seconds':>7}  mutant", flush=True)
    alive = 0
    for mutant in chosen:
        began = time.monotonic()
        with copied(mutant) as copy:
            outcome = run([mutant.test], copy, "-x")
        caught = outcome.code == FAILED and bool(outcome.failures)
        alive += not caught
        print(f"{'caught' if caught else 'LIVES':8}{time.monotonic() - began:7.0f}  {mutant.name}", flush=True)
        for line in outcome.failures if caught else (f"exit code {outcome.code}: {mutant.test}", outcome.output):
            print(f"{'':17}{line}", flush=True)
    print(f"{len(chosen) - alive} of {len(chosen)} mutants are caught")
    return alive == 0


if __name__ == "__main__":
    sys.exit(main())
