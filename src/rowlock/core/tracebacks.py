"""What an attempt raised, as plain data: exceptions with their causes, groups, notes and frames, and their text.

The log, the attempt's row and Sentry all read it. It is plain data, so that a child process can send it as JSON, and no
exception keeps the frames of a handler, with its arguments, alive.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

Trace: TypeAlias = Sequence[Sequence[Any]]  # the fields of each Raised; lists, where it came as JSON

STORED_BYTES = 16 * 1024  # of the text on an attempt's row
LOGGED_BYTES = 64 * 1024
FEW, SOME = 3, 20  # frames of libraries that a shorter text keeps before and after each stretch of them

BEFORE = {
    "cause": "The above exception was the direct cause of the following exception:",
    "context": "During handling of the above exception, another exception occurred:",
}


class Frame(NamedTuple):
    """One line of a traceback."""

    file: str
    line: int
    function: str
    code: str  # the source line, if it can be read
    own: bool  # of the user's program: neither Python's, nor a package's, nor ours
    repeated: int = 0  # how many more times it stands here, in a recursion


class Raised(NamedTuple):
    """One exception of a chain."""

    kind: str  # its class
    said: str  # its message
    frames: Sequence[Sequence[Any]] = ()  # the fields of each Frame, the outermost first
    notes: Sequence[str] = ()
    leads: str = ""  # "cause" or "context": how the exception that follows came of it; "" for the last one
    depth: int = 0  # how many groups it stands in


def exceptions_of(trace: Trace) -> list[Raised]:
    """The exceptions in the order of Python's own tracebacks: causes first, the one that ended the attempt last, the
    members of a group after it."""
    return [Raised(*fields) for fields in trace]


def traceback_text(trace: Trace, limit: int) -> str:
    """The traceback as indented lines without control characters, in at most `limit` bytes of UTF-8. When it is too
    long, frames of libraries go first and frames of the user's program last."""
    exceptions = exceptions_of(trace)
    for kept in (None, SOME, FEW, 0):
        text = "\n".join(line for one in exceptions for line in _lines(one, kept))
        if len(text.encode()) <= limit:
            return text
    # Too many exceptions or too long messages: the end of the text has the exception that ended the attempt.
    data = text.encode()
    head = data[: limit // 4].decode("utf-8", "ignore")
    tail = data[-(limit - limit // 4 - 40) :].decode("utf-8", "ignore")
    return f"{head}\n  … (cut)\n{tail}"


def _lines(one: Raised, kept: int | None) -> list[str]:
    """One exception. `kept` is how many frames of libraries may stand before and after each stretch of them."""
    inside = "  " * one.depth
    lines = [f"{inside}  Traceback (most recent call last):"] if one.frames else []
    for frame in _shortened([Frame(*fields) for fields in one.frames], kept):
        if isinstance(frame, int):
            lines.append(f"{inside}    … {frame} frames of libraries")
            continue
        where = f'File "{frame.file}", line {frame.line}, in {frame.function}'
        lines.append(f"{inside}    {printable(where)}")
        if frame.code:
            lines.append(f"{inside}      {printable(frame.code)}")
        if frame.repeated:
            lines.append(f"{inside}      … repeated {frame.repeated} more times")
    said = [printable(line) for line in one.said.split("\n")] if one.said else []
    first, *more = said or [""]
    lines.append(f"{inside}  {printable(one.kind)}: {first}" if said else f"{inside}  {printable(one.kind)}")
    lines += [f"{inside}    {line}" for line in more]
    lines += [f"{inside}    {printable(line)}" for note in one.notes for line in note.split("\n")]
    if one.leads in BEFORE:
        lines += ["", f"{inside}  {BEFORE[one.leads]}", ""]
    return lines


def _shortened(frames: list[Frame], kept: int | None) -> Iterator[Frame | int]:
    """The frames, with a number where as many frames of libraries are left out."""
    for own, group in groupby(frames, key=attrgetter("own")):
        stretch = list(group)
        if own or kept is None or len(stretch) <= 2 * kept:
            yield from stretch
        else:
            yield from stretch[:kept]
            yield len(stretch) - 2 * kept
            yield from stretch[len(stretch) - kept :]


def printable(text: str) -> str:
    """Text with control characters escaped: it cannot end a line, move a cursor or colour a terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
