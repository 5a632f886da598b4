"""One export: a replay's file in, an MP4 or a PNG out. The worker of Rowlock and the one behind Redis both call it.

It knows neither of them: files in, files out, and a function that gets the progress.
"""

from __future__ import annotations

import asyncio
import errno
import math
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from PIL import Image, ImageDraw

from rowlock_apps.replays import encoder
from rowlock_apps.replays.replay import ExportFailed, Replay, check, load

MP4, THUMBNAIL = "REPLAY_MP4", "REPLAY_THUMBNAIL"  # the document's job types
FILE_NAMES = {MP4: "replay.mp4", THUMBNAIL: "thumbnail.png"}
LONGEST_SECONDS = 15 * 60  # an export of ten minutes takes about one; one that takes this long hangs
PER_SECOND = 24
WIDTH, HEIGHT = 320, 180  # even numbers: H.264 needs them
RADIUS = 9
GROUND, LINES, BAR = "#10131a", "#2a3140", "#f5d90a"
FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)

Report = Callable[[int, str, str], object]  # percent, phase, message


async def export(job_type: str, source: Path, target: Path, duration_ms: int, report: Report) -> None:
    """Write the export of a replay to `target`, which must not exist. `duration_ms` of 0 is the replay's own duration.
    Raises ExportFailed; can be cancelled at any moment."""
    report(0, "reading", "")
    replay = await asyncio.to_thread(load, source)
    duration = duration_ms or replay.duration_ms
    check(len(replay.frames), duration)
    try:
        if job_type == MP4:
            await _mp4(replay, duration, target, report)
        elif job_type == THUMBNAIL:
            report(50, "drawing", "")
            await asyncio.to_thread(save_thumbnail, replay, duration, target)
        else:
            raise ExportFailed("UNKNOWN_JOB_TYPE", f"{job_type!r:.100} is none of {', '.join(FILE_NAMES)}")
    except OSError as error:
        raise cannot_write(target, error) from None


def cannot_write(target: Path, error: OSError) -> ExportFailed:
    """The failure of an export whose file cannot be written."""
    if error.errno in FULL:
        return ExportFailed("DISK_FULL", f"there is no space for {target.name}: {error.strerror}")
    return ExportFailed("CANNOT_WRITE", f"cannot write {target.name}: {error.strerror or error}")


async def _mp4(replay: Replay, duration: int, target: Path, report: Report) -> None:
    total = max(1, math.ceil(duration * PER_SECOND / 1000))

    async def pictures() -> AsyncIterator[bytes]:
        for number in range(total):
            # In a thread: drawing takes a processor, and the event loop has other jobs to look after.
            yield await asyncio.to_thread(frame, replay, number * 1000 / PER_SECOND, duration)

    def encoded(number: int) -> None:
        report(min(99, 100 * number // total), "encoding", f"frame {min(number, total)} of {total}")

    await encoder.encode(pictures(), (WIDTH, HEIGHT), PER_SECOND, target, encoded)


# --- pictures


def picture(replay: Replay, moment: float, duration_ms: int) -> Image.Image:
    """The arena at a moment in milliseconds: a disc for each player, and a bar that shows how much has been played."""
    image = Image.new("RGB", (WIDTH, HEIGHT), GROUND)
    draw = ImageDraw.Draw(image)
    draw.rectangle((4, 4, WIDTH - 5, HEIGHT - 13), outline=LINES)
    draw.line((WIDTH // 2, 4, WIDTH // 2, HEIGHT - 13), fill=LINES)
    for player, (x, y) in zip(replay.players, replay.positions_at(moment), strict=True):
        left, top = 4 + x * (WIDTH - 9), 4 + y * (HEIGHT - 17)
        draw.ellipse((left - RADIUS, top - RADIUS, left + RADIUS, top + RADIUS), fill=player.color)
    draw.rectangle((0, HEIGHT - 5, WIDTH * min(1.0, moment / duration_ms), HEIGHT - 1), fill=BAR)
    return image


def frame(replay: Replay, moment: float, duration_ms: int) -> bytes:
    """The arena as raw pixels, three bytes each, for the encoder."""
    return picture(replay, moment, duration_ms).tobytes()


def save_thumbnail(replay: Replay, duration_ms: int, target: Path) -> None:
    """Write the middle of the replay as a PNG."""
    with target.open("xb") as file:  # never over a file that is there
        picture(replay, duration_ms / 2, duration_ms).save(file, "PNG")
