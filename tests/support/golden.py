"""Golden files: what Rowlock gives its users and its databases, written down in `tests/golden`.

A test compares; `make golden` writes the files again, and the diff is read like any other change.
"""

import difflib
import os
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "golden"
SHOWN = 60  # lines of a difference


def compare(name: str, text: str) -> None:
    """Fail, with the difference, if the golden file of this name has another text."""
    file, text = FOLDER / name, text.rstrip("\n") + "\n"
    if os.environ.get("GOLDEN") == "write":
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, "utf-8")
        return
    before = file.read_text("utf-8") if file.exists() else ""
    if before != text:
        diff = list(difflib.unified_diff(before.splitlines(), text.splitlines(), "golden", "now", lineterm="", n=2))
        more = [f"… and {len(diff) - SHOWN} lines more"] if len(diff) > SHOWN else []
        raise AssertionError(
            "\n".join((f"tests/golden/{name} differs; if that is meant: make golden", *diff[:SHOWN], *more))
        )
