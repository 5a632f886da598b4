"""Whose server a host is: the registrable domain, by the Public Suffix List that comes with the library.

The limit of two requests at a time is for one operator. `www.a.co.uk` and `blog.a.co.uk` belong to one operator and
share the limit; `a.github.io` and `b.github.io` belong to two operators, and do not.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

from publicsuffixlist import PublicSuffixList

_ADDRESS = re.compile(r"\[.*\]|[0-9.]+")


@lru_cache(maxsize=10_000)  # an import asks once for each link, and many links have one host
def domain_of(host: str) -> str:
    """The registrable domain of a host as a canonical link has it. An address, a name without a dot and a public suffix
    itself (`github.io`) have none: they stand for themselves. A top-level domain that the list does not know counts as
    a public suffix."""
    name = host.rstrip(".").lower()
    if _ADDRESS.fullmatch(name) or "." not in name:
        return name or host
    return _suffixes().privatesuffix(name) or name


@cache
def _suffixes() -> PublicSuffixList:
    """Read at the first use: it takes 40 ms, which would slow `rowlock --help` down. Nothing is downloaded."""
    return PublicSuffixList()
