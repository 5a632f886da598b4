"""Links in one spelling, for keys that are stored: these rules must never change. Two spellings that might mean
different pages stay different, because fetching a page twice costs less than mistaking one page for another.
"""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

from rowlock import InvalidArguments
from rowlock.public_web import MAX_URL, parse_url

# Query parameters that show how the visitor came, not which page it is. Names that begin with utm_ are removed as well.
TRACKING = frozenset(
    b"gclid gclsrc dclid gbraid wbraid gad_source gad_campaignid _ga _gl srsltid fbclid igshid igsh msclkid mc_cid "
    b"mc_eid twclid ttclid li_fat_id yclid ysclid _openstat epik mkt_tok _hsenc _hsmi __hstc __hssc __hsfp "
    b"hsctatracking vero_id vero_conv oly_anon_id oly_enc_id rb_clickid wickedid irclickid".split()
)

_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_TO_TIDY = re.compile(r"%[0-9A-Fa-f]{2}|[^A-Za-z0-9\-._~!$&'()*+,;=:@/?]")


def canonical_url(url: str) -> str:
    """One text for all spellings of a link, which is canonical itself; `InvalidArguments` for what is not a link."""
    target = parse_url(url)
    path, _, query = target.path.partition("?")
    text = f"{target.origin}{_path(path[1:])}{_query(query)}"
    if len(text) > MAX_URL:  # by percent-encoding; the canonical link would itself be refused
        raise InvalidArguments(f"the URL {url[:100]!r} has more than {MAX_URL} characters percent-encoded")
    return text


def _tidy(found: re.Match[str]) -> str:
    """Percent-encoding in one way. A lone % becomes %25, else it could make a triplet with what is decoded after it."""
    if len(found[0]) == 1:
        return "".join(f"%{byte:02X}" for byte in found[0].encode())
    char = chr(int(found[0][1:], 16))
    return char if char in _UNRESERVED else found[0].upper()


def _path(path: str) -> str:
    kept: list[str] = []
    segments = _TO_TIDY.sub(_tidy, path).split("/")
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    if segments[-1] in (".", ".."):
        kept.append("")  # both name a folder
    return "/" + "/".join(kept)


def _query(query: str) -> str:
    """Sorted by name, without tracking. Pieces of one name keep their order, even if one has + and the other %20."""
    kept: list[tuple[bytes, str]] = []
    for piece in filter(None, _TO_TIDY.sub(_tidy, query).split("&")):
        name = unquote_to_bytes(piece.partition("=")[0].replace("+", " "))
        if name.lower() not in TRACKING and not name.lower().startswith(b"utm_"):
            kept.append((name, piece))
    kept.sort(key=lambda named: named[0])
    return "?" + "&".join(piece for _, piece in kept) if kept else ""
