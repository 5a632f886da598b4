"""The command on either engine, on SQLite alone, and inside this process where a process a case is too slow."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.command import APP, Cli
from rowlock.cli.main import execute
from support.stores import database, engine, template

__all__ = ["database", "engine", "template"]


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
    cli = Cli(folder, f"sqlite:///{folder}/lite.db")
    yield cli
    cli.close()


class Inside:
    """`rowlock …` without a process of its own."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def error(self, *words: str, code: int) -> str:
        """The one line on stderr of a command that fails with `code`."""
        assert execute(list(words)) == code
        told = self._capsys.readouterr()
        assert told.out == ""
        (line,) = told.err.splitlines()
        assert line.startswith("rowlock: ")
        return line.removeprefix("rowlock: ")


@pytest.fixture
def inside(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Inside:
    """The command in this process, in a folder with an app, on a SQLite file."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    monkeypatch.setenv("ROWLOCK_DATABASE_URL", f"sqlite:///{folder}/inside.db")
    return Inside(capsys)
