"""Texts and tables of the page of `rowlock report`. Names and messages come from jobs, and jobs may come from anybody:
every text goes through `text`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from html import escape
from typing import Any

from rowlock.core.durations import spell

MOST_TEXT = 500
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table; whole numbers stand at the right."""
    listed = [list(row) for row in rows]
    if not listed:
        return nothing("none")
    head = "".join(f"<th{_kind(value)}>{text(name)}</th>" for name, value in zip(heads, listed[0], strict=True))
    lines = ("<tr>" + "".join(f"<td{_kind(value)}>{text(value)}</td>" for value in row) + "</tr>" for row in listed)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _kind(value: Any) -> str:
    return ' class="number"' if isinstance(value, int) else ""


def text(value: Any) -> str:
    """Any value as text that cannot become markup; characters that steer a terminal or a line's direction are shown."""
    if value is None:
        return ""
    shown = f"{value:,}" if isinstance(value, int) else str(value)
    shown = shown if len(shown) <= MOST_TEXT else shown[:MOST_TEXT] + "…"
    return escape(CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", shown))


def nothing(said: str) -> str:
    """What stands in place of an empty drawing or table."""
    return f'<p class="quiet">{text(said)}</p>'


def time(at: datetime | None) -> str:
    """A moment, to the minute."""
    return "" if at is None else f"{at:%Y-%m-%d %H:%M}"


def span(seconds: float | None) -> str:
    """A duration in words; a dash if it is not known."""
    return "–" if seconds is None else spell(seconds)
