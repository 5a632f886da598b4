"""A real PgBouncer in front of one PostgreSQL server, on a free port of 127.0.0.1."""

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from support.servers.parts import PARTS
from support.servers.postgres import free_port, make_folder, other_user

START_SECONDS = 30.0
SETTINGS = """
[databases]
* = host={host} port={port} user={user}{password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = {size}
server_connect_timeout = 60
"""


@asynccontextmanager
async def pgbouncer(url: str, mode: str, size: int = 100) -> AsyncIterator[str]:
    """Run one in this mode; yields the URL of the same database through it. A test with it is marked
    `needs("pgbouncer")`."""
    folder = make_folder()  # PgBouncer does not run as root; the folder belongs to the user that it runs as
    try:
        process, port = await _start(folder, url, mode, size)
        try:
            parts = urlsplit(url)
            yield f"postgresql://{parts.username}@127.0.0.1:{port}{parts.path}"
        finally:
            process.kill()
            process.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _start(folder: Path, url: str, mode: str, size: int) -> tuple[subprocess.Popen[bytes], int]:
    for _ in range(5):  # another process may take the port between the look and the start
        port = free_port()
        process = _launch(folder, url, mode, size, port)
        if await _listens(process, port):
            return process, port
        process.kill()
        process.wait()
    raise RuntimeError(f"PgBouncer did not start:\n{(folder / 'pgbouncer.log').read_text(errors='replace')[-2000:]}")


def _launch(folder: Path, url: str, mode: str, size: int, port: int) -> subprocess.Popen[bytes]:
    server, program = urlsplit(url), PARTS["pgbouncer"].find()
    assert program is not None
    settings = folder / "pgbouncer.ini"
    settings.write_text(
        SETTINGS.format(
            host=server.hostname,
            port=server.port or 5432,
            user=server.username,
            password=f" password='{server.password}'" if server.password else "",
            listen=port,
            mode=mode,
            size=size,
        )
    )
    settings.chmod(0o644)
    user: dict[str, Any] = {}
    if other := other_user():
        user = {"user": other.pw_uid, "group": other.pw_gid, "extra_groups": []}
    with open(folder / "pgbouncer.log", "wb") as log:
        return subprocess.Popen([program, str(settings)], stdout=log, stderr=log, cwd=folder, **user)


async def _listens(process: subprocess.Popen[bytes], port: int) -> bool:
    """Whether it accepts connections before it has ended or its time is up."""
    deadline = asyncio.get_running_loop().time() + START_SECONDS
    while process.poll() is None and asyncio.get_running_loop().time() < deadline:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.02)
            continue
        writer.close()
        return process.poll() is None
    return False
