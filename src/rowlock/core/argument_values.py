"""Removes the values of a job's arguments from texts that are sent to an error tracker.

A message seldom has a value as it was given. It may hold its `repr`, its JSON or its form in a URL, in other capitals,
or a shortened piece of it. So text and values are both brought to a plain form before they are compared: escapes are
decoded, capitals are small letters, and everything between letters and digits is one space. In this form a text
may hold

- no eight characters in a row that a value has,
- no whole value: one of four to seven characters nowhere, a shorter one not as a word,
- no four characters of a value beside an ellipsis or stars, which show where something was left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from html import unescape

from rowlock.core.error_text import HIDDEN

RUN = 8  # characters in a row that no text may share with a value
WORD = 4  # a whole value of this many characters is removed from inside of words; a shorter one only as a whole word
PASSES = 4  # a text may be escaped more than once: the JSON of a URL in a repr

_ESCAPE = re.compile(
    r"(?P<url>(?:%[0-9a-fA-F]{2})+)|(?P<byte>(?:\\x[0-9a-fA-F]{2})+)|(?P<wide>(?:\\u[0-9a-fA-F]{4})+)"
    r"|\\U(?P<far>[0-9a-fA-F]{8})|\\(?P<one>[^\W\d_]|[^\w\s]|\s)|(?P<html>&(?:#\d{1,7}|#x[0-9a-fA-F]{1,6}|[a-zA-Z]{2,8});)"
)
_BETWEEN = re.compile(r"[\W_]+")
_LEFT_OUT = re.compile(r"\.\.+|…|\*+")
_CONTROL = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "a": "\a"}
_INTEGER = re.compile(r"-?\d{4,40}")
_FRACTION = re.compile(r"-?\d{1,15}\.\d{1,15}")
# What `scrub` recognizes a secret by. Where a value covers it, `scrub` would not see the secret that follows.
_SIGN = re.compile(r"[?#@]|:/")
_KEYWORD = re.compile(
    r"authorization|cookie|bearer|basic|token|passw|pwd|secret|api[_-]?key|access[_-]?key|session|signature",
    re.IGNORECASE,
)
_WORD_END, _LINE_END = re.compile(r"\S*"), re.compile(r"[^\r\n]*")


class ArgumentValues:
    """The values of one job's arguments (JSON text)."""

    def __init__(self, args: str) -> None:
        self._args = args

    def hide(self, text: str) -> str:
        """The text with an ellipsis for each value of the arguments that it quotes, in whole or in part."""
        if self._plain is None:
            return HIDDEN  # arguments that cannot be read may stand anywhere in the text
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
        shared = self._grams
        for at in range(len(letters) - RUN + 1 if shared else 0):
            if letters[at : at + RUN] in shared:
                yield at, at + RUN

    def _wholes(self, letters: str) -> Iterator[tuple[int, int]]:
        short, padded = self._short, f" {letters} "
        for size in {len(value) for value in short}:
            for at in range(len(letters) - size + 1):
                if letters[at : at + size] in short and (size >= WORD or padded[at] == padded[at + size + 1] == " "):
                    yield at, at + size

    def _pieces(self, letters: str, places: Sequence[tuple[int, int]], text: str) -> Iterator[tuple[int, int]]:
        """The text before and after each mark of something left out."""
        joined = self._joined
        for at, letter in enumerate(letters):
            if letter == " " and _LEFT_OUT.search(text, *places[at]):
                for step in (-1, 1):
                    size = WORD
                    while _beside(letters, at, step * size) in joined:
                        size += 1
                    if size > WORD:
                        yield (at - size + 1, at) if step < 0 else (at + 1, at + size)

    @cached_property
    def _values(self) -> list[str] | None:
        """The values as text, and keys of inner objects; None if they cannot be read."""
        try:
            given = json.loads(self._args, parse_int=str, parse_float=str, parse_constant=str)
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

    @cached_property
    def _plain(self) -> set[str] | None:
        return None if self._values is None else {_plain(value) for value in self._values} - {""}

    @cached_property
    def _signs(self) -> list[str]:
        """Values without any letter or digit."""
        return [value for value in self._values or () if len(value) >= WORD and not _plain(value)]

    @cached_property
    def _short(self) -> set[str]:
        return {value for value in self._plain or () if len(value) < RUN}

    @cached_property
    def _grams(self) -> set[str]:
        return {
            value[at : at + RUN]
            for value in self._plain or ()
            if len(value) >= RUN
            for at in range(len(value) - RUN + 1)
        }

    @cached_property
    def _joined(self) -> str:
        return "\0".join(value for value in self._plain or () if len(value) > WORD)


def _spellings(value: str) -> Iterator[str]:
    """A value as a message may write it: numbers also with separators and with two digits."""
    yield value
    if _INTEGER.fullmatch(value):
        yield f"{int(value):,}"
    elif _FRACTION.fullmatch(value):
        yield from (f"{float(value):.2f}", f"{float(value):,.2f}", f"{float(value):g}")


def _plain(text: str) -> str:
    """The text in its plain form. Much faster than with places: arguments may be long."""
    for _ in range(PASSES):
        if not _ESCAPE.search(text):
            break
        text = _ESCAPE.sub(_meaning, text)
    return _BETWEEN.sub(" ", text.casefold()).strip()


def _plain_with_places(text: str) -> tuple[str, list[tuple[int, int]]]:
    """The text in its plain form, and where in the text each character of it comes from."""
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
    """One pass: each escape as the characters that it stands for, each at the place of the whole escape."""
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


def _beside(letters: str, at: int, size: int) -> str:
    """As many characters before (`size` below zero) or after a place; a NUL, which no value holds twice in a row, where
    there are not as many."""
    start, end = (at + size, at) if size < 0 else (at + 1, at + 1 + size)
    return letters[start:end] if start >= 0 and end <= len(letters) else "\0\0"


def _spans(found: bytearray, letters: str, places: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Where in the text each stretch of found characters is, without what only surrounds a value, such as quotes."""
    for stretch in re.finditer(rb"\x01+", found):
        start, end = stretch.span()
        start, end = start + (letters[start] == " "), end - (letters[end - 1] == " ")
        if start < end:
            yield places[start][0], places[end - 1][1]


def _with_secret(text: str, start: int, end: int) -> int:
    """The end of what is hidden with a value: of the line or the word, where the value covers the sign by which `scrub`
    would know the secret behind it."""
    if _KEYWORD.search(text, start, end):
        return _end(_LINE_END, text, end)
    return _end(_WORD_END, text, end) if _SIGN.search(text, start, end) or text.startswith("://", end) else end


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at
