"""Reads the head of a page: title, description, Open Graph, canonical link, icon. Never its text.

The bytes come in a stream; they are read until the head has ended, at most 256 KiB. Before a parser sees them, a scan
cuts them off at the first tag that is nested deeper, is longer or has more attributes than the tags of real heads,
because an attacker would send the parser's worst case.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from urllib.parse import urljoin

from selectolax.lexbor import LexborHTMLParser

from rowlock import InvalidArguments
from rowlock_apps.links import canonical_url

from ..charsets import codec_of

MOST_BYTES = 256 << 10
DEEPEST, MOST_ATTRIBUTES, MOST_TAGS, LONGEST_TAG = 32, 64, 3000, 32 << 10
LONGEST_TITLE, LONGEST_DESCRIPTION, LONGEST_URL = 500, 2000, 2000

MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_END = re.compile(rb"</head[\s>]|<body[\s>]", re.IGNORECASE)
_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:\-]{1,40})", re.IGNORECASE)
_TAG = re.compile(r"<(/?)([A-Za-z][A-Za-z0-9:\-]{0,40})")
_RAW = {"script", "style", "noscript", "title", "template", "textarea"}
_VOID = {"meta", "link", "base", "br", "img", "input", "hr", "source", "wbr", "area", "col", "embed", "param", "track"}
_SPACE = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")


@dataclass(frozen=True, slots=True)
class Head:
    """The values that were found; None where the page has none."""

    title: str | None = None
    description: str | None = None
    site_name: str | None = None
    image_url: str | None = None
    canonical_url: str | None = None
    icon_url: str | None = None


class HeadReader:
    """Takes the bytes of a page until it has its head."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._searched = 0
        self._end: int | None = None
        self.done = False

    def feed(self, data: bytes) -> None:
        """More of the page. Once `done`, the rest need not be read."""
        self._data += data[: MOST_BYTES - len(self._data)]
        if self._end is None:
            wide = self._data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
            found = None if wide else _END.search(self._data, max(0, self._searched - 16))
            self._searched = len(self._data)
            self._end = found.start() if found else None
        self.done = self._end is not None or len(self._data) >= MOST_BYTES

    def __len__(self) -> int:
        return len(self._data)

    def head(self, url: str, charset: str | None) -> Head:
        """The head that was read; relative URLs in it are relative to `url`."""
        return head_of(_decoded(bytes(self._data[: self._end]), charset), url)

    def beginning(self, most: int) -> str:
        """The part of the page that was read, without letters beyond ASCII: to look for tags in."""
        return self._data[:most].decode("ascii", "replace")


def head_of(text: str, url: str) -> Head:
    """Parse the head of a page."""
    tree = LexborHTMLParser(text[: _safe_end(text)])
    metas: dict[str, str] = {}
    for node in tree.css("meta[content]"):
        name = node.attributes.get("property") or node.attributes.get("name") or ""
        metas.setdefault(name.strip().lower(), node.attributes.get("content") or "")
    title = tree.css_first("title")
    base = tree.css_first("base[href]")
    where = _url(url, base.attributes.get("href") if base else None) or url
    return Head(
        title=_text(metas.get("og:title"), LONGEST_TITLE) or _text(title.text() if title else None, LONGEST_TITLE),
        description=_text(metas.get("og:description") or metas.get("description"), LONGEST_DESCRIPTION),
        site_name=_text(metas.get("og:site_name"), LONGEST_TITLE),
        image_url=_url(where, metas.get("og:image")),
        canonical_url=_canonical(_url(where, _link(tree, {"canonical"}))),
        icon_url=_url(where, _link(tree, {"icon"}) or _link(tree, {"apple-touch-icon"})),
    )


def _safe_end(text: str) -> int:
    """Where to stop. Takes linear time: every step goes forward."""
    depth = tags = at = 0
    while found := _TAG.search(text, at):
        tags += 1
        name, end = found[2].lower(), text.find(">", found.end(), found.end() + LONGEST_TAG)
        many = end < 0 or text.count("=", found.end(), end) > MOST_ATTRIBUTES or _spaced(text, found.end(), end)
        if many or tags > MOST_TAGS or depth > DEEPEST:
            return found.start()
        at = end + 1
        if found[1]:
            depth = max(0, depth - 1)
        elif name in _RAW:
            closing = re.compile(f"</{name}", re.IGNORECASE).search(text, at)
            at = closing.start() if closing else len(text)
            depth += 1
        elif name not in _VOID:
            depth += 1
    return len(text)


def _spaced(text: str, start: int, end: int) -> bool:
    """Whether a tag has more words than a real tag has attributes. Words in quotes, as in a description, do not
    count."""
    if end - start < 4 * MOST_ATTRIBUTES:
        return False
    bare = re.sub(r"\"[^\"]*\"|'[^']*'", "", text[start:end])
    return len(bare.split()) > MOST_ATTRIBUTES


def _decoded(data: bytes, charset: str | None) -> str:
    """By its mark, the header, the declaration in the page, else UTF-8: as browsers do."""
    for mark, codec in (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if data.startswith(mark):
            return data.decode(codec, "replace")
    declared = _CHARSET.search(data[:4096])
    for name in (charset, declared[1].decode("ascii") if declared else None):
        if name and (known := codec_of(name)):
            return data.decode(known, "replace")
    return data.decode("utf-8", "replace")


def _link(tree: LexborHTMLParser, wanted: set[str]) -> str | None:
    for node in tree.css("link[rel][href]"):
        if wanted & set((node.attributes.get("rel") or "").lower().split()):
            return node.attributes.get("href")
    return None


def _text(value: str | None, longest: int) -> str | None:
    return _SPACE.sub(" ", value or "").strip()[:longest].strip() or None


def _url(base: str, value: str | None) -> str | None:
    """An absolute URL of the web, or none."""
    if not value or len(value) > LONGEST_URL:
        return None
    try:
        joined = urljoin(base, value.strip())
    except ValueError:
        return None
    fine = joined.lower().startswith(("http://", "https://")) and not _SPACE.search(joined)
    return joined if fine and len(joined) <= LONGEST_URL else None


def _canonical(url: str | None) -> str | None:
    try:
        return canonical_url(url) if url else None
    except InvalidArguments:
        return None
