"""The command on either engine, on SQLite alone, and inside this process where a process a case is too slow."""

import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import typer

from cli.command import APP, Cli, Inside


@pytest.fixture(autouse=True, scope="session")
def hangups() -> Iterator[None]:
    """Let the command get SIGHUP, also where the tests run under nohup: what they start inherits that it is ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture(autouse=True, scope="session")
def one_parser() -> Iterator[None]:
    """Build the parser of all verbs once. Typer builds it for each command line, which takes three times as long as a
    small verb itself; it depends on the code alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", cache(typer.main.get_command))
        yield


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the command runs; it has an app in `shop.py`."""
    (tmp_path / "shop.py").write_text(APP)
    return tmp_path


@pytest.fixture
def cli(folder: Path, database: str) -> Iterator[Cli]:
    """The command on a migrated database of either engine."""
    cli = Cli(folder, database)
    yield cli
    cli.close()


@pytest.fixture
def lite(folder: Path) -> Iterator[Cli]:
    """The command on a SQLite file: for what has nothing to do with the engine."""
    (folder / "lite.db").touch()
    cli = Cli(folder, f"sqlite:///{folder}/lite.db")
    yield cli
    cli.close()


@pytest.fixture
def lite_here(lite: Cli, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Inside:
    """The command in this process, on the SQLite file of `lite`."""
    return Inside.enter(lite.folder, lite.env["ROWLOCK_DATABASE_URL"], monkeypatch, capsys)


@pytest.fixture
def inside(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Inside:
    """The command in this process, on a SQLite file."""
    (folder / "inside.db").touch()
    return Inside.enter(folder, f"sqlite:///{folder}/inside.db", monkeypatch, capsys)


@pytest.fixture
def here(cli: Cli, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Inside:
    """The command in this process, on the database of `cli`."""
    return Inside.enter(cli.folder, cli.env["ROWLOCK_DATABASE_URL"], monkeypatch, capsys)
