"""Bells of SQLite workers: sockets in a folder of the machine, which a killed process cannot take down."""

import socket
from pathlib import Path

from rowlock.store.bells import DatagramBell, ring


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
