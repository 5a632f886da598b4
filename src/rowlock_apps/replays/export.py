"""One export: a replay's file in, an MP4 or a PNG out. The worker of Rowlock and the one behind Redis both call it.

It knows neither of them: files in, files out, and a function that is told the progress.
"""

from __future__ import annotations

import asyncio
import errno
import math
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from rowlock_apps.replays import drawing, encoder
from rowlock_apps.replays.replay import ExportFailed, Replay, check, load

MP4, THUMBNAIL = "REPLAY_MP4", "REPLAY_THUMBNAIL"  # the document's job types
FILE_NAMES = {MP4: "replay.mp4", THUMBNAIL: "thumbnail.png"}
LONGEST_SECONDS = 15 * 60  # an export of ten minutes takes about one; one that takes this long hangs
PER_SECOND = 24
FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)

Tell = Callable[[int, str, str], None]  # percent, phase, message


async def export(job_type: str, source: Path, target: Path, duration_ms: int, tell: Tell) -> None:
    """Write the export of a replay to `target`, which must not exist. `duration_ms` of 0 is the replay's own duration.
    Raises ExportFailed; can be cancelled at any moment."""
    tell(0, "reading", "")
    replay = await asyncio.to_thread(load, source)
    duration = duration_ms or replay.duration_ms
    check(len(replay.frames), duration)
    try:
        if job_type == MP4:
            await _mp4(replay, duration, target, tell)
        elif job_type == THUMBNAIL:
            tell(50, "drawing", "")
            await asyncio.to_thread(drawing.save_thumbnail, replay, duration, target)
        else:
            raise ExportFailed("UNKNOWN_JOB_TYPE", f"{job_type!r:.100} is none of {', '.join(FILE_NAMES)}")
    except OSError as error:
        raise cannot_write(target, error) from None


def cannot_write(target: Path, error: OSError) -> ExportFailed:
    """The failure of an export whose file cannot be written."""
    if error.errno in FULL:
        return ExportFailed("DISK_FULL", f"there is no space for {target.name}: {error.strerror}")
    return ExportFailed("CANNOT_WRITE", f"cannot write {target.name}: {error.strerror or error}")


async def _mp4(replay: Replay, duration: int, target: Path, tell: Tell) -> None:
    total = max(1, math.ceil(duration * PER_SECOND / 1000))

    async def pictures() -> AsyncIterator[bytes]:
        for number in range(total):
            # In a thread: drawing takes a processor, and the event loop has other jobs to look after.
            yield await asyncio.to_thread(drawing.frame, replay, number * 1000 / PER_SECOND, duration)

    def encoded(number: int) -> None:
        tell(min(99, 100 * number // total), "encoding", f"frame {min(number, total)} of {total}")

    size = (drawing.WIDTH, drawing.HEIGHT)
    await encoder.encode(pictures(), size, PER_SECOND, target, encoded)
