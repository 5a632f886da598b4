"""Reads what an attempt raised: the whole chain of exceptions, without local variables, arguments and secrets.

The classes of exceptions are user code, and may override attributes. So Python's own attributes are read from
BaseException and not from the class; if reading still fails, there is no trace, and no second error.
"""

from __future__ import annotations

import linecache
import os
import sysconfig
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from rowlock.core.argument_values import ArgumentValues
from rowlock.core.error_text import clean, kind, said, whole_words
from rowlock.core.scrubbing import HIDDEN, scrub
from rowlock.core.tracebacks import Frame, Raised, Trace

CHAIN = 20  # exceptions of one chain of causes; the last ones raised are kept
MEMBERS = 20  # exceptions of one group
EXCEPTIONS = 40  # in all
FRAMES = 100  # of one exception
STEPS = 20_000  # frames that are read: a deep recursion has very many
REPEATS = 3  # how often a repeated frame is kept
NOTES, NOTE_BYTES = 20, 2048
CODE_LENGTH = 300

OURS = str(Path(__file__).parents[1]) + os.sep
_LIBRARIES = tuple(
    os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib", "purelib", "platlib")
)
_PACKAGES = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))


def trace_of(error: BaseException) -> Trace | None:
    """The exception with its causes, the members of its groups, their notes and frames; None if it cannot be read."""
    try:
        return tuple(
            Raised(_class(one), _message(one), _frames(one), _notes(one), leads, depth)
            for one, leads, depth in _exceptions(error)
        )
    except BaseException:  # a hostile class; without a trace the attempt fails all the same
        return None


def told_of(error: BaseException, args: str) -> tuple[str, ...]:
    """The messages of the exceptions in `trace_of`, with their notes, for an error tracker: without secrets, addresses
    of people and values of the job's arguments. Values are removed first, while each is still whole."""
    values = ArgumentValues(args)
    return tuple(_told(one, values) for one, _, _ in _exceptions(error))


def _told(error: BaseException, values: ArgumentValues) -> str:
    try:
        texts = [str(error), *_raw_notes(error)]
        return clean(scrub(values.hide("\n".join(whole_words(text) for text in texts if text)), people=True))
    except BaseException:  # a hostile class
        return HIDDEN


def _exceptions(error: BaseException) -> list[tuple[BaseException, str, int]]:
    """Each exception, how it leads to the next one, and how many groups it stands in."""
    found: list[tuple[BaseException, str, int]] = []
    _add(error, 0, found, set())
    return found


def _add(error: BaseException, depth: int, found: list[tuple[BaseException, str, int]], seen: set[int]) -> None:
    """The chain that ends with this exception, the first cause first, each group followed by its members."""
    for one, leads in reversed(_chain(error, seen)):
        if len(found) >= EXCEPTIONS:
            return
        found.append((one, leads, depth))
        if isinstance(one, BaseExceptionGroup):
            for member in BaseExceptionGroup.exceptions.__get__(one)[:MEMBERS]:
                _add(member, depth + 1, found, seen)


def _chain(error: BaseException, seen: set[int]) -> list[tuple[BaseException, str]]:
    """The exception and those before it, each with how it leads to the one after it. A chain may be a circle."""
    chain: list[tuple[BaseException, str]] = []
    next_: BaseException | None = error
    leads = ""
    while next_ is not None and id(next_) not in seen and len(chain) < CHAIN:
        seen.add(id(next_))
        chain.append((next_, leads))
        last, next_, leads = next_, _own(next_, "__cause__"), "cause"
        if next_ is None and not _own(last, "__suppress_context__"):
            next_, leads = _own(last, "__context__"), "context"
    return chain


def _own(error: BaseException, name: str) -> Any:
    """An attribute of BaseException, also where the exception's class has another one of that name."""
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
    """The frames from the first that is not Rowlock's, at most FRAMES: those of libraries are left out first."""
    frames = _collapsed(_walk(_own(error, "__traceback__")))
    first = next((at for at, frame in enumerate(frames) if not frame.file.startswith(OURS)), len(frames))
    frames = frames[first:] or frames
    if len(frames) > FRAMES:
        frames = [frame for frame in frames if frame.own] or frames
    if len(frames) > FRAMES:
        frames = frames[: FRAMES // 4] + frames[-(FRAMES - FRAMES // 4) :]
    return tuple(frame._replace(code=_code(frame.file, frame.line)) for frame in frames)


def _walk(trace: TracebackType | None) -> Iterable[tuple[str, int, str]]:
    for _ in range(STEPS):
        if trace is None:
            return
        frame: FrameType = trace.tb_frame
        yield frame.f_code.co_filename, trace.tb_lineno, frame.f_code.co_name
        trace = trace.tb_next


def _collapsed(walked: Iterable[tuple[str, int, str]]) -> list[Frame]:
    """The frames; of more than REPEATS equal ones in a row, the last says how many more there were."""
    frames: list[Frame] = []
    times = 0
    for file, line, function in walked:
        times = times + 1 if frames and frames[-1][:3] == (file, line, function) else 1
        if times > REPEATS:
            frames[-1] = frames[-1]._replace(repeated=times - REPEATS)
        else:
            frames.append(Frame(file, line, function, "", _is_own(file)))
    return frames


@lru_cache(maxsize=2000)
def _is_own(file: str) -> bool:
    """Whether a file is the user's: neither Python's, nor a package's, nor ours."""
    path = os.path.abspath(file)
    if file.startswith("<") or path.startswith(OURS) or any(part in path for part in _PACKAGES):
        return False
    return not path.startswith(_LIBRARIES)


def _code(file: str, line: int) -> str:
    with suppress(Exception):
        return scrub(linecache.getline(file, line).strip()[:CODE_LENGTH])
    return ""
