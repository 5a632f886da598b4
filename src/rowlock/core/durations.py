"""Durations as people type them: `90`, `30s`, `5m`, `2h`, `1d`."""

from __future__ import annotations

import re

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_TEXT = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)?")


def parse_duration(text: str) -> float | None:
    """Seconds; None when it is no duration, for the caller to say so in its own words."""
    match = _TEXT.fullmatch(text.strip())
    return None if match is None else float(match[1]) * UNITS[match[2] or "s"]
