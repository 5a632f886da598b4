"""Wake-ups of SQLite workers: sockets in a folder of the machine, which a killed process leaves behind."""

import logging
import resource
import socket
import tempfile
from pathlib import Path

import pytest

from rowlock import Rowlock
from rowlock.store.engine.sqlite import wakeups
from rowlock.store.engine.sqlite.wakeups import DatagramWakeups, NoWakeups, send_wakeups


async def test_a_new_worker_removes_the_sockets_of_killed_processes(tmp_path: Path) -> None:
    file = tmp_path / "jobs.db"
    first = DatagramWakeups.open(file, lambda what: None)
    assert first.address is not None
    folder = Path(first.address).parent
    dead = folder / "dead.bell"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as killed:
        killed.bind(str(dead))
    second = DatagramWakeups.open(file, lambda what: None)
    assert second.address is not None
    assert {str(path) for path in folder.iterdir()} == {first.address, second.address}
    send_wakeups([first.address], "work")
    await second.close()
    await first.close()
    assert not folder.exists()


async def test_without_a_temporary_folder_a_worker_polls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    async with Rowlock(f"sqlite:///{tmp_path}/jobs.db") as app:

        @app.task
        async def note() -> None: ...

        async with app.worker(poll_interval_seconds=0.05), app.dispatcher():
            await (await note.enqueue()).wait(timeout=20)
    assert "new jobs are found by polling" in caplog.text


def test_wakeups_that_cannot_be_sent_are_warned_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(wakeups, "_warned", -wakeups.WARN_SECONDS)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        for _ in range(3):
            send_wakeups([str(tmp_path / "a.bell")], "work")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "Too many open files" in caplog.text


async def test_without_a_free_descriptor_there_are_no_wakeups(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        opened = DatagramWakeups.open(tmp_path / "jobs.db", lambda what: None)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert isinstance(opened, NoWakeups)
