"""ffmpeg as a child process: raw pictures in, an MP4 out, and its progress on the way."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from rowlock_apps.replays.replay import ExportFailed

LAST_WORDS = 4000  # bytes of ffmpeg's messages that are kept
NO_SPACE = ("No space left on device", "File too large", "Disk quota exceeded")
Encoded = Callable[[int], None]  # gets the number of pictures that are encoded


def program() -> str:
    """`ffmpeg` on PATH, else that of the package imageio-ffmpeg."""
    if found := shutil.which("ffmpeg"):
        return found
    try:
        from imageio_ffmpeg import get_ffmpeg_exe  # type: ignore[import-untyped]

        return str(get_ffmpeg_exe())
    except (ImportError, RuntimeError):
        what_to_do = "install ffmpeg, or pip install 'rowlock[demo-media]'"
        raise ExportFailed("ENCODER_MISSING", f"there is no ffmpeg on PATH: {what_to_do}") from None


async def encode(
    pictures: AsyncIterator[bytes], size: tuple[int, int], per_second: int, target: Path, encoded: Encoded
) -> None:
    """Write an MP4 of these pictures to `target`, which must not exist. Raises ExportFailed. When this is cancelled,
    the process and everything that it has started are killed."""
    process = await _start(_command(program(), size, per_second, target))
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_feed(process, pictures))
            group.create_task(_follow(process, encoded))
            said = group.create_task(_last_words(process))
        code = await process.wait()
    except BaseExceptionGroup as failed:  # of the tasks; the first is the cause of the others
        await _kill(process)
        raise failed.exceptions[0] from None
    except BaseException:
        await _kill(process)
        raise
    if code != 0:
        raise _failure(code, said.result())
    if not await asyncio.to_thread(target.exists):
        raise ExportFailed("ENCODER_FAILED", "ffmpeg reported success, and wrote no file")


async def _start(command: list[str]) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    try:
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env=os.environ | {"LC_ALL": "C"},  # its messages about a full disk are compared
            start_new_session=True,  # its own process group, which can be killed as a whole
        )
    except OSError as error:
        raise ExportFailed("ENCODER_FAILED", f"{command[0]} cannot be started: {error.strerror}") from None


def _command(ffmpeg: str, size: tuple[int, int], per_second: int, target: Path) -> list[str]:
    width, height = size
    return [
        *(ffmpeg, "-hide_banner", "-nostdin", "-loglevel", "error", "-n"),
        *("-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", str(per_second), "-i", "pipe:0"),
        *("-progress", "pipe:1", "-stats_period", "0.2"),
        *(
            "-c:v",
            "libx264",
            "-preset",
            "veryfast",
            "-pix_fmt",
            "yuv420p",
            "-threads",
            "2",
            "-x264-params",
            "rc-lookahead=8",
        ),
        *("-movflags", "+faststart", "-f", "mp4", f"file:{target}"),
    ]


async def _feed(process: asyncio.subprocess.Process, pictures: AsyncIterator[bytes]) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has ended early; its exit code shows why
        async for one in pictures:
            process.stdin.write(one)
            await process.stdin.drain()
    process.stdin.close()


async def _follow(process: asyncio.subprocess.Process, encoded: Encoded) -> None:
    """Read lines such as `frame=24`, which ffmpeg writes a few times a second."""
    assert process.stdout is not None
    while part := await process.stdout.read(4096):
        numbers = [line.removeprefix(b"frame=").strip() for line in part.splitlines() if line.startswith(b"frame=")]
        if numbers and numbers[-1].isdigit():
            encoded(int(numbers[-1]))


async def _last_words(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    kept = b""
    while part := await process.stderr.read(4096):
        kept = (kept + part)[-LAST_WORDS:]
    return kept.decode(errors="replace").strip()


async def _kill(process: asyncio.subprocess.Process) -> None:
    """Kill the process and what it has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def _failure(code: int, said: str) -> ExportFailed:
    if code == -signal.SIGXFSZ or any(words in said for words in NO_SPACE):
        return ExportFailed("DISK_FULL", f"there is no space for the video: {said or 'a limit of its file size'}")
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return ExportFailed("ENCODER_FAILED", f"ffmpeg {how}: {said or 'it said nothing'}")
