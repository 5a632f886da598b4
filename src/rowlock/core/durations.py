"""Durations, as people type them (`90`, `30s`, `5m`, `2h`, `1d`) and as they are shown to people."""

from __future__ import annotations

import re
from itertools import pairwise

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_WORDS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_TEXT = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)?")


def parse_duration(text: str) -> float | None:
    """Seconds; None if the text is not a duration: the caller words the error."""
    match = _TEXT.fullmatch(text.strip())
    return None if match is None else float(match[1]) * UNITS[match[2] or "s"]


def spell(seconds: float) -> str:
    """A duration for people, in its two largest units: 250 ms, 9.4 s, 45 s, 5 min 12 s, 2 h 10 min, 3 d 4 h."""
    if 0 < seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{max(seconds, 0.0):.2g} s"
    whole = round(seconds)
    for (size, unit), (small, next_unit) in pairwise(_WORDS):
        if whole >= size:
            rest = whole % size // small
            return f"{whole // size} {unit} {rest} {next_unit}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"
