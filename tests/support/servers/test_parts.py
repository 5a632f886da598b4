"""Programs that tests need and only a system package brings: installed once, or the run says what is missing."""

import os
import threading
from pathlib import Path

import pytest

from support.servers import parts
from support.servers.parts import Part

TESTS = Path(__file__).resolve().parents[2]
CONFTEST = """
from support.servers import parts
from support.servers.parts import pytest_runtest_setup, pytest_sessionfinish

parts.PARTS["no-such-program"] = parts.Part("no-such-program", "no-such-package")
parts.may_install = lambda: False
"""
TWO_TESTS = """
import pytest

@pytest.mark.needs("no-such-program")
@pytest.mark.parametrize("n", [1, 2])
def test_with_the_program(n):
    raise AssertionError("it ran")

def test_without_it():
    pass
"""
LINE = (
    "tests that could not run: no-such-program is not installed "
    "(2 in test_parts.py; on Debian: apt-get install no-such-package)"
)


@pytest.mark.parametrize(("workers", "ci", "code"), [("0", "", 0), ("2", "true", 1)])
def test_a_run_without_a_part_ends_with_a_line_that_names_it_and_fails_in_ci(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: str, ci: str, code: int
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TESTS), prepend=os.pathsep)
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take longer to load than all the rest
    pytester.makeini("[pytest]\nmarkers = needs")
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_parts=TWO_TESTS)
    ran = pytester.runpytest_subprocess("-p", "xdist", "-n", workers, timeout=60)
    ran.assert_outcomes(passed=1, skipped=2)
    assert ran.outlines[-1] == LINE
    assert ran.ret == code


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs with an apt-get that notes its calls; `works` in it makes it install `tool`."""
    apt = tmp_path / "apt-get"
    apt.write_text(
        f"#!/bin/sh\necho $1 >>{tmp_path}/calls\n"
        f'test "$1" = update && exit 0\n'
        f"test -e {tmp_path}/works || exit 1\n"
        f"echo '#!/bin/sh' >{tmp_path}/tool && chmod +x {tmp_path}/tool\n"
    )
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(parts.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(parts, "may_install", lambda: True)
    return tmp_path


def test_a_part_that_many_ask_for_at_once_is_installed_once(machine: Path) -> None:
    (machine / "works").touch()
    found: list[str | None] = []
    asking = [threading.Thread(target=lambda: found.append(Part("tool", "tool").get())) for _ in range(8)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert found == [str(machine / "tool")] * 8
    assert (machine / "calls").read_text().split() == ["update", "install"]


def test_an_install_that_failed_is_not_tried_again_in_the_same_run(machine: Path) -> None:
    assert [Part("tool", "tool").get() for _ in range(3)] == [None] * 3
    assert (machine / "calls").read_text().split() == ["update", "install"]
