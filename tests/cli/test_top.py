"""`rowlock top`: the picture, and a terminal that is left as it was found."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import psycopg
import pytest

from cli.command import LIMIT, Cli, Inside, wait_until
from rowlock.cli.inspect.top_screen import shares, span, sparkline, speed

ENTER, LEAVE, CURSOR = b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?25h"


def test_a_picture_for_scripts_has_queues_sources_and_workers(inside: Inside) -> None:
    for _ in range(3):
        inside.out("enqueue", "add", "a=1", "--app", "shop")
    inside.out("enqueue", "add", "a=1", "--app", "shop", "--delay", "1h")
    inside.out("sources", "set", "api:ebay", "--rate", "30/min")
    inside.out("sources", "pause", "api:ebay", "--for", "1h")
    first, *lines = inside.out("top", "--once").splitlines()
    assert first == "workers 0 · slots 0/0 · 0.0 jobs/s · failed 0.0 %"
    text = "\n".join(lines)
    assert re.search(r"^QUEUE +READY +LATER +RUNNING +OLDEST +DONE/5m +P95 RUN +LAST 15 MIN$", text, re.M)
    assert re.search(r"^default +3 +1 +0 +\S+ m?s +0 +- +▁{15}$", text, re.M)
    assert re.search(r"^api:ebay +paused +0 +\d+/\d+ +(1 h|59 min \d+ s)$", text, re.M)
    found = inside.json("top", "--once")
    assert [queue["live"]["queued"] for queue in found["queues"]] == [4]


def test_without_a_terminal_it_says_what_to_use(inside: Inside) -> None:
    assert "--once" in inside.error("top", code=2)


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, cli: Cli, *words: str, rows: int = 30, columns: int = 100) -> None:
        self.controller, terminal = pty.openpty()
        self.resize(rows, columns)
        self.before = termios.tcgetattr(terminal)
        self.terminal = terminal
        command = [sys.executable, "-m", "rowlock", *words]
        self.process = subprocess.Popen(
            command,
            cwd=cli.folder,
            env=cli.env | {"TERM": "xterm-256color"},
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )
        self.output = b""

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.controller, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read_until(self, wanted: bytes, start: int = 0) -> int:
        """Wait for text behind a place in the output; returns where it ends."""
        deadline = time.monotonic() + LIMIT
        while (found := self.output.find(wanted, start)) < 0:
            assert time.monotonic() < deadline, self.output[-2000:]
            if select.select([self.controller], [], [], 0.1)[0]:
                self.output += os.read(self.controller, 65_536)
        return found + len(wanted)

    def read_to_the_end(self) -> int:
        """The exit code, after all output was read."""
        code = self.process.wait(LIMIT)
        while select.select([self.controller], [], [], 0)[0]:
            self.output += os.read(self.controller, 65_536)
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.terminal)
        os.close(self.controller)


@pytest.mark.parametrize(("engine", "way"), [("sqlite", "ctrl-c"), ("postgres", "q")])
def test_q_and_ctrl_c_leave_the_terminal_as_it_was(cli: Cli, way: str, folder: Path) -> None:
    cli.run("queues", "pause", "links")
    terminal = Terminal(cli, "top", "--every", "0.2")
    try:
        seen = terminal.read_until(b"LAST 15 MIN")
        assert ENTER in terminal.output
        terminal.read_until(b"links (paused)")
        terminal.resize(12, 60)
        os.kill(terminal.process.pid, signal.SIGWINCH)
        terminal.read_until(b"leaves", seen)  # drawn again
        if way == "q":
            os.write(terminal.controller, b"xq")
        else:
            os.kill(terminal.process.pid, signal.SIGINT)
        assert terminal.read_to_the_end() == 0
        assert terminal.output.rindex(LEAVE) > terminal.output.rindex(ENTER)
        assert terminal.output.rstrip().endswith((LEAVE, CURSOR))
        assert CURSOR in terminal.output
        assert b"Traceback" not in terminal.output
        assert termios.tcgetattr(terminal.terminal) == terminal.before
    finally:
        terminal.close()


def test_q_leaves_while_the_database_hangs(folder: Path, postgres_url: str) -> None:
    cli = Cli(folder, postgres_url)
    cli.run("migrate")
    waiting = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with psycopg.connect(postgres_url) as other, psycopg.connect(postgres_url, autocommit=True) as watching:
        other.execute("LOCK TABLE rowlock.jobs_live IN ACCESS EXCLUSIVE MODE")
        terminal = Terminal(cli, "top")
        try:
            wait_until(lambda: watching.execute(waiting).fetchone() is not None, "it waits for the lock")
            terminal.read_until(ENTER)
            os.write(terminal.controller, b"qq")
            assert terminal.read_to_the_end() == 0
            assert b"Traceback" not in terminal.output
            assert termios.tcgetattr(terminal.terminal) == terminal.before
        finally:
            terminal.close()
    cli.close()


def test_a_small_window_shows_a_part_of_each_table() -> None:
    assert shares([3, 2, 4], 20) == [3, 2, 4]
    assert shares([100, 1, 100], 21) == [10, 1, 10]
    assert shares([5, 0, 5], 4) == [2, 0, 2]


def test_numbers_are_short_and_bars_fill_the_line() -> None:
    assert [span(n) for n in (None, 12)] == ["-", "12 s"]
    assert sparkline([0, 0, 0]) == "▁▁▁"
    assert sparkline([0, 1, 50, 100]) == "▁▂▅█"
    assert (speed(0.25), speed(1234.5)) == ("0.2", "1 234")
