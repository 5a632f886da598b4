"""Bad input: one clear line, and an exit code that says what kind of mistake it was."""

import sys
from pathlib import Path

import pytest

from cli.command import Cli, Inside
from support.each import each

NOBODY = "0198a000-0000-7000-8000-00000000dead"


CASES = [
    (["jobs", "list", "--database", "mysql://x"], 2, "must start with sqlite:/// or postgresql://"),
    (["jobs", "list", "--database", "sqlite:////no/such/folder/x.db"], 2, "does not exist"),
    (["jobs", "list", "--state", "broken"], 2, "expected one of queued, running"),
    (["jobs", "list", "--since", "yesterday"], 2, "--since 'yesterday': expected a time ago such as 2h"),
    (["jobs", "list", "--limit", "0"], 2, "--limit"),
    (["jobs", "lst"], 2, "Did you mean 'list'?"),
    (["jobs", "show", NOBODY], 3, f"no job with id {NOBODY}"),
    (["jobs", "show", "7"], 3, "no job with id 7"),
    (["jobs", "explain", NOBODY], 3, f"no job with id {NOBODY}"),
    (["jobs", "retry"], 2, "give job ids or a filter"),
    (["jobs", "retry", NOBODY, "--state", "dead"], 2, "give job ids or a filter"),
    (["jobs", "retry", "--state", "running"], 2, "dead or cancelled"),
    (["enqueue", "ad", "a=1", "--app", "shop"], 2, "did you mean 'add'?"),
    (["enqueue", "add", "a=one", "--app", "shop"], 2, "task 'add': a:"),
    (["enqueue", "add", "a", "--app", "shop"], 2, "'a': expected key=value, such as a=VALUE"),
    (["enqueue", "add", "c=1", "--app", "shop"], 2, "a: missing; c: no such argument"),
    (["schedules", "next", "nightly"], 3, "no schedule named 'nightly'; see: rowlock schedules list"),
    (["jobs", "list", "--database", "sqlite://x.db"], 2, "as in sqlite:///jobs.db"),
    (["stats", "--app", "shop:not_an_app"], 2, "not a Rowlock app, but of type"),
    (["stats", "--app", "shop:nothing"], 2, "write --app shop:app"),
    (["enqueue", "add", "a=1", "a=2", "--app", "shop"], 2, "a was given twice"),
    (["enqueue", "add", "--args", "[1]", "--app", "shop"], 2, "--args must be a JSON object"),
    (["enqueue", "add", "a=1", "--priority", "1000", "--app", "shop"], 2, "priority must be"),
    (["enqueue", "add", "a=1", "--job-id", "mine", "--app", "shop"], 2, "job_id must be a UUID"),
    (["enqueue", "add", "a=1", "--run-after", "2030-01-01T10:00", "--app", "shop"], 2, "has no time zone"),
    (["enqueue", "add", "a=1", "--delay", "soon", "--app", "shop"], 2, "--delay 'soon'"),
    (["enqueue", "add", "a=1", "--owner", "\udcff", "--app", "shop"], 2, "owner must be"),
    (["demo", "nothing"], 2, "no demo named 'nothing'"),
    (["migrate", "--check", "--sql"], 2, "not both"),
    (["doctor", "--config", "absent.yaml"], 2, "config file absent.yaml: No such file or directory"),
    (["queues", "pause", ""], 2, "not the name of a queue"),
]


@each("words, code, expected", CASES)
def test_a_mistake_is_one_line_and_a_code(inside: Inside, words: list[str], code: int, expected: str) -> None:
    assert expected in inside.error(*words, code=code)


CANNOT_START = [
    (["worker"], "--app module:attribute"),
    (["worker", "--app", "shoq"], "no module named 'shoq'"),
    (["worker", "--app", "shop:nothing"], "shop has no attribute 'nothing'"),
    (["worker", "--app", "shop:not_an_app"], "not a Rowlock"),
    (["worker", "--app", "shop", "--pool-size", "many"], "worker.pool_size = 'many' (--pool-size)"),
    (["worker", "--app", "shop", "--log-level", "loud"], "--log-level 'loud'"),
    (["up", "--app", "shop", "--reload", "--reload-dir", "nowhere"], "no such folder"),
]


def test_a_worker_that_cannot_start_says_why(lite: Cli) -> None:
    said = lite.errors([words for words, _ in CANNOT_START], code=2)
    assert [(*row, line) for row, line in zip(CANNOT_START, said, strict=True) if row[1] not in line] == []


def test_an_app_that_does_not_import_shows_its_own_error(lite: Cli) -> None:
    (lite.folder / "broken.py").write_text("x = 1\nimport shop\nraise KeyError('no such plan')\n")
    line = lite.error("worker", "--app", "broken", code=2)
    assert "broken.py:3): KeyError: 'no such plan'" in line


def test_an_app_whose_import_is_missing_names_that_import(inside: Inside, folder: Path) -> None:
    (folder / "broken.py").write_text("import not_installed_anywhere\n")
    assert "'not_installed_anywhere'" in inside.error("stats", "--app", "broken", code=2)


@each("text", ["worker:\n  pool_sise: 3\n", "worker: [", "worker:\n  pool_size: none\n"])
def test_a_broken_config_is_one_line_that_names_the_file(inside: Inside, folder: Path, text: str) -> None:
    (folder / "rowlock.yaml").write_text(text)
    assert "rowlock.yaml" in inside.error("stats", code=2)


def test_a_server_that_cannot_be_reached_is_one_line_without_the_password(inside: Inside) -> None:
    line = inside.error("stats", "--database", "postgresql://user:secret@127.0.0.1:9/none", code=1)
    assert "127.0.0.1" in line
    assert "secret" not in line


def test_a_database_without_tables_names_the_command_that_creates_them(inside: Inside, postgres_url: str) -> None:
    assert "rowlock migrate" in inside.error("stats", "--database", postgres_url, code=1)


def test_rowlock_debug_prints_the_traceback_of_an_error(lite: Cli) -> None:
    done = lite.run("jobs", "show", NOBODY, code=3, ROWLOCK_DEBUG="1")
    assert "Traceback" in done.stderr
    assert "rowlock: no job" in done.stderr


def test_the_file_names_the_app_and_flags_win_over_code_over_environment(
    inside: Inside, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "named", raising=False)
    (folder / "named.py").write_text(
        "from rowlock import Rowlock\napp = Rowlock('sqlite:///code.db')\n@app.task\nasync def t() -> None: ...\n"
    )
    (folder / "rowlock.yaml").write_text("app: named:app\ndatabase: sqlite:///file.db\n")
    inside.out("enqueue", "t")
    assert (folder / "code.db").exists()
    inside.out("enqueue", "t", "--database", "sqlite:///flag.db")
    assert len(inside.json("jobs", "list", "--database", "sqlite:///flag.db")) == 1
    assert not (folder / "file.db").exists()


def test_a_wrong_option_names_the_help_of_its_verb(inside: Inside) -> None:
    assert inside.error("workers", "list", "--foo", code=2).endswith("see: rowlock workers list --help")
