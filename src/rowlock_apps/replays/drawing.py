"""Pictures of a replay: the arena, a disc for each player, and a bar that shows how far the replay is."""

from __future__ import annotations

from pathlib import Path

from PIL import Image, ImageDraw

from rowlock_apps.replays.replay import Replay

WIDTH, HEIGHT = 320, 180  # even numbers: H.264 needs them
RADIUS = 9
GROUND, LINES, BAR = "#10131a", "#2a3140", "#f5d90a"


def picture(replay: Replay, moment: float, duration_ms: int) -> Image.Image:
    """The arena at a moment in milliseconds."""
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
