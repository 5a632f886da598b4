"""Pictures: the same for the same prompt, whole or not at all."""

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from rowlock_apps.stickers import drawing
from support.each import each


def test_a_prompt_has_one_picture(tmp_path: Path) -> None:
    once, again, other = (drawing.save(drawing.draw(text), tmp_path / text) for text in ("a cat", "a cat", "a dog"))
    assert once == again
    assert once["checksum"] != other["checksum"]
    with Image.open(once["path"]) as picture:
        picture.load()
        assert (picture.format, picture.size, picture.mode) == ("PNG", (512, 512), "RGBA")
        assert picture.getpixel((0, 0))[3] == 0  # cut out
        assert picture.getpixel((256, 250))[3] == 255


@each("prompt", ["x" * 90, "many words " * 18])
def test_a_prompt_that_does_not_fit_on_a_sticker_is_refused(prompt: str) -> None:
    with pytest.raises(drawing.DoesNotFit, match="does not fit on a sticker: use shorter words, or fewer"):
        drawing.draw(prompt)


def test_a_picture_that_breaks_off_leaves_the_old_one_and_nothing_else(tmp_path: Path) -> None:
    class Broken(Image.Image):
        def save(self, file: Any, *_: Any, **__: Any) -> None:
            file.write(b"half")
            raise OSError("no space left on device")

    file = tmp_path / "sticker.png"
    drawing.save(drawing.draw("a cat"), file)
    before = file.read_bytes()
    with pytest.raises(OSError, match="no space left"):
        drawing.save(Broken(), file)
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


def test_who_reads_a_picture_while_it_is_written_again_sees_a_whole_one(tmp_path: Path) -> None:
    file = tmp_path / "sticker.png"
    drawing.save(drawing.draw("a cat"), file)
    before = file.read_bytes()
    with file.open("rb") as reading:
        drawing.save(drawing.draw("a dog"), file)
        assert reading.read() == before


def test_a_contact_sheet_has_room_for_all(tmp_path: Path) -> None:
    files = [Path(drawing.save(drawing.draw(f"cat {n}"), tmp_path / f"{n}.png")["path"]) for n in range(7)]
    assert drawing.contact_sheet(files, columns=3, cell=50).size == (150, 150)
    assert drawing.contact_sheet([], columns=3, cell=50).size == (150, 50)
