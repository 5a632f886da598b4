"""Web addresses in one spelling. Canonical addresses are stored in keys, so these rules must never change. Two
spellings that might mean different pages stay different: a duplicate costs less than a page mistaken for another.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from urllib.parse import unquote, unquote_to_bytes

from rowlock.core.errors import InvalidArguments

MAX_URL = 8192
DEFAULT_PORTS = {"http": "80", "https": "443"}
# Query parameters that say how the visitor came, not which page it is. Names that begin with utm_ are removed, too.
TRACKING = frozenset(
    b"gclid gclsrc dclid gbraid wbraid gad_source gad_campaignid _ga _gl srsltid fbclid igshid igsh msclkid mc_cid "
    b"mc_eid twclid ttclid li_fat_id yclid ysclid _openstat epik mkt_tok _hsenc _hsmi __hstc __hssc __hsfp "
    b"hsctatracking vero_id vero_conv oly_anon_id oly_enc_id rb_clickid wickedid irclickid".split()
)

_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_TO_TIDY = re.compile(r"%[0-9A-Fa-f]{2}|[^A-Za-z0-9\-._~!$&'()*+,;=:@/?]")
_REFUSED = re.compile(r"[\s\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_INVISIBLE = re.compile("[\u00ad\u034f\u180b-\u180d\u200b\u2060\u2064\ufe00-\ufe0f\ufeff]")
_JOINERS = "\u200c\u200d"
_OWN_LETTERS = frozenset("ßς" + _JOINERS)  # Python's idna codec makes ss and σ of them: another domain today


def canonical_url(url: str) -> str:
    """One text for all spellings of a link; what this returns it does not change again."""
    return _link(url)[0]


def host_of(url: str) -> str:
    """The host of the canonical link, without port: for sources such as `domain:example.com`."""
    return _link(url)[1]


def _link(url: object) -> tuple[str, str]:
    """The canonical link, and its host."""
    if not isinstance(url, str):
        raise InvalidArguments(f"a URL must be text, not {type(url).__name__}")
    try:
        text, host = _parsed(url.strip(" ")) if len(url) <= MAX_URL else (url, "")
        if len(text) > MAX_URL:  # also by percent-encoding, else the canonical link could itself be refused
            raise ValueError(f"has more than {MAX_URL} characters, as it is or percent-encoded; use a shorter one")
        return text, host
    except ValueError as error:
        _, at, rest = url.rpartition("@")  # whatever stands before an @ may be a password
        raise InvalidArguments(f"the URL {('***@' if at else '') + rest[:100]!r} {error}") from None


def _parsed(url: str) -> tuple[str, str]:
    if found := _REFUSED.search(url):
        raise ValueError(f"has {found[0]!r} at position {found.start()}; percent-encode it or take it out")
    scheme, slashes, rest = url.partition("://")
    scheme = scheme.lower()
    if not slashes or scheme not in DEFAULT_PORTS:
        raise ValueError("must begin with http:// or https://")
    page, _, query = rest.partition("#")[0].partition("?")
    if "\\" in page:
        raise ValueError("has a backslash, which some programs take for a slash; write / or %5C")
    host, _, path = page.partition("/")
    if "@" in host:
        raise ValueError("has a user name or password; take it out and hand it to the HTTP client by itself")
    port = ""
    if ":" in host.rpartition("]")[2]:
        host, _, port = host.rpartition(":")
    host = _host(host)
    return f"{scheme}://{host}{_port(port, scheme)}{_path(path)}{_query(query)}", host


def _host(host: str) -> str:
    if host.startswith("["):
        return _ipv6(host)
    # As browsers map names (UTS 46). NFKC twice, because it makes capitals too, as of ℡.
    name = unicodedata.normalize("NFKC", _INVISIBLE.sub("", unquote(host))).replace("。", ".").replace("ẞ", "ß")
    name = unicodedata.normalize("NFKC", "".join(c if c in _OWN_LETTERS else c.casefold() for c in name))
    if bad := next((c for c in name if not _fits_host(c)), ""):
        raise ValueError(f"has {bad!r} in its host; only letters, digits, - and _ can stand there")
    labels = name.removesuffix(".").split(".")  # with and without the last dot it is the same name in the DNS
    if not all(labels):
        raise ValueError("has no host, or an empty part in it; write it as in https://example.com/page")
    # Cut at 64 characters: punycode is slow for long labels, and a label of 64 is refused below.
    name = ".".join(label if label.isascii() else f"xn--{label[:64].encode('punycode').decode()}" for label in labels)
    if len(name) > 253 or max(map(len, name.split("."))) > 63:
        raise ValueError("has a host that is too long for a name; at most 253 characters, 63 between two dots")
    if re.fullmatch("[0-9]+|0x[0-9a-f]*", labels[-1]):
        _ipv4(name)
    return name


def _fits_host(char: str) -> bool:
    if char.isascii():
        return char.isalnum() or char in "-_."
    # Unassigned characters are refused: a later version of Unicode may map them, and the key would change.
    return char in _JOINERS or (unicodedata.category(char)[0] not in "CZ" and char != "\ufffd")


def _ipv4(host: str) -> None:
    """Refuse 127.1 and 0x7f.1, which some programs take for an address and others for a name."""
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        raise ValueError("has a host that ends in a number but is not four numbers from 0 to 255") from None


def _ipv6(host: str) -> str:
    try:
        words = ipaddress.IPv6Address(host[1:-1] if host.endswith("]") and "%" not in host else "").packed.hex(":", 2)
    except ValueError:
        raise ValueError("has a [ in its host but no IPv6 address without zone in brackets") from None
    # Not by str(): Python 3.13 began to write some addresses in another way.
    text = ":".join(f"{int(word, 16):x}" for word in words.split(":"))
    zeros = max(re.finditer(r"\b0(:0\b)+", text), key=lambda run: len(run[0]), default=None)
    if zeros:
        text = f"{text[: zeros.start()].rstrip(':')}::{text[zeros.end() :].lstrip(':')}"
    return f"[{text}]"


def _port(port: str, scheme: str) -> str:
    number = port.lstrip("0")
    if port and not (re.fullmatch("[0-9]{1,5}", number) and int(number) <= 65_535):
        raise ValueError("has a port that is not a number from 1 to 65535; correct it or leave it out")
    return "" if number in ("", DEFAULT_PORTS[scheme]) else f":{number}"


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
    """Sorted by name, without tracking. Pieces of one name keep their order, also if one has + and the other %20."""
    kept: list[tuple[bytes, str]] = []
    for piece in filter(None, _TO_TIDY.sub(_tidy, query).split("&")):
        name = unquote_to_bytes(piece.partition("=")[0].replace("+", " "))
        if name.lower() not in TRACKING and not name.lower().startswith(b"utm_"):
            kept.append((name, piece))
    kept.sort(key=lambda named: named[0])
    return "?" + "&".join(piece for _, piece in kept) if kept else ""
