"""The README: its commands and its snippet, run as a newcomer does."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil

import rowlock_apps.stickers
from apps.stickers.rig import Process

README = (Path(rowlock_apps.stickers.__file__).parent / "README.md").read_text()


def block(language: str, having: str) -> str:
    """The one block of the README that has these words."""
    (found,) = (text for text in re.findall(rf"^```{language}\n(.*?)^```", README, re.M | re.S) if having in text)
    return str(found)


def plain(**more: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("ROWLOCK_", "STICKERS_"))} | more


SHOWN = [
    "clicked twice: one order, one charge",
    "refused: user 'zoe' has no credit left",
    "kill -9 of replica",
    "reclaimed from",
    "does not fit on a sticker",
    "9 stickers drawn",
    "1 could not be drawn and was paid back",
]


def test_the_demo_ends_well_and_leaves_nothing_behind() -> None:
    """S1.14, S1.21: two replicas on a SQLite file, one of them killed."""
    (command,) = (line.split() for line in block("sh", "demo").splitlines())
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # a short name: sockets are made in it
        done = subprocess.run(
            [sys.executable, "-m", *command, "--once"],
            cwd=folder,
            env=plain(TMPDIR=folder),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert [line for line in SHOWN if line not in done.stdout] == []
        assert os.listdir(folder) == []
        assert [process for process in psutil.process_iter() if _is_in(process, folder)] == []


async def test_the_readme_takes_a_newcomer_to_a_sticker(tmp_path: Path) -> None:
    (command, *_) = (line for line in block("sh", "rowlock up").splitlines() if line.startswith("rowlock up"))
    (tmp_path / "order.py").write_text(block("python", "submit"))
    with Process(tmp_path / "up.log", plain(), "-m", *command.partition("#")[0].split()) as up:
        await up.says("Worker started")
        with Process(tmp_path / "order.log", plain(), "order.py") as order:
            assert await order.ends() == 0, order.log
        watch, env = block("sh", "rowlock stats").split(), plain(ROWLOCK_DATABASE_URL="sqlite:///stickers.db")
        with Process(tmp_path / "stats.log", env, "-m", *watch) as stats:
            assert await stats.ends() == 0, stats.log
        # One, or two: every five minutes the ledger is looked through.
        assert re.search(r"succeeded  [12] in the last", stats.log), stats.log
        assert await up.stop() == 0
    (file,) = (tmp_path / "stickers").iterdir()
    assert str(file) in order.log
    assert "2 credits left" in order.log


def _is_in(process: psutil.Process, folder: str) -> bool:
    try:
        return process.cwd() == folder
    except psutil.Error:
        return False
