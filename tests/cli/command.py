"""Runs `rowlock …` as a user does: real processes, in a folder with an app in it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import pytest

from rowlock.cli.main import execute

APP = """
import asyncio
from pathlib import Path

from rowlock import Context, Permanent, Rowlock, fixed

app = Rowlock()
not_an_app = 3


@app.task("add")
async def add(a: int, b: int = 1) -> int:
    return a + b


@app.task("greet")
async def greet(name: str) -> str:
    return f"hello {name}"


@app.task("boom", max_attempts=1)
async def boom(text: str = "it broke") -> None:
    raise ValueError(text)


@app.task("flaky", backoff=fixed(seconds=0.05))
async def flaky(ctx: Context) -> str:
    if ctx.attempt < 2:
        raise ConnectionError("not yet")
    return "at last"


@app.task("elsewhere", queue="other")
async def elsewhere() -> None:
    pass


@app.task("linger")
async def linger(ctx: Context, file: str) -> None:
    Path(file).write_text("running")
    await ctx.progress(30, phase="lingering")
    await asyncio.sleep(60)
"""

LIMIT = 30.0

# Runs command lines one after the other, and prints for each a line with its exit code, stdout and stderr.
ONE_BY_ONE = """
import contextlib, io, json, sys
from rowlock.cli.main import execute

for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = execute(words)
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""


def wait_until(check: Callable[[], Any], what: str, seconds: float = LIMIT) -> Any:
    """Look until the answer is true; an error when it stays false."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := check():
            return found
        time.sleep(0.02)
    raise AssertionError(f"waited {seconds:g} s in vain: {what}")


class Told(NamedTuple):
    """What a command has written."""

    stdout: str
    stderr: str


def only_line(told: Told) -> str:
    """The one line on stderr of a command that failed."""
    assert told.stdout == ""
    (line,) = told.stderr.splitlines()
    assert line.startswith("rowlock: ")
    return line.removeprefix("rowlock: ")


class Background:
    """A command that goes on; its output is in a file."""

    def __init__(self, process: subprocess.Popen[bytes], file: Path) -> None:
        self.process, self._file = process, file

    @property
    def log(self) -> str:
        return self._file.read_text()

    def wait_for(self, text: str, times: int = 1) -> None:
        try:
            wait_until(lambda: self.log.count(text) >= times or self.process.poll() is not None, f"{text!r} in its log")
        finally:
            assert self.log.count(text) >= times, self.log

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Signal it and wait for its end; its exit code."""
        self.process.send_signal(number)
        return self.process.wait(LIMIT)


class Command:
    """Short words for what tests ask of a command."""

    def run(self, *words: str, code: int = 0, **env: str) -> Told:
        """Run a command to its end; its exit code must be `code`."""
        raise NotImplementedError

    def out(self, *words: str) -> str:
        return self.run(*words).stdout.strip()

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json").stdout)

    def error(self, *words: str, code: int) -> str:
        """The one line on stderr of a command that fails with `code`."""
        return only_line(self.run(*words, code=code))


class Cli(Command):
    """Runs `rowlock …` in a process, in one folder, on one database."""

    def __init__(self, folder: Path, url: str | None) -> None:
        self.folder = folder
        clean = {key: value for key, value in os.environ.items() if not key.startswith("ROWLOCK_")}
        clean.pop("WORKER_ID", None)
        self.env = clean | {"PYTHONUNBUFFERED": "1"}
        if url:
            self.env["ROWLOCK_DATABASE_URL"] = url
        self._started: list[Background] = []

    def run(self, *words: str, code: int = 0, **env: str) -> Told:
        done = subprocess.run(
            [sys.executable, "-m", "rowlock", *words],
            cwd=self.folder,
            env=self.env | env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return Told(done.stdout, done.stderr)

    def errors(self, lines: Iterable[Sequence[str]], code: int) -> list[str]:
        """What `error` answers for each of these command lines. They share one process, which is not this one: a
        worker that starts against all expectations ends it and not the tests."""
        listed = list(lines)
        done = subprocess.run(
            [sys.executable, "-c", ONE_BY_ONE, json.dumps(listed)],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        found = [json.loads(line) for line in done.stdout.splitlines()]
        assert len(found) == len(listed), f"{listed[len(found)]} ended the process: {done.stderr}"
        for words, (ended, out, err) in zip(listed, found, strict=True):
            assert ended == code, f"{words}: {ended}\n{out}\n{err}"
        return [only_line(Told(out, err)) for _, out, err in found]

    def start(self, *words: str, **env: str) -> Background:
        file = self.folder / f"log-{len(self._started)}.txt"
        with file.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "rowlock", *words],
                cwd=self.folder,
                env=self.env | env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self._started.append(Background(process, file))
        return self._started[-1]

    def close(self) -> None:
        for background in self._started:
            if background.process.poll() is None:
                background.process.kill()
                background.process.wait()


class Inside(Command):
    """`rowlock …` without a process of its own, where many would take too long."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    @classmethod
    def enter(cls, folder: Path, url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Self:
        """Go to the folder; its app is imported afresh."""
        monkeypatch.chdir(folder)
        monkeypatch.syspath_prepend(folder)
        monkeypatch.delitem(sys.modules, "shop", raising=False)
        monkeypatch.setenv("ROWLOCK_DATABASE_URL", url)
        return cls(capsys)

    def run(self, *words: str, code: int = 0, **env: str) -> Told:
        found = execute(list(words))
        told = Told(*self._capsys.readouterr())
        assert found == code, f"{words}: {found}\n{told.stdout}\n{told.stderr}"
        return told
