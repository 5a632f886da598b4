"""The replays system as it is run: a server and a worker, each a process of its own, on one database."""

import hashlib
import os
import signal
import urllib.request
from pathlib import Path
from typing import Any

from cli.command import Background, Cli, wait_until
from rowlock_apps.replays import samples, service
from rowlock_apps.replays.app import Replays
from support.servers.postgres import free_port


class Place:
    """The system on one database and one port."""

    def __init__(self, folder: Path, database: str) -> None:
        self.folder, self._database = folder, database
        self._cli = Cli(folder, database)
        self._cli.env |= {"JOBS_EXPORT_PATH": str(folder / "exports"), "ROWLOCK_APP": "rowlock_apps.replays:app"}
        self._cli.env["ROWLOCK_WORKER__HEARTBEAT_SECONDS"] = "1"  # on SQLite a running job hears of its cancel by it
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._server: Background | None = None

    def open(self) -> Replays:
        """The system in the test's own process, to put rows in."""
        before = os.environ.get("JOBS_EXPORT_PATH")
        os.environ["JOBS_EXPORT_PATH"] = str(self.folder / "exports")
        try:
            return Replays(self._database)
        finally:
            os.environ.pop("JOBS_EXPORT_PATH")
            if before is not None:
                os.environ["JOBS_EXPORT_PATH"] = before

    def start(self) -> None:
        """A server and a worker."""
        self._cli.start("worker", "--log-level", "warning")
        self.serve()

    def serve(self) -> None:
        """A server that answers."""
        self._server = self._cli.start("serve", "--port", str(self._port), "--log-level", "warning")
        wait_until(self._ready, "the server answers", 60)

    def kill_server(self) -> None:
        """As if the machine had lost its power."""
        assert self._server is not None
        self._server.stop(signal.SIGKILL)

    def close(self) -> None:
        self._cli.close()

    def _ready(self) -> bool:
        try:
            urllib.request.urlopen(f"{self.url}/readyz", timeout=5)
        except OSError:
            return False
        return True


async def add_replay(app: Replays, owner: str, title: str, duration_ms: int = 2000) -> str:
    """The id of a new replay."""
    return str((await service.create_replay(app, owner, title, None, samples.sample(duration_ms))).id)


async def checksum_of(app: Replays, job_id: str) -> str:
    """What the job says about the file that it made."""
    found: Any = await app.job(job_id)
    return str(found.result_checksum)


def sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
