"""The exceptions of an attempt, as plain data and as text: the whole chain, without variables and secrets.

The log, the attempt's row and Sentry all use it. Plain data can be sent by a child process as JSON, and does not keep a
handler's frames and arguments alive, as an exception would. Exception classes are user code and may override
attributes, so Python's own are read from BaseException; if reading still fails, there is no trace, but no second error
either. `traceback.TracebackException` would read every member of a group, and a TaskGroup may have thousands.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from itertools import groupby, islice
from operator import attrgetter
from pathlib import Path
from traceback import FrameSummary, StackSummary, walk_tb
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from rowlock.core.error_text import HIDDEN, clean, kind, said, scrub, whole_words

if TYPE_CHECKING:
    from rowlock.core.argument_values import ArgumentValues

Trace: TypeAlias = Sequence[Sequence[Any]]  # the fields of each Raised; lists if it came as JSON

STORED_BYTES = 16 * 1024  # of the text on an attempt's row
LOGGED_BYTES = 64 * 1024
FEW, SOME = 3, 20  # library frames that a shortened text keeps at the start and end of each run of them
CHAIN = 20  # exceptions of one chain of causes; those raised last are kept
MEMBERS = 20  # exceptions of one group
EXCEPTIONS = 40  # in total
FRAMES = 100  # of one exception
STEPS = 20_000  # frames to read: a deep recursion has very many
REPEATS = 3  # how often a repeated frame is kept
NOTES, NOTE_BYTES = 20, 2048
CODE_LENGTH = 300

OURS = str(Path(__file__).parents[1]) + os.sep
_PACKAGES = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))

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
    own: bool  # part of the user's program: not of Python, a package or Rowlock
    repeated: int = 0  # how many more times the same line follows, in a recursion


class Raised(NamedTuple):
    """One exception of a chain."""

    kind: str  # its class
    said: str  # its message
    frames: Sequence[Sequence[Any]] = ()  # the fields of each Frame, the outermost first
    notes: Sequence[str] = ()
    leads: str = ""  # "cause" or "context": how it led to the next exception; "" for the last one
    depth: int = 0  # number of groups around it


# --- reading an exception


def trace_of(error: BaseException) -> Trace | None:
    """The exception with its causes and group members, their notes and frames; None if it cannot be read."""
    try:
        return tuple(
            Raised(_class(one), _message(one), _frames(one), _notes(one), leads, depth)
            for one, leads, depth in islice(_exceptions(error, 0, set()), EXCEPTIONS)
        )
    except BaseException:  # a hostile class: the attempt fails as usual, without a trace
        return None


def told_of(error: BaseException, args: str) -> tuple[str, ...]:
    """The messages and notes of the exceptions in `trace_of`, for an error tracker: without secrets, e-mail addresses
    and values of the job's arguments. Values are removed first, while each is still in one piece."""
    from rowlock.core.argument_values import ArgumentValues  # only error trackers need it

    values = ArgumentValues(args)
    return tuple(_told(one, values) for one, _, _ in islice(_exceptions(error, 0, set()), EXCEPTIONS))


def _told(error: BaseException, values: ArgumentValues) -> str:
    try:
        texts = [str(error), *_raw_notes(error)]
        return clean(scrub(values.hide("\n".join(whole_words(text) for text in texts if text)), people=True))
    except BaseException:  # a hostile class
        return HIDDEN


def _exceptions(error: BaseException, depth: int, seen: set[int]) -> Iterator[tuple[BaseException, str, int]]:
    """Each exception, how it led to the next one, and the number of groups around it. The first cause comes first, and
    members come after their group. `seen` has the ids of exceptions already found, because a chain may be a cycle."""
    chain: list[tuple[BaseException, str]] = []
    next_: BaseException | None = error
    leads = ""
    while next_ is not None and id(next_) not in seen and len(chain) < CHAIN:
        seen.add(id(next_))
        chain.append((next_, leads))
        last, next_, leads = next_, _own(next_, "__cause__"), "cause"
        if next_ is None and not _own(last, "__suppress_context__"):
            next_, leads = _own(last, "__context__"), "context"
    for one, leads in reversed(chain):
        yield one, leads, depth
        if isinstance(one, BaseExceptionGroup):
            for member in BaseExceptionGroup.exceptions.__get__(one)[:MEMBERS]:
                yield from _exceptions(member, depth + 1, seen)


def _own(error: BaseException, name: str) -> Any:
    """An attribute of BaseException, even if the exception's class overrides it."""
    return BaseException.__dict__[name].__get__(error)


