"""Services of `Type=notify`: the messages that systemd waits for, from real processes."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rowlock.worker.systemd import Notifier

APP = "from rowlock import Rowlock\napp = Rowlock('sqlite:///jobs.db')\n@app.task('t')\nasync def t() -> None: ...\n"


class Manager:
    """The side of systemd."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address.replace("@", "\0", 1))
        self.socket.settimeout(30)

    def next(self) -> str:
        return self.socket.recv(1000).decode()

    def until(self, wanted: str) -> list[str]:
        """The messages up to one."""
        found = [self.next()]
        while found[-1] != wanted:
            found.append(self.next())
        return found


@pytest.fixture(params=["file", "abstract"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"@rowlock-test-{os.getpid()}-{tmp_path.name}" if request.param == "abstract" else f"{tmp_path}/notify"


@pytest.fixture
def manager(address: str) -> Iterator[Manager]:
    made = Manager(address)
    yield made
    made.socket.close()


@pytest.mark.parametrize(
    "words",
    [
        ["worker", "--app", "jobs"],
        ["worker", "--app", "jobs", "--processes", "2"],
        ["dispatch", "--app", "jobs"],
        ["up", "--app", "jobs", "--port", "0"],
        ["serve", "--app", "jobs", "--port", "0"],
    ],
    ids=lambda words: "-".join(words[:1] + words[3:4]),
)
@pytest.mark.parametrize("address", ["file"], indirect=True)
def test_every_service_says_that_it_has_started_lives_and_stops(
    manager: Manager, address: str, tmp_path: Path, words: list[str]
) -> None:
    (tmp_path / "jobs.py").write_text(APP)
    env = {key: value for key, value in os.environ.items() if not key.startswith("ROWLOCK_")}
    env |= {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "200000"}
    process = subprocess.Popen([sys.executable, "-m", "rowlock", *words], cwd=tmp_path, env=env)
    try:
        assert manager.next() == "READY=1"
        assert [manager.next() for _ in range(3)] == ["WATCHDOG=1"] * 3
        process.send_signal(signal.SIGTERM)
        assert set(manager.until("STOPPING=1")) <= {"WATCHDOG=1", "STOPPING=1"}
        assert process.wait(30) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


async def test_messages_go_to_a_socket_in_a_file_and_in_the_abstract_namespace(manager: Manager, address: str) -> None:
    environ = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "10000000", "WATCHDOG_PID": str(os.getpid()), "HOME": "/"}
    notifier = Notifier(environ)
    assert environ == {"HOME": "/"}  # what a job starts does not speak for this process
    notifier.ready()
    notifier.stopping()
    assert manager.next() == "READY=1"
    assert manager.next() == "STOPPING=1"
    notifier.close()


async def test_a_watchdog_of_another_process_is_not_answered(tmp_path: Path) -> None:
    manager = Manager(f"{tmp_path}/notify")
    notifier = Notifier({"NOTIFY_SOCKET": f"{tmp_path}/notify", "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"})
    notifier.ready()
    assert notifier._beating is None
    assert manager.next() == "READY=1"
    manager.socket.close()


async def test_without_a_service_manager_and_with_one_that_is_gone_nothing_happens(tmp_path: Path) -> None:
    gone = f"{tmp_path}/gone"
    for environ in (
        {},
        {"NOTIFY_SOCKET": gone, "WATCHDOG_USEC": "100"},
        {"NOTIFY_SOCKET": "a" * 200, "WATCHDOG_USEC": "²"},
    ):
        notifier = Notifier(environ)
        notifier.ready()
        notifier.stopping()
        notifier.close()
        assert environ == {}, "the processes that this one starts must not answer for it"
        assert notifier._beating is None or notifier._beating.cancelling(), "it beats after its end"
