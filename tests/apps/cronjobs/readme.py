"""The README as its tests read it."""

import re
import shlex
from pathlib import Path

import rowlock_apps.cronjobs

FOLDER = Path(rowlock_apps.cronjobs.__file__).parent
README = (FOLDER / "README.md").read_text()
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.M | re.S)


def blocks(language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(README) if kind == language]


def commands(block: str) -> list[list[str]]:
    return [shlex.split(line, comments=True) for line in block.splitlines()]
