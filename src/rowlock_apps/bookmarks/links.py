"""What a bookmark points at: a canonical link that can be fetched, or the reason why it never is."""

from __future__ import annotations

import hashlib
import re
import uuid
from typing import NamedTuple

from rowlock import InvalidArguments
from rowlock_apps.links import canonical_url

INVALID = "invalid"
LONGEST_HOST = 190  # it is part of a source's name
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
