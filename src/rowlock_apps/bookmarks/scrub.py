"""Personal data out of every text that leaves: what is stored as an error, and what is logged.

A URL keeps its scheme, host and path. Its query, its fragment and a user name in it may say who somebody is, or let
others in; so may an e-mail address, and what follows `Bearer`.
"""

from __future__ import annotations

import re

_URL = re.compile(r"\b([a-z][a-z0-9+.\-]{0,20})://([^\s\"'<>()]{1,8192})", re.IGNORECASE)
_MAIL = re.compile(r"[\w.+\-%]{1,64}@[\w\-]{1,63}(?:\.[\w\-]{1,63}){1,8}")
_LOOSE_QUERY = re.compile(r"\?[^\s\"'<>=&]{1,200}=[^\s\"'<>]{0,8192}")
_CREDENTIAL = re.compile(
    r"\b(bearer|basic|token|password|passwd|secret|api[_-]?key|session)([\s:=]+)[^\s\"',;]{3,}", re.I
)
HIDDEN = "…"


def scrub(text: str) -> str:
    """The same text without what may be personal."""
    text = _URL.sub(_bare, text)
    text = _MAIL.sub(HIDDEN, text)
    text = _LOOSE_QUERY.sub(f"?{HIDDEN}", text)
    return _CREDENTIAL.sub(rf"\1\2{HIDDEN}", text)


def _bare(found: re.Match[str]) -> str:
    rest = re.split(r"[?#]", found[2], maxsplit=1)
    authority, slash, path = rest[0].partition("/")
    host = authority.rpartition("@")[2]
    return f"{found[1]}://{host}{slash}{path}" + (f"?{HIDDEN}" if len(rest) > 1 else "")
