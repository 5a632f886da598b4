"""The PostgreSQL server of a run, and the disk that databases lie on."""

import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from bench.catalog import ROOT
from bench.processes import Broken

sys.path.insert(0, str(ROOT / "tests"))  # the tests' own server: one way to start PostgreSQL is enough
from support.servers.postgres import PostgresServer

# Memory and WAL fit the load on a small machine; nothing that weakens a commit (fsync, synchronous_commit and
# full_page_writes stay at their defaults). Statements are counted only where a measure turns that on.
SERVER_SETTINGS: dict[str, str | int] = {"shared_buffers": "512MB", "max_wal_size": "8GB"}
COUNTING: dict[str, str | int] = {
    "shared_preload_libraries": "pg_stat_statements",
    "pg_stat_statements.track": "none",
}


def start_server() -> PostgresServer:
    """With statement counting loaded if the installation has it."""
    try:
        return PostgresServer(**SERVER_SETTINGS, **COUNTING).start()
    except RuntimeError:
        return PostgresServer(**SERVER_SETTINGS).start()


def disk_folder() -> Path:
    """A folder for databases on a disk: where fsync costs nothing, nothing that matters here is measured."""
    for place in (tempfile.gettempdir(), "/var/tmp", str(ROOT)):
        if Path(place).is_dir() and filesystem(Path(place)) not in ("tmpfs", "ramfs"):
            return Path(place)
    raise Broken("no folder on a disk was found; set TMPDIR to one")


def filesystem(folder: Path) -> str:
    """The kind of file system a folder is on, as Linux tells; empty elsewhere."""
    best, kind = "", ""
    with suppress(OSError):
        for line in Path("/proc/mounts").read_text().splitlines():
            _, place, found, *_ = line.split()
            inside = folder.resolve().is_relative_to(place)
            if inside and len(place) >= len(best):
                best, kind = place, found
    return kind
