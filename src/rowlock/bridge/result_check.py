"""Checks the result file that a worker behind Redis names: it must be in the results folder and match its checksum."""

from __future__ import annotations

import errno
import hashlib
import os

from rowlock.bridge.messages import checksum
from rowlock.client.results import INVALID_PATH, OutsideOfFolder, ResultFolder
from rowlock.core.outcome import Failed

MISMATCH = "CHECKSUM_MISMATCH"
# Errors of the path or the file itself. All other errors are faults of a disk or network, which may be temporary.
OF_THE_FILE = {errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.EINVAL, errno.ENXIO, errno.EILSEQ}


def check(folder: ResultFolder, uri: str, said: str, most_bytes: int) -> str | Failed:
    """The file's checksum if it equals the one that the worker reported, else the failure of the attempt. Blocks.
    Raises OSError if the file cannot be checked now: the results folder is missing, or its disk has a fault."""
    wanted = checksum(said)
    if wanted is None:
        what = f"{said!r:.100} is not a SHA-256 checksum" if said else "the worker sent no checksum"
        return Failed(MISMATCH, f"{uri}: {what}", permanent=True)
    try:
        with folder.opened(uri) as opened:
            size = os.fstat(opened).st_size
            if size > most_bytes:
                too_large = f"{uri} has {size:,} bytes; results.file_bytes allows {most_bytes:,}"
                return Failed("RESULT_TOO_LARGE", too_large, permanent=True)
            with open(os.dup(opened), "rb") as file:
                found = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    except (OutsideOfFolder, OSError) as error:
        if isinstance(error, OSError) and (error.errno not in OF_THE_FILE or not folder.path.is_dir()):
            raise
        why = "no regular file, or behind a symbolic link" if isinstance(error, OutsideOfFolder) else error.strerror
        return Failed(INVALID_PATH, f"{uri} cannot be read: {why}", permanent=True)
    if found != wanted:
        return Failed(MISMATCH, f"{uri}: the file has {found}, but the worker reported {wanted}", permanent=True)
    return found
