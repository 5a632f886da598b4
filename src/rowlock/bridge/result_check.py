"""The file that a worker behind Redis names as its result: opened below the folder alone, and read in full."""

from __future__ import annotations

import errno
import hashlib
import os

from rowlock.bridge.messages import checksum
from rowlock.client.results import INVALID_PATH, OutsideOfFolder, ResultFolder
from rowlock.core.outcome import Failed

MISMATCH = "CHECKSUM_MISMATCH"
# What is wrong with the path or the file. Other errors are those of a disk or a network, and pass.
OF_THE_FILE = {errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.EINVAL, errno.ENXIO, errno.EILSEQ}


def check(folder: ResultFolder, uri: str, said: str, most_bytes: int) -> str | Failed:
    """The file's checksum if it is there and the worker said the same; else how the attempt has failed. Blocks. Raises
    OSError when nothing can be said now: the folder of results is away, or its disk is broken."""
    wanted = checksum(said)
    if wanted is None:
        what = f"{said!r:.100} is no SHA-256" if said else "the worker sent no checksum"
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
        return Failed(MISMATCH, f"{uri}: its content has {found}, the worker said {wanted}", permanent=True)
    return found
