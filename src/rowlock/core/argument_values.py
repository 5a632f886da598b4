"""Removes the values of a job's arguments from texts that are sent to an error tracker.

A message seldom quotes a value exactly. It may contain the value's `repr`, its JSON, its form in a URL, other
capitalization, or a shortened piece. So before text and values are compared, both are normalised to a plain form:
escapes decoded, letters in lower case, and a single space for anything between letters and digits. In this form, the
text that is sent must not contain

- eight characters in a row that also follow each other in a value,
- a whole value of four to seven characters, even inside a word, or a shorter one as a word,
- four characters of a value beside an ellipsis or asterisks, which mark where something was left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from html import unescape

from rowlock.core.error_text import HIDDEN

RUN = 8  # a text may not share this many consecutive characters with a value
WORD = 4  # a whole value of this length is removed even inside words; a shorter one only as a whole word
PASSES = 4  # of decoding: a text may be escaped several times, as in the repr of JSON that contains a URL

_ESCAPE = re.compile(
    r"(?P<url>(?:%[0-9a-fA-F]{2})+)|(?P<byte>(?:\\x[0-9a-fA-F]{2})+)|(?P<wide>(?:\\u[0-9a-fA-F]{4})+)"
    r"|\\U(?P<far>[0-9a-fA-F]{8})|\\(?P<one>[^\W\d_]|[^\w\s]|\s)|(?P<html>&(?:#\d{1,7}|#x[0-9a-fA-F]{1,6}|[a-zA-Z]{2,8});)"
)
_BETWEEN = re.compile(r"[\W_]+")
_LEFT_OUT = re.compile(r"\.\.+|…|\*+")
_CONTROL = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "a": "\a"}
_INTEGER = re.compile(r"-?\d{4,40}")
_FRACTION = re.compile(r"-?\d{1,15}\.\d{1,15}")
# The signs by which `scrub` recognizes a secret. If a hidden value covers one, `scrub` would miss the secret after it.
_SIGN = re.compile(r"[?#@]|:/")
_KEYWORD = re.compile(
    r"authorization|cookie|bearer|basic|token|passw|pwd|secret|api[_-]?key|access[_-]?key|session|signature",
    re.IGNORECASE,
)


class ArgumentValues:
    """The values of one job's arguments (JSON text)."""

    def __init__(self, args: str) -> None:
        values = _values(args)
        self._unreadable = values is None
        plain = {value: _plain(value) for value in values or ()}
        self._signs = [value for value in plain if len(value) >= WORD and not plain[value]]  # no letter or digit
        words = set(plain.values()) - {""}
        self._short = {word for word in words if len(word) < RUN}
        self._grams = {word[at : at + RUN] for word in words for at in range(len(word) - RUN + 1)}
        self._joined = "\0".join(word for word in words if len(word) > WORD)

    def hide(self, text: str) -> str:
        """The text with an ellipsis in place of each value that it quotes, in whole or in part."""
        if self._unreadable:
            return HIDDEN  # the values may be anywhere in the text
        for signs in self._signs:
            text = text.replace(signs, HIDDEN)
        letters, places = _plain_with_places(text)
        found = bytearray(len(letters))
        for start, end in (*self._runs(letters), *self._wholes(letters), *self._pieces(letters, places, text)):
            found[start:end] = b"\1" * (end - start)
        parts, last = [], 0
        for start, end in _spans(found, letters, places):
            if start >= last:
                parts += [text[last:start], HIDDEN]
            last = max(last, _with_secret(text, start, end))
        return "".join((*parts, text[last:]))

    def _runs(self, letters: str) -> Iterator[tuple[int, int]]:
        for at in range(len(letters) - RUN + 1 if self._grams else 0):
            if letters[at : at + RUN] in self._grams:
                yield at, at + RUN

    def _wholes(self, letters: str) -> Iterator[tuple[int, int]]:
        padded = f" {letters} "
        for size in {len(value) for value in self._short}:
            for at in range(len(letters) - size + 1):
                is_word = padded[at] == padded[at + size + 1] == " "
                if letters[at : at + size] in self._short and (size >= WORD or is_word):
                    yield at, at + size

    def _pieces(self, letters: str, places: Sequence[tuple[int, int]], text: str) -> Iterator[tuple[int, int]]:
        """Pieces of values next to each mark of something left out."""
        for at, letter in enumerate(letters):
            if letter == " " and _LEFT_OUT.search(text, *places[at]):
                start, end = at - WORD, at + 1 + WORD
                while start >= 0 and letters[start:at] in self._joined:
                    start -= 1
                while end <= len(letters) and letters[at + 1 : end] in self._joined:
                    end += 1
                if start < at - WORD:
                    yield start + 1, at
                if end > at + 1 + WORD:
                    yield at + 1, end - 1


