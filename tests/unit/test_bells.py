"""Bells of SQLite workers: sockets in a folder of the machine, which a killed process cannot take down."""

import logging
import resource
import socket
import tempfile
from pathlib import Path

import pytest

from rowlock import Rowlock
from rowlock.store import bells
from rowlock.store.bells import DatagramBell, SilentBell, ring


async def test_the_bells_of_the_killed_go_when_the_next_worker_comes(tmp_path: Path) -> None:
    file = tmp_path / "jobs.db"
    first = DatagramBell.open(file, lambda what: None)
    assert first.address is not None
    folder = Path(first.address).parent
    dead = folder / "dead.bell"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as killed:
        killed.bind(str(dead))
    second = DatagramBell.open(file, lambda what: None)
    assert second.address is not None
    assert {str(bell) for bell in folder.iterdir()} == {first.address, second.address}
    ring([first.address], "work")
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


def test_who_cannot_ring_says_so_once_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(bells, "_warned", -bells.WARN_SECONDS)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        for _ in range(3):
            ring([str(tmp_path / "a.bell")], "work")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "Too many open files" in caplog.text


async def test_without_a_descriptor_there_is_no_bell(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        bell = DatagramBell.open(tmp_path / "jobs.db", lambda what: None)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert isinstance(bell, SilentBell)
