"""What a bookmark points at: a canonical link with its host and domain, or the reason why it is never fetched."""

from __future__ import annotations

import hashlib
import re
import uuid
from functools import cache, lru_cache
from typing import NamedTuple

from publicsuffixlist import PublicSuffixList

from rowlock import InvalidArguments
from rowlock_apps.links import canonical_url

INVALID = "invalid"
LONGEST_HOST = 190  # it is part of a source's name
_ADDRESS = re.compile(r"\[.*\]|[0-9.]+")
_SCHEME = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.\-]{0,31}):")
_IGNORED = str.maketrans("", "", "\t\r\n")  # as browsers do inside a URL


class Link(NamedTuple):
    """One page, however it is spelled."""

    id: str
    url: str
    host: str


def link_of(href: str) -> Link | str:
    """The link, or why it is not fetched: its scheme (`javascript`, `data`, `file`, `chrome`, …), or `invalid`."""
    scheme = _SCHEME.match(href)
    if scheme is None:
        return INVALID
    if scheme[1].lower() not in ("http", "https"):
        return scheme[1].lower()
    try:
        url = canonical_url(href.translate(_IGNORED).strip().replace(" ", "%20"))
    except InvalidArguments:
        return INVALID
    host = host_in(url)
    return Link(link_id(url), url, host) if len(host) <= LONGEST_HOST else INVALID


def host_in(canonical: str) -> str:
    """The host of a canonical link, which need not be parsed again: that costs time."""
    host = canonical.split("/", 3)[2]
    return host.partition(":")[0] if host[0] != "[" else host[: host.index("]") + 1]


def link_id(canonical: str) -> str:
    """A link's id is computed, so it needs no lookup: `uuid5(NAMESPACE_URL, link)`, written out because the library's
    function takes five times as long and an import has many links."""
    digest = hashlib.sha1(uuid.NAMESPACE_URL.bytes + canonical.encode(), usedforsecurity=False).hexdigest()
    variant = "89ab"[int(digest[16], 16) & 3]
    return f"{digest[:8]}-{digest[8:12]}-5{digest[13:16]}-{variant}{digest[17:20]}-{digest[20:32]}"


@lru_cache(maxsize=10_000)  # an import asks once for each link, and many links have one host
def domain_of(host: str) -> str:
    """The registrable domain of a canonical link's host, by the Public Suffix List that comes with the library. The
    limit of two requests at a time is for one operator: `www.a.co.uk` and `blog.a.co.uk` share it, `a.github.io` and
    `b.github.io` don't. An address, a name without a dot and a public suffix itself are their own domain. A top-level
    domain that the list doesn't know counts as a public suffix."""
    name = host.rstrip(".").lower()
    if _ADDRESS.fullmatch(name) or "." not in name:
        return name or host
    return _suffixes().privatesuffix(name) or name


@cache
def _suffixes() -> PublicSuffixList:
    """Read at the first use: it takes 40 ms, which would slow `rowlock --help` down. Nothing is downloaded."""
    return PublicSuffixList()
