"""Services of `Type=notify`: the messages that systemd waits for."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rowlock import Rowlock
from rowlock.api.server import run_server
from rowlock.cli.run.supervisor import Supervisor
from rowlock.core.config import Settings
from rowlock.worker.lifecycle import run_everything
from rowlock.worker.systemd import Notifier
from support.each import each

LIMIT = 30.0
APP = "from rowlock import Rowlock\napp = Rowlock('sqlite:///jobs.db')\n@app.task('t')\nasync def t() -> None: ...\n"


class Manager:
    """The side of systemd."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address.replace("@", "\0", 1))
        self.socket.setblocking(False)

    async def next(self) -> str:
        async with asyncio.timeout(LIMIT):
            return (await asyncio.get_running_loop().sock_recv(self.socket, 1000)).decode()

    async def until(self, wanted: str) -> set[str]:
        """Which messages came before this one."""
        found = set()
        async with asyncio.timeout(LIMIT):
            while (message := await self.next()) != wanted:
                found.add(message)
        return found

    def close(self) -> None:
        self.socket.close()


def watched(address: str) -> dict[str, str]:
    """The environment of a service that must show a sign of life every 200 ms."""
    return {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "200000"}


async def serve(app: Rowlock) -> None:
    async def listening(address: tuple[str, int]) -> None: ...

    await run_server(app, listening)


SERVICES: dict[str, Callable[[Rowlock], Coroutine[Any, Any, None]]] = {
    "worker": lambda app: app.run_worker(),
    "dispatcher": lambda app: app.run_dispatcher(),
    "worker and dispatcher": run_everything,
    "API": serve,
}


@pytest.mark.usefixtures("handlers")
@each("service", SERVICES)
async def test_every_service_reports_its_start_its_life_and_its_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, service: str
) -> None:
    address = f"{tmp_path}/notify {service}"
    settings = Settings.model_validate({"database": f"sqlite:///{tmp_path}/jobs.db", "api": {"port": 0}})
    with closing(Manager(address)) as manager, monkeypatch.context() as patch:
        for name, value in watched(address).items():
            patch.setenv(name, value)
        async with Rowlock(settings=settings) as app:
            serving = asyncio.create_task(SERVICES[service](app))
            assert await manager.next() == "READY=1"
            assert [await manager.next() for _ in range(3)] == ["WATCHDOG=1"] * 3
            signal.raise_signal(signal.SIGTERM)
            assert await manager.until("STOPPING=1") <= {"WATCHDOG=1"}
            await asyncio.wait_for(serving, LIMIT)


@pytest.mark.usefixtures("handlers")
async def test_of_several_worker_processes_only_the_supervisor_reports_to_systemd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in watched(f"{tmp_path}/notify").items():
        monkeypatch.setenv(name, value)
    child = "import os, signal, sys; open(sys.argv[1], 'w').write(str(dict(os.environ))); signal.pause()"
    environments = [tmp_path / "1", tmp_path / "2"]
    with closing(Manager(f"{tmp_path}/notify")) as manager:
        supervisor = Supervisor(lambda number: [sys.executable, "-IS", "-c", child, str(environments[number - 1])], 2)
        serving = asyncio.create_task(supervisor.run())
        assert await manager.next() == "READY=1"
        async with asyncio.timeout(LIMIT):
            while not all(file.exists() and "}" in file.read_text() for file in environments):
                assert await manager.next() == "WATCHDOG=1"
        signal.raise_signal(signal.SIGTERM)
        assert await manager.until("STOPPING=1") <= {"WATCHDOG=1"}
        assert await asyncio.wait_for(serving, LIMIT) == 0
    assert not [file for file in environments if "NOTIFY_SOCKET" in file.read_text()]


async def test_the_command_of_a_worker_is_a_service_of_type_notify(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(APP)
    env = {key: value for key, value in os.environ.items() if not key.startswith("ROWLOCK_")}
    env |= watched(f"{tmp_path}/notify")
    with closing(Manager(f"{tmp_path}/notify")) as manager:
        command = [sys.executable, "-m", "rowlock", "worker", "--app", "jobs"]
        process = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, env=env)
        try:
            assert await manager.next() == "READY=1"
            process.send_signal(signal.SIGTERM)
            assert await manager.until("STOPPING=1") <= {"WATCHDOG=1"}
            assert await asyncio.wait_for(process.wait(), LIMIT) == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


@each("place", ["file", "abstract"])
async def test_messages_go_to_a_socket_in_a_file_and_in_the_abstract_namespace(tmp_path: Path, place: str) -> None:
    address = f"@rowlock-test-{os.getpid()}-{tmp_path.name}" if place == "abstract" else f"{tmp_path}/notify"
    environ = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "10000000", "WATCHDOG_PID": str(os.getpid()), "HOME": "/"}
    with closing(Manager(address)) as manager:
        notifier = Notifier(environ)
        assert environ == {"HOME": "/"}  # what a job starts does not speak for this process
        notifier.ready()
        notifier.stopping()
        assert await manager.next() == "READY=1"
        assert await manager.next() == "STOPPING=1"
        notifier.close()


async def test_a_watchdog_of_another_process_is_not_answered(tmp_path: Path) -> None:
    manager = Manager(f"{tmp_path}/notify")
    notifier = Notifier({"NOTIFY_SOCKET": f"{tmp_path}/notify", "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"})
    notifier.ready()
    assert notifier._beating is None
    assert await manager.next() == "READY=1"
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
