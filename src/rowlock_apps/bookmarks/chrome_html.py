"""Bookmarks out of the HTML file that Chrome (and Firefox, Safari, Edge) exports.

Real files are malformed, huge and deeply nested, so this reads a window at a time, has no tree and no recursion, and
looks only for the four things that matter: `<dl>`, `<h3>`, `<a href>` and their ends. Every step goes forward, so the
time is linear in the size of the file, whatever is in it.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

LONGEST_TAG = 1 << 18  # icons are in an attribute, as data URLs
LONGEST_TEXT = 10_000
SHORTEST_KEPT = 16  # half a tag at the end of a piece
LONGEST_TITLE, LONGEST_NAME, LONGEST_FOLDER, LONGEST_URL = 500, 200, 1000, 1 << 16
DEEPEST = 64  # most folders of a path; a deeper bookmark belongs to the last of them
LATEST = 4_102_444_800  # the year 2100; larger numbers are not seconds

_TAG = re.compile(r"<(/?)(a|h3|dl)(?=[\s/>])|<!--", re.IGNORECASE)
_REST_OF_TAG = re.compile(r"[^\"'>=]*+(?:=\s*+(?:\"[^\"]*+\")?[^\"'>=]*+)*+>")  # as it should be
_IN_TAG = re.compile(r"=\s*[\"']|>")
_USUAL = re.compile(r"\s+HREF=\"([^\"]*)\"\s+ADD_DATE=\"([0-9]{1,10})\"")  # as Chrome writes it
# A word without a value is matched possessively, else the search for its value would start again at each letter.
_ATTRIBUTE = re.compile(r"([^\s\"'=<>/]++)(?:\s*+=\s*+(?:\"([^\"]*+)\"|'([^']*+)'|([^\s\"'>]++)))?")
_OTHER_TAG = re.compile(r"<[^<>]{0,500}>")
_TITLE_ENDS = re.compile(r"<d[td]\b|<hr\b", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x20\x7f-\x9f]+")
_DROPPED = re.compile(r"[\x00-\x1f\x7f]")


class Bookmark(NamedTuple):
    """One bookmark, as the user has it."""

    href: str
    title: str
    folder: str
    added: int | None  # seconds since 1970
    listed: bool  # inside of a <dl>, as bookmarks are and links of a web page are not


class _Tag(NamedTuple):
    """A tag that matters, and the beginning of the text before it."""

    before: str
    closing: bool
    name: str  # empty at the end of the file
    attributes: str


def bookmarks(pieces: Iterable[str]) -> Iterator[Bookmark]:
    """All bookmarks of a file, in order."""
    folders, opened = _Folders(), None
    for tag in _tags(pieces):
        if opened is not None and opened.name == "h3":
            folders.named(_plain(tag.before, LONGEST_NAME))
        elif opened is not None:
            href, added = _attributes(opened.attributes)
            if href:
                yield Bookmark(href, _plain(tag.before, LONGEST_TITLE), folders.path, added, folders.depth > 0)
        opened = None
        if tag.name == "dl":
            folders.leave() if tag.closing else folders.enter()
        elif tag.name and not tag.closing:
            opened = tag


def _tags(pieces: Iterable[str]) -> Iterator[_Tag]:
    text, at, before = "", 0, ""
    for piece, last in _marked(pieces):
        text, at, unclosed = text[at:] + piece, 0, False
        while (found := _TAG.search(text, at)) and (last or found.start() + LONGEST_TAG <= len(text)):
            before = (before + text[at : found.start()])[:LONGEST_TEXT]
            if found[0] == "<!--":
                end = -1 if unclosed else text.find("-->", found.end())
                unclosed = end < 0  # nor is any later one: do not search again
                at = found.end() if unclosed else end + 3
                continue
            at = _end_of_tag(text, found.end())
            yield _Tag(before, bool(found[1]), found[2].lower(), text[found.end() : at])
            before = ""
        kept = found.start() if found else max(at, len(text) - SHORTEST_KEPT)
        before, at = (before + text[at:kept])[:LONGEST_TEXT], kept
    yield _Tag(before + text[at:], False, "", "")


def _marked(pieces: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Each piece, and whether it is the last."""
    for piece in pieces:
        yield piece, False
    yield "", True


class _Folders:
    """The path of folders at this point. A <dl> belongs to the <h3> before it; the outermost one has none."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._next = ""
        self.depth = 0
        self.path = ""

    def named(self, name: str) -> None:
        self._next = name

    def enter(self) -> None:
        self.depth += 1
        if self.depth <= DEEPEST:
            self._names.append(self._next)
            self._changed()
        self._next = ""

    def leave(self) -> None:
        if self.depth == 0:
            return  # one </dl> too many
        if self.depth <= DEEPEST:
            self._names.pop()
            self._changed()
        self.depth -= 1

    def _changed(self) -> None:
        self.path = " / ".join(filter(None, self._names))[:LONGEST_FOLDER]


def _end_of_tag(text: str, at: int) -> int:
    """The position after the `>` that ends a tag. A `>` in quotes does not count; an unclosed quote isn't one."""
    limit = min(len(text), at + LONGEST_TAG)
    if usual := _REST_OF_TAG.match(text, at, limit):
        return usual.end()
    first = -1
    while found := _IN_TAG.search(text, at, limit):
        if found[0] == ">":
            return found.end()
        closed = text.find(found[0][-1], found.end(), limit)
        if closed < 0:
            first = text.find(">", found.end(), limit)
            break
        at = closed + 1
    return first + 1 if first >= 0 else limit


def _attributes(attributes: str) -> tuple[str, int | None]:
    """What a link points at, and when it was added."""
    if usual := _USUAL.match(attributes):
        return _url(usual[1]), _moment(usual[2])
    href, added = "", None
    for found in _ATTRIBUTE.finditer(attributes):
        name, value = found[1].lower(), found[2] or found[3] or found[4] or ""
        if name == "href":
            href = href or _url(value)
        elif name == "add_date":
            added = added or _moment(value)
    return href, added


def _url(value: str) -> str:
    return _DROPPED.sub("", html.unescape(value[: 2 * LONGEST_URL])).strip()[:LONGEST_URL]


def _moment(value: str) -> int | None:
    digits = value.lstrip("0")[:11]  # one more than the latest has
    return int(digits) if value.isascii() and digits.isdigit() and int(digits) < LATEST else None


def _plain(text: str, longest: int) -> str:
    """The words between tags, on one line."""
    text = text[: 20 * longest]
    if "<" in text:
        if ends := _TITLE_ENDS.search(text):
            text = text[: ends.start()]
        text = _OTHER_TAG.sub(" ", text)
    return _CONTROL.sub(" ", html.unescape(text)).strip()[:longest].strip()
