"""Exceptions as text that any database can store: the message first, at most 8 KiB, without secrets, NUL characters and
lone surrogates.

`scrub` removes secrets from all texts that are stored, logged or sent to an error tracker. The class of an exception is
user code, so `said`, `kind` and `traced` return a text even if its methods raise.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence

from rowlock.core.errors import Permanent, Retry, Snooze, SourceError

LIMIT = 8 * 1024  # bytes of a stored error message
READ = 4 * LIMIT  # characters read of a message: secrets are removed before it is cut, else half of one could remain
CODE_LIMIT = 100  # bytes of an error code
OTHERS, OTHERS_LIMIT = 5, 1024  # the other exceptions of a group: how many to name, in how many bytes
FRAMES, FRAMES_LIMIT = 6, 2048  # the innermost frames in a stored message: how many, in how many bytes
TRACE_FRAMES, TRACE_LIMIT = 30, 64 * 1024  # in the log
TRACE = BaseException.__dict__["__traceback__"]  # because an exception's class may override the attribute
HIDDEN = "…"

_URL = re.compile(r"\b([a-z][a-z0-9+.\-]{0,20})://(\S+)", re.IGNORECASE)  # a secret may contain quotes and brackets
_CLOSING = "\"'<>()[]{},.;:"
_NO_PORT = re.compile(r":(?!\d{1,5}$)[^\]]*$")
_LOOSE_QUERY = re.compile(r"\?[\w.%\[\]\-]{1,100}=[^\s\"'<>]*")
_HEADER = re.compile(r"\b((?:proxy-)?authorization|(?:set-)?cookie)([\"']?\s*[:=]\s*)[^\r\n]+", re.IGNORECASE)
_SCHEME = re.compile(r"\b(bearer|basic)(\s+)[\w.~+/=\-]{8,}", re.IGNORECASE)
_CREDENTIAL = re.compile(
    r"\b([\w\-]{0,40}(?:token|password|passwd|pwd|secret|api[_-]?key|access[_-]?key|session[_-]?id|signature))"
    r"([\"']?\s*[:=]\s*)(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s\"',;&]+)",
    re.IGNORECASE,
)
_MAIL = re.compile(r"[\w.+\-%]{1,64}@[\w\-]{1,63}(?:\.[\w\-]{1,63}){1,8}")


def clean(text: str, limit: int = LIMIT) -> str:
    """The text in storable form, cut to `limit` bytes."""
    text = str.__str__(text)  # because a subclass of str may override the methods used below
    text = text[: limit * 2].replace("\x00", "\\x00")
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= limit:
        return data.decode("utf-8")
    return data[: limit - 20].decode("utf-8", "ignore") + " …(cut)"


def kind(error: BaseException) -> str:
    try:
        return clean(type(error).__name__, CODE_LIMIT)
    except BaseException:
        return "an exception without a name"


def said(error: BaseException) -> str:
    """The exception's message without secrets, or the name of its class if it has none."""
    try:
        return clean(scrub(whole_words(str(error)))) or kind(error)
    except BaseException as broken:
        return f"<its message cannot be shown: {kind(broken)}>"


def whole_words(text: str) -> str:
    """The first READ characters of a text, without a word cut in half at the end unless it is the only one."""
    text = str.__str__(text)
    if len(text) <= READ:
        return text
    return text[:READ].rsplit(None, 1)[0] + " …(cut)"


def describe(error: BaseException, others: Sequence[BaseException] = ()) -> str:
    """The message (`error_code` has the class), the other exceptions of its group, and where it was raised. Permanent,
    Retry, Snooze and SourceError are raised on purpose, so for these the place is left out."""
    beside = _beside(others) if others else ""
    room = LIMIT - len(beside.encode())
    if isinstance(error, (Permanent, Retry, Snooze, SourceError)):
        return clean(said(error), room) + beside
    frames = traceback.extract_tb(TRACE.__get__(error), limit=-FRAMES)
    where = "".join(f"\n  {frame.filename}:{frame.lineno} in {frame.name}" for frame in reversed(frames))
    return clean(clean(said(error), room - FRAMES_LIMIT) + beside + where)


def _beside(others: Sequence[BaseException]) -> str:
    named = [f"{kind(other)}: {clean(said(other), OTHERS_LIMIT // OTHERS)}" for other in others[:OTHERS]]
    more = [f"{len(others) - OTHERS} more"] if len(others) > OTHERS else []
    return clean("\n  beside it: " + "; ".join(named + more), OTHERS_LIMIT)


def traced(error: BaseException) -> str:
    """The exception's traceback for the log, without its causes, which may form a cycle."""
    frames = traceback.format_tb(TRACE.__get__(error), limit=-TRACE_FRAMES)
    lines = ["Traceback (most recent call last):\n", *frames, f"{kind(error)}: {said(error)}"]
    return clean("".join(lines), TRACE_LIMIT)


def scrub(text: str, *, people: bool = False) -> str:
    """The text without secrets and, with `people`, without e-mail addresses.

    A URL keeps its scheme, host and path, because its query, fragment and user may identify a person or give access.
    So may the text after `Authorization:`, `Cookie:`, `token=` and the like.
    """
    text = _URL.sub(_bare, text)
    text = _LOOSE_QUERY.sub(f"?{HIDDEN}", text)
    text = _HEADER.sub(rf"\1\2{HIDDEN}", text)
    text = _SCHEME.sub(rf"\1\2{HIDDEN}", text)
    text = _CREDENTIAL.sub(rf"\1\2{HIDDEN}", text)
    return _MAIL.sub(HIDDEN, text) if people else text


def _bare(found: re.Match[str]) -> str:
    url = found[2].rstrip(_CLOSING)
    rest = re.split(r"[?#]", url, maxsplit=1)
    authority, slash, path = rest[0].partition("/")
    host = _NO_PORT.sub(f":{HIDDEN}", authority.rpartition("@")[2])
    return f"{found[1]}://{host}{slash}{path}" + (f"?{HIDDEN}" if len(rest) > 1 else "") + found[2][len(url) :]
