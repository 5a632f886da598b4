"""Whether a folder is on a network filesystem: SQLite's locks are not reliable there, and the file may be corrupted."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

log = logging.getLogger("rowlock.store")

NETWORK = {
    *("nfs", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "afs", "ncpfs", "9p", "ceph", "glusterfs", "lustre"),
    *("gfs2", "ocfs2", "beegfs", "davfs", "afpfs", "webdav"),
    *("fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.davfs2"),
}


def network_filesystem(folder: Path, mounts: str | None = None) -> str | None:
    """The kind of network filesystem that `folder` is on, such as "nfs4"; None if it is local, or if that is unknown.
    For programs that keep an SQLite file. `mounts` is the text of /proc/mounts, for tests."""
    if mounts is None:
        if not sys.platform.startswith("linux"):
            return None
        try:
            mounts = Path("/proc/mounts").read_text(errors="replace")
        except OSError as error:  # no /proc here, or no descriptor left: opening the file will tell
            log.warning("whether %s is on a network filesystem cannot be found out: %s", folder, error)
            return None
    best, kind = "", ""
    target = str(folder.resolve())
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        point = fields[1].replace("\\040", " ")
        inside = target == point or target.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind if kind in NETWORK else None