def _class(error: BaseException) -> str:
    module = type.__dict__["__module__"].__get__(type(error))
    name = type.__dict__["__qualname__"].__get__(type(error))
    return name if module == "builtins" else clean(f"{module}.{name}", 200)


def _message(error: BaseException) -> str:
    text = said(error)
    return "" if text == kind(error) else text


def _notes(error: BaseException) -> tuple[str, ...]:
    return tuple(clean(scrub(whole_words(note)), NOTE_BYTES) for note in _raw_notes(error))


def _raw_notes(error: BaseException) -> list[str]:
    with suppress(Exception):
        notes = BaseException.__getattribute__(error, "__notes__")
        if isinstance(notes, (list, tuple)):
            return [note for note in notes[:NOTES] if isinstance(note, str)]
    return []


def _frames(error: BaseException) -> tuple[Frame, ...]:
    """At most FRAMES frames, from the first that is not Rowlock's. If there are more, library frames go first."""
    stack = StackSummary.extract(islice(walk_tb(_own(error, "__traceback__")), STEPS), lookup_lines=False)
    first = next((at for at, frame in enumerate(stack) if not frame.filename.startswith(OURS)), 0)
    frames: list[tuple[FrameSummary, int]] = []  # frame and number of repetitions
    for _, same in groupby(stack[first:], key=attrgetter("filename", "lineno", "name")):
        equal = list(same)
        shown = equal[:REPEATS]
        frames += [*((frame, 0) for frame in shown[:-1]), (shown[-1], len(equal) - len(shown))]
    if len(frames) > FRAMES:
        frames = [one for one in frames if _is_own(one[0].filename)] or frames
    if len(frames) > FRAMES:
        frames = frames[: FRAMES // 4] + frames[-(FRAMES - FRAMES // 4) :]
    return tuple(
        Frame(one.filename, one.lineno or 0, one.name, _code(one), _is_own(one.filename), more) for one, more in frames
    )


def _code(frame: FrameSummary) -> str:
    with suppress(Exception):  # a module's loader is user code
        return scrub((frame.line or "")[:CODE_LENGTH])
    return ""


@lru_cache(maxsize=2000)
def _is_own(file: str) -> bool:
    path = os.path.abspath(file)
    if file.startswith("<") or path.startswith(OURS) or any(part in path for part in _PACKAGES):
        return False
    return not path.startswith(_libraries())


@cache
def _libraries() -> tuple[str, ...]:
    import sysconfig  # programs that only enqueue never need it

    return tuple(os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib", "purelib", "platlib"))


# --- as text


def exceptions_of(trace: Trace) -> list[Raised]:
    """The exceptions in the order of Python's own tracebacks: causes first, the exception that ended the attempt last,
    and the members of a group after the group."""
    return [Raised(*fields) for fields in trace]


def traceback_text(trace: Trace, limit: int) -> str:
    """The traceback as indented lines without control characters, in at most `limit` bytes of UTF-8. If it is too long,
    frames of libraries are left out first and frames of the user's program last."""
    exceptions = exceptions_of(trace)
    for kept in (None, SOME, FEW, 0):
        text = "\n".join(line for one in exceptions for line in _lines(one, kept))
        if len(text.encode()) <= limit:
            return text
    # Too many exceptions or long messages. Keep most of the end, which has the exception that ended the attempt.
    data = text.encode()
    head = data[: limit // 4].decode("utf-8", "ignore")
    tail = data[-(limit - limit // 4 - 40) :].decode("utf-8", "ignore")
    return f"{head}\n  … (cut)\n{tail}"


def _lines(one: Raised, kept: int | None) -> list[str]:
    """The lines of one exception. `kept` is how many frames remain at each end of a run of library frames."""
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
    first, *more = (f"{one.kind}: {one.said}" if one.said else one.kind).split("\n")
    more += (line for note in one.notes for line in note.split("\n"))
    lines += [f"{inside}  {printable(first)}", *(f"{inside}    {printable(line)}" for line in more)]
    if one.leads in BEFORE:
        lines += ["", f"{inside}  {BEFORE[one.leads]}", ""]
    return lines


def _shortened(frames: list[Frame], kept: int | None) -> Iterator[Frame | int]:
    """The frames, with a number in place of that many library frames."""
    for own, group in groupby(frames, key=attrgetter("own")):
        stretch = list(group)
        if own or kept is None or len(stretch) <= 2 * kept:
            yield from stretch
        else:
            yield from stretch[:kept]
            yield len(stretch) - 2 * kept
            yield from stretch[len(stretch) - kept :]


def printable(text: str) -> str:
    """Text with control characters escaped, so that it cannot end a line, move the cursor or colour a terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
