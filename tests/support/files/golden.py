"""Golden files: what Rowlock gives its users and its databases, written down in `tests/golden`.

A test compares; `make golden` writes the files again, and the diff is read like any other change.
"""

import difflib
import os
import re
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "golden"
SHOWN = 60  # lines of a difference


def compare_statements(name: str, head: str, statements: dict[str, str]) -> None:
    """Fail, with the difference, if a statement reads differently in the golden file of this name.

    `statements` has the text of each by its heading. How a text is laid out does not count, nor do its comments."""
    before = {}
    file = (FOLDER / name).read_text("utf-8") if (FOLDER / name).exists() else ""
    for text in file.removeprefix(f"{head}\n\n").split("\n\n-- "):
        heading, _, sql = text.removeprefix("-- ").partition("\n")
        before[heading] = sql.rstrip().rstrip(";")
    same = before.keys() == statements.keys() and all(
        laid_out(before[heading]) == laid_out(sql) for heading, sql in statements.items()
    )
    if not same or os.environ.get("GOLDEN") == "write":
        compare(name, "\n\n".join([head, *(f"-- {heading}\n{sql};" for heading, sql in statements.items())]))


def laid_out(sql: str) -> str:
    """A statement in one line, without comments and with blanks only where they part words."""
    sql = re.sub(r"--.*", "", sql)
    return re.sub(r"(?<=\() | (?=[),])", "", " ".join(sql.split()))


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
