import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from cli.command import Cli, wait_until

JSON = {"Content-Type": "application/json"}
EXPECTED = [
    "demo.charge: attempt 1 failed (ConnectionError: the bank hung up), will be tried again",
    "demo.charge: succeeded on attempt 3",
    "demo.fetch: dead (HTTP_410:",
    "demo.report: dead (TIMEOUT: timed out after 1 s)",
    "demo.primes: succeeded on attempt 1",
    "demo.import: succeeded on attempt 1",
    "demo.mirror: cancel asked for",
    "demo.mirror: cancelled",
    "47 succeeded, 2 dead, 1 cancelled",
]
QUICK = """
from pathlib import Path


async def play(database: str, live: bool) -> list[str]:
    print("with a live display" if live else "in plain lines")
    if Path(database.removeprefix("sqlite:///")).parent.is_dir():
        print("its folder exists")
    return []
"""


@pytest.fixture
def quick(folder: Path) -> Path:
    """Where a package is installed that brings a demo without any wait, `quick`."""
    installed = folder / "quick-1.0.dist-info"
    installed.mkdir()
    (installed / "entry_points.txt").write_text("[rowlock.demos]\nquick = quick:play\n")
    (folder / "quick.py").write_text(QUICK)
    return folder


def test_the_demo_shows_every_way_a_job_can_go_and_keeps_a_database_that_it_was_given(
    folder: Path, postgres_url: str
) -> None:
    cli = Cli(folder, None)
    printed = cli.out("demo", "--database", postgres_url)
    assert [line for line in EXPECTED if line not in printed] == []
    assert f"rowlock jobs list --database {postgres_url}" in printed
    dead = json.loads(cli.out("jobs", "list", "--state", "dead", "--json", "--database", postgres_url))
    assert sorted(job["task"] for job in dead) == ["demo.fetch", "demo.report"]


def test_on_a_terminal_the_demo_ends_with_a_dashboard_that_its_link_opens(folder: Path) -> None:
    with terminal([sys.executable, "-m", "rowlock", "demo", "engine"], folder) as (demo, printed):
        wait_until(lambda: "Ctrl-C" in printed() or demo.poll() is not None, "the link to the dashboard", 90)
        assert "47 succeeded, 2 dead, 1 cancelled" in printed(), printed()
        found = re.search(r"(http://127\.0\.0\.1:\d+/)#once=(\S+)", printed())
        assert found is not None, printed()
        url, once = found.groups()
        with urllib.request.urlopen(url) as page:
            assert "static/app.js" in page.read().decode()
        body = json.dumps({"once": once}).encode()
        with urllib.request.urlopen(urllib.request.Request(url + "api/session", body, JSON)) as session:
            assert json.loads(session.read())["scope"] == "operator"
        demo.send_signal(signal.SIGINT)
        assert demo.wait(30) == 0, printed()


def test_with_once_the_demo_prints_plain_lines_on_a_terminal_and_ends_without_a_dashboard(quick: Path) -> None:
    with terminal([sys.executable, "-m", "rowlock", "demo", "quick", "--once"], quick) as (demo, printed):
        assert demo.wait(30) == 0, printed()
        wait_until(lambda: "rowlock jobs list" in printed(), "its last line")
        assert "in plain lines" in printed()
        assert "dashboard" not in printed()


def test_a_demo_without_a_database_of_the_users_leaves_nothing_behind(quick: Path) -> None:
    before = sorted(quick.iterdir())
    printed = Cli(quick, None).run("demo", "quick", PYTHONDONTWRITEBYTECODE="1").stdout
    (file,) = re.findall(r"^database +sqlite:///(\S+demo\.db)$", printed, re.MULTILINE)
    assert "its folder exists" in printed
    assert not Path(file).parent.exists()
    assert sorted(quick.iterdir()) == before


def test_without_the_packages_of_the_dashboard_the_demo_ends_with_what_to_install(quick: Path) -> None:
    without = (
        "import sys; sys.modules['uvicorn'] = sys.modules['fastapi'] = None; from rowlock.cli.main import run; run()"
    )
    with terminal([sys.executable, "-c", without, "demo", "quick"], quick) as (demo, printed):
        assert demo.wait(30) == 0, printed()
        wait_until(lambda: 'pip install "rowlock[api]"' in printed(), "what to install")
        assert "with a live display" in printed()


@contextmanager
def terminal(command: list[str], folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], str]]]:
    """A program on a terminal of its own, and what it has printed so far."""
    ours, theirs = os.openpty()
    printed = bytearray()

    def read() -> None:
        with suppress(OSError):  # the program has ended
            while data := os.read(ours, 65536):
                printed.extend(data)

    env = {name: value for name, value in os.environ.items() if not name.startswith("ROWLOCK_")}
    program = subprocess.Popen(command, cwd=folder, env=env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield program, lambda: printed.decode(errors="replace")
    finally:
        program.kill()
        program.wait()
        reader.join()
        os.close(ours)
