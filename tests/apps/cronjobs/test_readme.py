"""The demo, and the README: its commands, its snippet, its YAML and the files it names."""

import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from apps.cronjobs.readme import FOLDER, README, blocks, commands
from cli.command import Cli, wait_until
from rowlock.cli import main
from rowlock_apps.cronjobs.app import make_app, mistakes_in_config
from rowlock_apps.cronjobs.handler.base import BaseHandler, handler
from rowlock_apps.cronjobs.main import main as program
from support.each import each


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    made = Cli(tmp_path, None)
    yield made
    made.close()


def test_the_demo_shows_every_way_an_execution_can_go_and_leaves_nothing_behind(cli: Cli) -> None:
    """S2.35: `rowlock demo cronjobs` on SQLite: dispatchers and a pool, checked by itself."""
    assert "rowlock demo cronjobs " in blocks("sh")[0]
    told = cli.out("demo", "cronjobs", "--once")
    for words in (
        "two dispatchers and a pool of 5 are at work",
        "refused: cron job 'wrong': handler 'sample': params do not fit: sleep = 1",
        "heartbeat: paused",
        "heartbeat: resumed",
        "ticks were fired by two dispatchers and made",
    ):
        assert words in told
    for line in (r"heartbeat +\d+ SUCCESS", r"flaky +\d+ SUCCESS", r"broken +\d FAILED", r"too-slow +\d TIMEOUT"):
        assert re.search(line, told), told
    assert list(cli.folder.iterdir()) == []


def test_the_commands_work_beside_up(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """S2.36: `rowlock up` runs the worker; the commands of the second terminal, in order; SIGINT ends it."""
    (_, run), (export, *second) = (commands(block) for block in blocks("sh")[:2])
    up = cli.start(*run[1:])
    up.wait_for("Dispatcher started")
    up.wait_for("Worker started")
    monkeypatch.chdir(cli.folder)
    monkeypatch.setenv(*export[1].split("=", 1))
    for words in second:
        if words[1:3] == ["schedules", "pause"]:
            wait_until(lambda: up.log.count("completed in") >= 2, "a report and a tick of ping")
        assert main.execute(words[1:]) == 0, f"{words}: {capsys.readouterr().err}"
        told = capsys.readouterr().out
        if words[1:3] == ["schedules", "list"]:
            assert [name for name in ("hourly-report", "nightly-cleanup", "ping") if name not in told] == []
        if words[1:3] == ["jobs", "list"]:
            assert "succeeded" in told, "ping has fired, and ran"
    assert main.execute(["schedules", "add", "x", "smaple", "--every", "1s"]) == 2
    assert "no task named 'smaple'; did you mean 'sample'?" in capsys.readouterr().err
    assert up.stop(2) == 0


def test_the_module_is_a_program(cli: Cli, tmp_path: Path) -> None:
    """S2.11: the entry point of the document's main.py; SIGTERM ends it."""
    assert "python -m rowlock_apps.cronjobs" in README
    log = tmp_path / "log.txt"
    with log.open("wb") as output:
        command = [sys.executable, "-m", "rowlock_apps.cronjobs"]
        process = subprocess.Popen(command, cwd=tmp_path, env=cli.env, stderr=output)
    try:
        wait_until(lambda: "Worker started" in log.read_text(), "a worker")
        assert "Dispatcher started" in log.read_text()
        process.terminate()
        assert process.wait(20) == 0, log.read_text()
    finally:
        process.kill()


@each(
    "words, code, told",
    [
        (["--help"], 0, "--database"),
        (["--database", "postgresql://127.0.0.1:1/x"], 2, "cronjobs: cannot open postgresql://127.0.0.1:1/x"),
        (["--database", "mysql://x"], 2, "cronjobs: database = 'mysql://x'"),
        (["serve"], 2, "unexpected extra argument"),
    ],
)
def test_the_program_says_in_a_line_what_is_wrong(
    words: list[str], code: int, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["cronjobs", *words])
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    with pytest.raises(SystemExit) as ended:
        program()
    assert ended.value.code == code
    said = capsys.readouterr()
    assert told in said.out + said.err
    if told.startswith("cronjobs: "):
        assert len(said.err.splitlines()) == 1


def test_the_snippet_runs_and_its_yaml_is_taken(tmp_path: Path) -> None:
    (snippet,), (config,) = blocks("python"), blocks("yaml")
    (tmp_path / "greetings.py").write_text(snippet)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROWLOCK_")}
    command = [sys.executable, "greetings.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "SUCCESS {'greeting': 'hello ada'}"

    @handler("greet")
    class GreetHandler(BaseHandler):
        async def execute(self, params: dict[str, str]) -> None: ...

    (tmp_path / "mine.yaml").write_text(config)
    assert mistakes_in_config(make_app(config=tmp_path / "mine.yaml")) == []


def test_every_file_of_the_document_has_its_place() -> None:
    """S2.11, S2.36: pool and program, executor, handlers, SQL, YAML and tests, and the README says where."""
    table = dict(re.findall(r"^\| `(\w+/[\w./]+)` \| `([\w./]+)`", README, re.M))
    assert list(table) == [
        *("worker/main.py", "worker/executor.py", "worker/handler/base.py", "worker/handler/sample.py"),
        *("worker/sql/worker.sql", "config/worker.yaml", "test/worker_test.py"),
    ]
    *files, tests = table.values()
    assert [file for file in files if not (FOLDER / file).is_file()] == []
    assert (Path(__file__).parents[3] / tests).is_dir()
    sql = (FOLDER / "sql" / "worker.sql").read_text()
    assert "-- name: get_pending_executions" in sql
