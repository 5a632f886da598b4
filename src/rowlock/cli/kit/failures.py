"""Errors as one line on stderr and an exit code: 1 failed, 2 bad input, 3 not found, 4 refused."""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import suppress
from typing import Any

from rowlock.cli.kit.output import printable
from rowlock.core.errors import (
    BatchNotFound,
    ConfigError,
    InvalidArguments,
    JobNotFound,
    NotAllowed,
    RowlockError,
    ScheduleNotFound,
    TaskNotFound,
    UnreleasedSchema,
    WorkerNotFound,
)


class NotFound(RowlockError):
    """Nothing has the name or id that was given."""


FAILED, BAD_INPUT, NOT_FOUND, REFUSED = 1, 2, 3, 4
INTERRUPTED = 130  # the exit code that shells report for Ctrl-C

# Error classes, exit code, and where to find the right name or id. The first row that matches counts.
CODES: tuple[tuple[Any, int, str], ...] = (
    ((ConfigError, InvalidArguments, TaskNotFound, UnreleasedSchema), BAD_INPUT, ""),
    (JobNotFound, NOT_FOUND, "; see: rowlock jobs list"),
    (BatchNotFound, NOT_FOUND, "; see: rowlock batches list"),
    (ScheduleNotFound, NOT_FOUND, "; see: rowlock schedules list"),
    ((WorkerNotFound, NotFound), NOT_FOUND, ""),
    (NotAllowed, REFUSED, ""),
    (RowlockError, FAILED, ""),
)


def explain(error: BaseException) -> int:
    """Print the error as one line on stderr; returns the exit code."""
    if os.environ.get("ROWLOCK_DEBUG") == "1":
        traceback.print_exception(error)
    for kind, code, where in CODES:
        if isinstance(error, kind):
            complain(f"{first_line(str(error))}{where}")
            return code
    if hasattr(error, "format_message"):  # an error of the option parser
        text = error.format_message()
        if text.startswith("Usage:"):  # a group was given without a verb, so this is its whole help
            print(text, file=sys.stderr)
        else:
            verb = getattr(getattr(error, "ctx", None), "command_path", "rowlock")
            # Errors about numbers have pydantic's wording; all others are sentences.
            plain = first_line(text).replace("Input should be", "must be").rstrip(".")
            complain(f"{plain}{'' if plain.endswith('?') else ';'} see: {verb} --help")
        return int(getattr(error, "exit_code", BAD_INPUT))
    complain(f"unexpected {type(error).__name__}: {error} (set ROWLOCK_DEBUG=1 to see the traceback)")
    return FAILED


def complain(text: str) -> None:
    with suppress(OSError, ValueError):  # stderr is closed; the exit code still reports the failure
        print(f"rowlock: {first_line(text)}", file=sys.stderr)


def first_line(text: str) -> str:
    """The first line of a text, with control characters escaped."""
    lines = text.strip().splitlines()
    return printable(lines[0]) if lines else ""
