"""Data on stdout: a table on a terminal, aligned text for a pipe, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from rowlock.core.jsonable import fields_of, jsonable

record = fields_of  # a row of a table, by column name
CELL = 80  # longest value in a table, in characters; JSON is never cut


def on_terminal() -> bool:
    return sys.stdout.isatty()


def show(rows: Sequence[Any], columns: Sequence[str], *, as_json: bool, empty: str) -> None:
    """Print records (dataclasses or mappings): the given columns as a table, or all fields as JSON."""
    if as_json:
        show_json([record(row) for row in rows])
    elif not rows:
        print(empty)
    else:
        show_table([[cell(record(row)[column]) for column in columns] for row in rows], columns)


def show_json(value: Any) -> None:
    """Print a value as JSON, times as ISO 8601."""
    print(json.dumps(jsonable(value), indent=2 if on_terminal() else None))


def show_table(rows: Sequence[Sequence[str]], columns: Sequence[str]) -> None:
    """Print cells under their columns' names."""
    if on_terminal():
        _show_rich(rows, columns)
        return
    widths = [max(len(row[n]) for row in [columns, *rows]) for n in range(len(columns))]
    for row in [columns, *rows]:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def _show_rich(rows: Sequence[Sequence[str]], columns: Sequence[str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        # Don't wrap ids, states and times, so that they can be copied in one piece.
        whole = column in ("id", "state") or column.endswith("_at")
        table.add_column(column, no_wrap=whole, overflow="fold")
    for row in rows:
        table.add_row(*(Text(text) for text in row))  # Text: rich must not read a job's data as markup
    Console().print(table)


def cell(value: Any) -> str:
    """A value as one short line."""
    text = words(value)
    return text if len(text) <= CELL else text[: CELL - 1] + "…"


def words(value: Any) -> str:
    """A value as readable text on one line, in full."""
    match value:
        case None | () | []:
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.3g}" if abs(value) < 10 else f"{value:.0f}"
        case datetime():
            return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
        case str():
            return printable(value)
        case tuple() | list() if all(isinstance(item, str) for item in value):
            return printable(", ".join(value))
    return printable(json.dumps(jsonable(value), ensure_ascii=False))


def printable(text: str) -> str:
    """Text with control characters escaped, so that a job's data cannot forge lines or move the cursor."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def counted(number: int, thing: str) -> str:
    """A number and what it counts: "1 job", "2,000 jobs"."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"
