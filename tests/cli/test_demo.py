import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cli.command import Cli

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


def test_the_demo_shows_every_way_a_job_can_go_and_leaves_nothing_behind(folder: Path) -> None:
    told = Cli(folder, None).out("demo", "--once")
    assert [line for line in EXPECTED if line not in told] == []
    (file,) = re.findall(r"sqlite:///(\S+demo\.db)", told.partition("worker")[0])
    assert not Path(file).parent.exists()
    assert sorted(path.name for path in folder.iterdir()) == ["shop.py"]


def test_the_demo_migrates_and_keeps_a_database_that_it_was_given(folder: Path, postgres_url: str) -> None:
    cli = Cli(folder, None)
    told = cli.out("demo", "engine", "--database", postgres_url)
    assert [line for line in EXPECTED if line not in told] == []
    assert f"rowlock jobs list --database {postgres_url}" in told
    dead = json.loads(cli.out("jobs", "list", "--state", "dead", "--json", "--database", postgres_url))
    assert sorted(job["task"] for job in dead) == ["demo.fetch", "demo.report"]


def test_on_a_terminal_the_demo_ends_with_a_dashboard_that_its_link_opens(folder: Path) -> None:
    with terminal([sys.executable, "-m", "rowlock", "demo"], folder) as (demo, told):
        end = time.monotonic() + 90
        while (found := re.search(r"(http://127\.0\.0\.1:\d+/)#once=(\S+)", told())) is None or "Ctrl-C" not in told():
            assert demo.poll() is None, told()
            assert time.monotonic() < end, told()
            time.sleep(0.05)
        url, once = found.groups()
        with urllib.request.urlopen(url) as page:
            assert "static/app.js" in page.read().decode()
        body = json.dumps({"once": once}).encode()
        with urllib.request.urlopen(urllib.request.Request(url + "api/session", body, JSON)) as session:
            assert json.loads(session.read())["scope"] == "operator"
        demo.send_signal(signal.SIGINT)
        assert demo.wait(30) == 0


def test_without_the_packages_of_the_dashboard_the_demo_ends_with_what_to_install(folder: Path) -> None:
    without = (
        "import sys; sys.modules['uvicorn'] = sys.modules['fastapi'] = None; from rowlock.cli.main import run; run()"
    )
    with terminal([sys.executable, "-c", without, "demo"], folder) as (demo, told):
        assert demo.wait(90) == 0, told()
        end = time.monotonic() + 30
        while 'pip install "rowlock[api]"' not in told():
            assert time.monotonic() < end, told()
            time.sleep(0.05)


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
