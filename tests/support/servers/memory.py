"""Temporary files in memory, where a tmpfs has room.

Databases are made, filled and removed thousands of times in a run, and no test asks what a crash of the machine leaves
on its disk.
"""

import os
import shutil
import tempfile

import psutil

MEMORY = "/dev/shm"
ROOM = 8 << 30  # bytes free in the tmpfs and in memory; a whole run uses less than one eighth


def use_memory_for_files() -> None:
    """Let `tmp_path`, PostgreSQL servers and child processes use it, unless TMPDIR says where files belong."""
    if "TMPDIR" not in os.environ and has_room(MEMORY):
        os.environ["TMPDIR"] = tempfile.tempdir = MEMORY


def has_room(folder: str) -> bool:
    """Whether programs may be run from the folder (a container often forbids it) and enough memory is free."""
    if not os.access(folder, os.W_OK) or os.statvfs(folder).f_flag & os.ST_NOEXEC:
        return False
    return min(shutil.disk_usage(folder).free, psutil.virtual_memory().available) > ROOM
