"""The app as it is run: the command line, worker processes, and one of them killed."""

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from apps.bookmarks.files import bookmarks_file
from apps.engines import ONE_ENGINE
from rowlock import Rowlock
from rowlock_apps.bookmarks import import_file, imports, make_app, read_import
from rowlock_apps.bookmarks.__main__ import commands
from rowlock_apps.bookmarks.shared import ENRICH
from rowlock_apps.bookmarks.small_web import Send, page, small_web
from support.each import each

HERE = Path(__file__).parent
REAL = "rowlock_apps.bookmarks:app"
README = Path(make_app.__code__.co_filename).with_name("README.md")
FILE = bookmarks_file("http://10.0.0.1/", "https://[::1]/", "http://a.example:81/", "javascript:1")  # nothing is sent


class Processes:
    """Commands of this test, in its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._started = folder, list[subprocess.Popen[bytes]]()
        self.env = {key: value for key, value in os.environ.items() if not key.startswith("ROWLOCK_")}
        path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
        self.env |= {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}

    def run(self, *words: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", *words], cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout if code == 0 else done.stderr

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        log = (self.folder / f"log-{len(self._started)}.txt").open("wb")
        with log:
            process = subprocess.Popen(
                [sys.executable, "-m", *words], cwd=self.folder, env=self.env, stdout=log, stderr=log
            )
        self._started.append(process)
        return process

    def logs(self) -> str:
        return "".join(path.read_text() for path in sorted(self.folder.glob("log-*.txt")))

    def stop(self) -> list[int]:
        """Stop those that run; their exit codes."""
        running = [process for process in self._started if process.poll() is None]
        for process in running:
            process.send_signal(signal.SIGTERM)
        return [process.wait(30) for process in running]

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
                process.wait()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    (tmp_path / "bookmarks.html").write_bytes(FILE)
    found = Processes(tmp_path)
    yield found
    found.close()


async def wait_over(app: Rowlock, import_id: str, processes: Processes, seconds: float = 30) -> None:
    try:
        await (await app.find_batch(import_id)).wait(seconds)
    except TimeoutError:
        raise AssertionError(f"the import is not over:\n{processes.logs()}") from None


async def test_two_worker_processes_on_postgresql_run_each_job_once(postgres: str, processes: Processes) -> None:
    """S0.1, S0.4, S0.19, S0.24: two workers of the command line; nothing is fetched twice, and k holds over both."""
    hosts = [f"h{n}.example" for n in range(12)]
    paths = [f"{host}/" for host in hosts] + [f"busy.example/{n}" for n in range(12)]
    came, both = 0, asyncio.Event()

    async def wait_for_both(send: Send) -> None:
        """Six slots each: the seventh page can only be asked for once both workers have jobs."""
        nonlocal came
        came += 1
        if came > 6:
            both.set()
        await both.wait()
        await page("At last")(send)

    pages = {path: wait_for_both if path.endswith("/") else page(path, wait=0.05) for path in paths}
    async with small_web(pages) as web:
        processes.env["SMALL_WEB_PORT"] = str(web.port)
        async with make_app(postgres) as app:
            for _ in range(2):
                command = ["rowlock", "worker", "--app", "loopback_app:app", "--pool-size", "6", "--database"]
                processes.start(*command, postgres)
            await both_there(app, processes)
            import_id = await import_file(app, "ana", bookmarks_file(*(f"http://{path}" for path in paths)))
            await wait_over(app, import_id, processes)
            one = await read_import(app, "ana", import_id)
            jobs = await app.jobs(task=ENRICH, limit=100)
    assert (one.status, one.processed_items, one.failed_items) == ("succeeded", 24, 0)
    assert [job.attempt for job in jobs] == [1] * 24
    assert {web.asked[path] for path in paths} == {1}
    assert web.most["busy.example"] <= 2
    assert len({job.locked_by for job in jobs}) == 2
    assert processes.stop() == [0, 0]
    assert "batch_claimed_count=" in processes.logs()


async def both_there(app: Rowlock, processes: Processes) -> None:
    async with asyncio.timeout(30):
        while processes.logs().count("Worker started") < 2:
            await asyncio.sleep(0.05)


@ONE_ENGINE
async def test_a_killed_workers_links_are_fetched_by_another(database: str, processes: Processes) -> None:
    """S0.13: no link stays running for ever; the death of its worker costs it no try."""
    asked = 0
    reached, hold = asyncio.Event(), asyncio.Event()

    async def first_hangs(send: Send) -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            reached.set()
            await hold.wait()
        await page("At last")(send)

    # The lease is longer than a busy machine stands still: the first attempt is to be lost by the kill alone.
    quick = {"lease": 5, "heartbeat": 0.4, "sweep": 0.2, "poll-interval": 0.3}
    command = ["rowlock", "worker", "--app", "loopback_app:app", "--database", database]
    command += [word for name, value in quick.items() for word in (f"--{name}-seconds", str(value))]
    async with small_web({"a.example/": first_hangs}) as web:
        processes.env["SMALL_WEB_PORT"] = str(web.port)
        async with make_app(database) as app:
            import_id = await import_file(app, "ana", bookmarks_file("http://a.example/"))
            killed = processes.start(*command)
            await asyncio.wait_for(reached.wait(), 30)
            shares = await import_file(app, "ben", bookmarks_file("http://a.example/"))
            killed.kill()
            killed.wait()
            assert (await read_import(app, "ben", shares)).status == "running"
            processes.start(*command)
            await wait_over(app, import_id, processes)
            [job] = await app.jobs(task=ENRICH)
            assert (job.state, job.attempt, job.losses, job.result) == ("succeeded", 2, 1, "At last")
            for user, its in (("ana", import_id), ("ben", shares)):
                one = await read_import(app, user, its)
                assert (one.status, one.processed_items, one.failed_items) == ("succeeded", 1, 0)
        hold.set()


def test_the_demo_runs_on_sqlite_and_leaves_nothing_behind(processes: Processes) -> None:
    told = processes.run("rowlock", "demo", "bookmarks", "--once")
    for words in ("News 8", "A post that moved", "(attempt 2)", "BOMB:", "ADDRESS_REFUSED:", "ROBOTS:", "CAPTCHA:"):
        assert words in told
    assert "to addresses that are not public: 0" in told
    assert "at the same time: 2, allowed 2" in told
    assert "block candidates: members.example, quiet.example, wall.example" in told
    assert [path.name for path in processes.folder.iterdir()] == ["bookmarks.html"]


async def test_the_demo_runs_on_postgresql_that_has_rows(postgres: str, processes: Processes) -> None:
    async with make_app(postgres) as app:
        await import_file(app, "carol", FILE)
    assert "news1.example" in processes.run("rowlock", "demo", "bookmarks", "--once", "--database", postgres)


def readme(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)


async def test_the_readmes_commands_work_as_written(postgres_url: str, processes: Processes) -> None:
    """On SQLite, and on PostgreSQL with two workers: the same app, the real one."""
    databases = [f"sqlite:///{processes.folder}/bookmarks.db", postgres_url]
    for database, lines in zip(databases, readme("sh"), strict=True):
        import_id = ""
        for line in lines.replace("postgresql://user@host/bookmarks", postgres_url).splitlines():
            words = shlex.split(line, comments=True)
            if words[0] == "export":
                name, _, value = words[1].partition("=")
                processes.env[name] = value
            elif "worker" in words:
                processes.start(*words)
            elif words[0] == "python":
                import_id = processes.run(*words[2:]).strip()
            else:
                processes.run(*words)
        async with make_app(database) as app:
            await wait_over(app, import_id, processes)
        assert set(processes.stop()) == {0}
    told = json.loads(processes.run("rowlock_apps.bookmarks", "status", import_id, "--user", "ana"))
    assert (told["status"], told["processed_items"], told["failed_items"]) == ("failed", 4, 3)
    assert {code for code in ("ADDRESS_REFUSED", "PORT_REFUSED") if code in processes.logs()} == {
        "ADDRESS_REFUSED",
        "PORT_REFUSED",
    }


def test_the_readmes_python_and_sql_run(processes: Processes, postgres: str) -> None:
    [code] = readme("python")
    (processes.folder / "web.py").write_text(code)
    told = processes.run("web")
    assert "status='queued', total_items=1, processed_items=0" in told
    assert "the file is binary" in told
    [sql] = readme("sql")
    with psycopg.connect(postgres) as connection:
        for statement in sql.strip().removesuffix(";").split(";\n"):
            connection.execute(statement)  # type: ignore[arg-type]


@each(
    "words, message",
    [
        (["import", "nowhere.html", "--user", "ana"], "bookmarks: cannot read nowhere.html: No such file or directory"),
        (["import", "bookmarks.html", "--user", " "], "bookmarks: user_id must be text"),
        (["status", "nonsense", "--user", "ana"], "bookmarks: no import with id nonsense"),
        (["cancel", "nonsense", "--user", "ana"], "bookmarks: no import with id nonsense"),
        (["status", "x", "--user", "ana", "--database", "mysql://x"], "bookmarks: database = 'mysql://x'"),
    ],
)
def test_mistakes_on_the_command_line_are_one_clear_line(
    processes: Processes, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    monkeypatch.chdir(processes.folder)
    told = CliRunner().invoke(commands, words)
    assert told.exit_code == 2
    assert told.stderr.startswith(message)
    assert len(told.stderr.splitlines()) == 1


def test_the_command_line_shows_and_cancels_an_import_to_its_user_alone(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S0.3: to anybody else it looks as if there were no such import."""
    monkeypatch.chdir(processes.folder)
    file = bookmarks_file("http://a.example/").replace(b"title", "ещё".encode() + b"\xff")
    (processes.folder / "bad.html").write_bytes(file)
    brought = CliRunner().invoke(commands, ["import", "bad.html", "--user", "ana"])
    import_id = brought.stdout.strip()
    warning = "characters of the file that are not utf-8, and were replaced by U+FFFD: 1;"
    assert brought.stderr.startswith(f"bookmarks: {warning}")
    for command in ("status", "cancel"):
        refused = CliRunner().invoke(commands, [command, import_id, "--user", "ben"])
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert refused.stderr == f"bookmarks: no import with id {import_id}\n"
    shown = json.loads(CliRunner().invoke(commands, ["status", import_id, "--user", "ana"]).stdout)
    assert (shown["status"], shown["total_items"], shown["replaced_characters"]) == ("queued", 1, 1)
    assert shown["warning"].startswith(warning)
    cancelled = json.loads(CliRunner().invoke(commands, ["cancel", import_id, "--user", "ana"]).stdout)
    assert cancelled["status"] == "canceled"
    again = CliRunner().invoke(commands, ["cancel", import_id, "--user", "ana"])
    assert (again.exit_code, again.stderr) == (2, f"bookmarks: import {import_id} is already canceled\n")


def test_the_id_of_an_import_is_printed_before_its_bookmarks_are_placed(
    processes: Processes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """S0.3: a process that is killed while it places them has said what to cancel."""
    monkeypatch.chdir(processes.folder)
    printed: list[str] = []
    place = imports._place

    async def look(*args: Any) -> None:
        printed.append(capsys.readouterr().out.strip())
        await place(*args)

    monkeypatch.setattr(imports, "_place", look)
    commands(["import", "bookmarks.html", "--user", "ana"], standalone_mode=False)
    [import_id] = printed
    assert uuid.UUID(import_id)
    assert capsys.readouterr().out == ""
