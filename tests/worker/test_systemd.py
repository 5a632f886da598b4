"""Services of `Type=notify`: the messages that systemd waits for, from real processes."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from rowlock.worker.systemd import Notifier
from support.each import each

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

    def close(self) -> None:
        self.socket.close()


SERVICES = {
    "worker": ["worker", "--app", "jobs"],
    "worker of two processes": ["worker", "--app", "jobs", "--processes", "2"],
    "dispatch": ["dispatch", "--app", "jobs"],
    "up": ["up", "--app", "jobs", "--port", "0"],
    "serve": ["serve", "--app", "jobs", "--port", "0"],
}


@pytest.mark.timeout(300)  # five services one after the other
@each("service", SERVICES)
def test_every_service_says_that_it_has_started_lives_and_stops(tmp_path: Path, service: str) -> None:
    (tmp_path / "jobs.py").write_text(APP)
    address = f"{tmp_path}/{service}"
    env = {key: value for key, value in os.environ.items() if not key.startswith("ROWLOCK_")}
    env |= {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "200000"}
    with closing(Manager(address)) as manager:
        process = subprocess.Popen([sys.executable, "-m", "rowlock", *SERVICES[service]], cwd=tmp_path, env=env)
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


@each("place", ["file", "abstract"])
async def test_messages_go_to_a_socket_in_a_file_and_in_the_abstract_namespace(tmp_path: Path, place: str) -> None:
    address = f"@rowlock-test-{os.getpid()}-{tmp_path.name}" if place == "abstract" else f"{tmp_path}/notify"
    environ = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "10000000", "WATCHDOG_PID": str(os.getpid()), "HOME": "/"}
    with closing(Manager(address)) as manager:
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
    manager.close()


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
