"""What tests know about videos, pictures and encoders."""

import io
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
from PIL import Image

from rowlock_apps.replays.encoder import program
from rowlock_apps.replays.export import HEIGHT, WIDTH
from support.web.remote import until


def is_mp4(content: bytes, seconds: float = 0.5) -> bool:
    """Whether ffmpeg decodes every frame of this video, and it has the right size and length."""
    with tempfile.NamedTemporaryFile(suffix=".mp4") as file:
        file.write(content)
        file.flush()
        command = [program(), "-hide_banner", "-i", file.name, "-f", "null", "-"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    frames = re.findall(r"frame=\s*(\d+)", done.stderr)
    size = f"{WIDTH}x{HEIGHT}"
    return size in done.stderr and "h264" in done.stderr and int(frames[-1]) == round(seconds * 24)


def is_png(content: bytes) -> bool:
    """Whether this is a picture of the arena with both players in it: they meet in the middle of the replay."""
    image = Image.open(io.BytesIO(content))
    image.load()
    middle = image.convert("RGB").getpixel((WIDTH // 2, (HEIGHT - 9) // 2))
    return image.format == "PNG" and image.size == (WIDTH, HEIGHT) and middle == (0x3E, 0x63, 0xDD)


def fake_ffmpeg(folder: Path, script: str) -> None:
    """A program `ffmpeg` in folder/bin, for the front of PATH."""
    (folder / "bin").mkdir(exist_ok=True)
    path = folder / "bin/ffmpeg"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def sleeping_ffmpeg(folder: Path) -> Callable[[], list[int]]:
    """An encoder that hangs, as does a process that it starts; answers what tells their ids."""
    fake_ffmpeg(folder, f"sleep 1000 &\necho $! >> {folder}/pids\necho $$ >> {folder}/pids\nwait")
    return lambda: [int(line) for line in (folder / "pids").read_text().split()] if (folder / "pids").exists() else []


async def wait_until_gone(pids: Sequence[int]) -> None:
    """Until none of these processes is alive."""

    def alive(pid: int) -> bool:
        try:
            return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    await until(lambda: not any(map(alive, pids)), lambda: f"{pids} are alive in {os.getcwd()}")
