"""`rowlock demo replays`, as a process."""

import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import urllib.request

import psutil

SHOWN = [
    "refused: bob asks for a video of ana's replay: 404 REPLAY_NOT_FOUND",
    "refused: ana asks for a video of a replay without frames: 422 NO_FRAMES",
    "job.completed: set 1, thumbnail",
    "job.completed: set 1, MP4",
    "job.completed: set 2, MP4",
    "job.cancelled: the whole match, MP4",
    "checksum right; for bob it is a 404",
    "3 exports succeeded",
    "1 was cancelled",
]
COMMAND = [sys.executable, "-m", "rowlock", "demo", "replays"]


def environment(folder: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ROWLOCK_", "JOBS_"))}
    return kept | {"TMPDIR": folder, "TERM": "xterm"}


def test_the_demo_ends_well_and_leaves_nothing_behind() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # a short name: sockets are made in it
        done = subprocess.run(
            [*COMMAND, "--once"],
            cwd=folder,
            env=environment(folder),
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert [line for line in SHOWN if line not in done.stdout] == [], done.stdout
        assert os.listdir(folder) == []
        assert [process for process in psutil.process_iter() if _is_in(process, folder)] == []


def test_on_a_terminal_the_demo_prints_a_login_link_for_each_user_and_stays_until_ctrl_c() -> None:
    """The first Ctrl-C closes the users' page, the second one the operators' dashboard."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        here, there = pty.openpty()
        process = subprocess.Popen(COMMAND, cwd=folder, env=environment(folder), stdout=there, stderr=there)
        os.close(there)
        said = ""
        try:
            while "goes on to the operators' dashboard" not in said and (part := _read(here)):
                said += part
            links = re.findall(r"(ana|bob)\s+(http://127\.0\.0\.1:\d+)/#once=\S+", said)
            assert [name for name, _ in links] == ["ana", "bob"], said
            with urllib.request.urlopen(f"{links[0][1]}/readyz", timeout=30) as answer:
                assert answer.status == 200
            process.send_signal(signal.SIGINT)
            while "Ctrl-C ends the demo" not in said and (part := _read(here)):
                said += part
            process.send_signal(signal.SIGINT)
            while part := _read(here):
                said += part
            assert process.wait(30) == 0, said
        finally:
            process.kill()
            process.wait(10)
            os.close(here)


def _read(terminal: int) -> str:
    """What a process has written; empty when it has ended."""
    try:
        return os.read(terminal, 4096).decode(errors="replace")
    except OSError:
        return ""


def _is_in(process: psutil.Process, folder: str) -> bool:
    try:
        return process.cwd() == folder
    except psutil.Error:
        return False