def _values(args: str) -> list[str] | None:
    """The values as text, with the keys of inner objects; None if the arguments cannot be read."""
    try:
        given = json.loads(args, parse_int=str, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError):
        return None
    found = dict[str, None]()
    waiting = list(given.values()) if isinstance(given, dict) else [given]  # not the names of the parameters
    while waiting:
        match waiting.pop():
            case dict() as inner:
                found |= dict.fromkeys(inner)
                waiting += inner.values()
            case list() as inner:
                waiting += inner
            case str() as value:
                found |= dict.fromkeys(_spellings(value))
    return list(found)


def _spellings(value: str) -> Iterator[str]:
    """The value as messages may write it: for numbers, also with thousands separators and two decimals."""
    yield value
    if _INTEGER.fullmatch(value):
        yield f"{int(value):,}"
    elif _FRACTION.fullmatch(value):
        yield from (f"{float(value):.2f}", f"{float(value):,.2f}", f"{float(value):g}")


def _plain(text: str) -> str:
    """The text in its plain form. Much faster than with places, for arguments that may be long."""
    for _ in range(PASSES):
        if not _ESCAPE.search(text):
            break
        text = _ESCAPE.sub(_meaning, text)
    return _BETWEEN.sub(" ", text.casefold()).strip()


def _plain_with_places(text: str) -> tuple[str, list[tuple[int, int]]]:
    """The text in its plain form, and the place in the text from which each of its characters comes."""
    letters, places = text, [(at, at + 1) for at in range(len(text))]
    for _ in range(PASSES):
        if not _ESCAPE.search(letters):
            break
        letters, places = _decoded(letters, places)
    plain: list[str] = []
    where: list[tuple[int, int]] = []
    for letter, (start, end) in zip(letters, places, strict=True):
        for small in letter.casefold():
            if small.isalnum() or not plain or plain[-1] != " ":
                plain.append(small if small.isalnum() else " ")
                where.append((start, end))
            else:
                where[-1] = (where[-1][0], end)
    return "".join(plain), where


def _decoded(text: str, places: list[tuple[int, int]]) -> tuple[str, list[tuple[int, int]]]:
    """One pass of decoding: replaces each escape with its characters, each at the place of the whole escape."""
    letters: list[str] = []
    where: list[tuple[int, int]] = []
    last = 0
    for found in _ESCAPE.finditer(text):
        letters.append(text[last : found.start()])
        where += places[last : found.start()]
        meant = _meaning(found)
        letters.append(meant)
        where += [(places[found.start()][0], places[found.end() - 1][1])] * len(meant)
        last = found.end()
    return "".join((*letters, text[last:])), where + places[last:]


def _meaning(found: re.Match[str]) -> str:
    kind, body = found.lastgroup, found[found.lastgroup or 0]
    match kind:
        case "url":
            return bytes.fromhex(body.replace("%", "")).decode("utf-8", "replace")
        case "byte":
            data = bytes.fromhex(body.replace("\\x", ""))
            try:
                return data.decode()
            except UnicodeDecodeError:
                return data.decode("latin-1")
        case "wide":
            return bytes.fromhex(body.replace("\\u", "")).decode("utf-16-be", "replace")
        case "far":
            return chr(int(body, 16)) if int(body, 16) <= 0x10FFFF else " "
        case "html":
            return unescape(body)
    return _CONTROL.get(body, body)


def _spans(found: bytearray, letters: str, places: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The places in the text of each run of found characters, without the quotes and the like around a value."""
    for stretch in re.finditer(rb"\x01+", found):
        start, end = stretch.span()
        start, end = start + (letters[start] == " "), end - (letters[end - 1] == " ")
        if start < end:
            yield places[start][0], places[end - 1][1]


def _with_secret(text: str, start: int, end: int) -> int:
    """Where to stop hiding. If the value covers a sign by which `scrub` would recognize a secret, that is the end of
    the line or word, so that the secret is hidden with it."""
    if _KEYWORD.search(text, start, end):
        stop = r"[\r\n]"
    elif _SIGN.search(text, start, end) or text.startswith("://", end):
        stop = r"\s"
    else:
        return end
    return end + len(re.split(stop, text[end:], maxsplit=1)[0])
