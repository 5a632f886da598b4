"""Stickers as pictures: a blob with a face and the prompt under it. A prompt always gives one picture."""

from __future__ import annotations

import colorsys
import hashlib
import math
import os
import random
from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFilter, ImageFont

SIZE = 512
BORDER = 13  # of white around the shape, as stickers have
LARGEST_TEXT, SMALLEST_TEXT = 44, 18
TEXT_WIDTH, TEXT_LINES = 440, 4
INK = (40, 34, 46, 255)

Color = tuple[int, int, int, int]
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


class DoesNotFit(Exception):
    """The prompt has too much text for a sticker."""


def draw(prompt: str) -> Image.Image:
    chance = random.Random(hashlib.sha256(prompt.encode()).digest())
    font, lines = _set(prompt)
    picture = Image.new("RGBA", (SIZE, SIZE))
    _blob(picture, chance)
    _face(picture, chance)
    _caption(picture, font, lines)
    return _cut_out(picture)


def save(picture: Image.Image, path: Path) -> dict[str, str]:
    """Write a PNG atomically: no reader ever sees half a file. Returns its path and checksum."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with part.open("wb") as file:
            picture.save(file, "PNG")
            file.flush()
            os.fsync(file.fileno())
        checksum = hashlib.sha256(part.read_bytes()).hexdigest()
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return {"path": str(path), "checksum": f"sha256:{checksum}"}


def contact_sheet(paths: Sequence[Path], columns: int = 6, cell: int = 160) -> Image.Image:
    """Many stickers on one page."""
    rows = max(1, math.ceil(len(paths) / columns))
    sheet = Image.new("RGB", (columns * cell, rows * cell), (226, 232, 240))
    for place, path in enumerate(paths):
        with Image.open(path) as sticker:
            small = sticker.convert("RGBA").resize((cell, cell), Image.Resampling.LANCZOS)
        sheet.paste(small, (place % columns * cell, place // columns * cell), small)
    return sheet


def _set(prompt: str) -> tuple[Font, list[str]]:
    """The largest letters with which the prompt fits."""
    for size in range(LARGEST_TEXT, SMALLEST_TEXT - 1, -2):
        font = ImageFont.load_default(size)
        lines = _wrapped(prompt, font)
        if lines is not None:
            return font, lines
    raise DoesNotFit(f"{prompt!r} does not fit on a sticker: use shorter words, or fewer")


def _wrapped(prompt: str, font: Font) -> list[str] | None:
    lines = [""]
    for word in prompt.split():
        longer = f"{lines[-1]} {word}".strip()
        if font.getlength(longer) <= TEXT_WIDTH:
            lines[-1] = longer
        else:
            lines.append(word)
    fits = len(lines) <= TEXT_LINES and all(font.getlength(line) <= TEXT_WIDTH for line in lines)
    return lines if fits else None


def _blob(picture: Image.Image, chance: random.Random) -> None:
    waves = [(number, chance.uniform(4, 26 / number), chance.uniform(0, math.tau)) for number in range(2, 7)]
    outline = []
    for step in range(360):
        angle = math.radians(step)
        radius = 150 + sum(height * math.sin(number * angle + shift) for number, height, shift in waves)
        outline.append((SIZE / 2 + radius * 1.12 * math.cos(angle), 200 + radius * math.sin(angle)))
    mask = Image.new("L", picture.size)
    ImageDraw.Draw(mask).polygon(outline, fill=255)
    picture.paste(_gradient(chance), mask=mask.filter(ImageFilter.GaussianBlur(1)))


def _gradient(chance: random.Random) -> Image.Image:
    hue = chance.random()
    top, bottom = _color(hue, 0.95), _color(hue + chance.uniform(0.08, 0.2), 0.78)
    shade = Image.linear_gradient("L").resize((SIZE, SIZE))
    return Image.composite(Image.new("RGBA", (SIZE, SIZE), bottom), Image.new("RGBA", (SIZE, SIZE), top), shade)


def _color(hue: float, value: float) -> Color:
    red, green, blue = colorsys.hsv_to_rgb(hue % 1, 0.55, value)
    return round(red * 255), round(green * 255), round(blue * 255), 255


def _face(picture: Image.Image, chance: random.Random) -> None:
    pen = ImageDraw.Draw(picture)
    apart, size, height = chance.randint(42, 70), chance.randint(15, 26), chance.randint(160, 190)
    for side in (-1, 1):
        x = SIZE // 2 + side * apart
        pen.ellipse((x - size, height - size, x + size, height + size), fill=INK)
        glint = size // 3
        pen.ellipse((x - glint, height - size + 5, x + glint, height - size + 5 + 2 * glint), fill="white")
    wide, open_ = chance.randint(24, 48), chance.randint(14, 42)
    mouth = (SIZE // 2 - wide, height + 34 - open_, SIZE // 2 + wide, height + 34 + open_)
    if chance.random() < 0.5:
        pen.chord(mouth, 0, 180, fill=(214, 72, 96, 255), outline=INK, width=5)
    else:
        pen.arc(mouth, 10, 170, fill=INK, width=7)


def _caption(picture: Image.Image, font: Font, lines: list[str]) -> None:
    pen = ImageDraw.Draw(picture)
    text = "\n".join(lines)
    where = (SIZE / 2, SIZE - 2 * BORDER)
    pen.multiline_text(where, text, INK, font, "md", align="center", stroke_width=7, stroke_fill="white")


def _hardened(trace: float) -> float:
    return min(255, max(0, (trace - 8) * 20))


def _cut_out(picture: Image.Image) -> Image.Image:
    """With a white border around everything that was drawn."""
    # Blurring and then keeping every pixel that is not empty makes the shape larger by about the blur's width.
    shape = picture.getchannel("A").filter(ImageFilter.GaussianBlur(BORDER * 0.6)).point(_hardened)
    sticker = Image.new("RGBA", picture.size, (255, 255, 255, 0))
    sticker.putalpha(shape)
    sticker.alpha_composite(picture)
    return sticker
