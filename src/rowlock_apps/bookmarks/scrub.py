"""Removes personal data from error texts and log lines.

A URL keeps its scheme, host and path. Its query, its fragment and its user name may identify a person or give access;
so may an e-mail address, and a token after `Bearer`.
"""

from __future__ import annotations

import re

_URL = re.compile(r"\b([a-z][a-z0-9+.\-]{0,20})://(\S+)", re.IGNORECASE)  # a secret may have quotes and brackets in it
_CLOSING = "\"'<>()[]{},.;:"
_NO_PORT = re.compile(r":(?!\d{1,5}$)[^\]]*$")
_MAIL = re.compile(r"[\w.+\-%]{1,64}@[\w\-]{1,63}(?:\.[\w\-]{1,63}){1,8}")
_LOOSE_QUERY = re.compile(r"\?(?!…)[^\s\"'<>]+")
_CREDENTIAL = re.compile(
    r"\b([\w\-]{0,40}(?:bearer|basic|token|password|passwd|secret|api[_-]?key|session|cookie))"
    r"(\s*[:=]\s*|\s+(?=\S{3}))[^\s\"',;]+",
    re.IGNORECASE,
)
HIDDEN = "…"


def scrub(text: str) -> str:
    """The text without personal data."""
    text = _URL.sub(_bare, text)
    text = _MAIL.sub(HIDDEN, text)
    text = _LOOSE_QUERY.sub(f"?{HIDDEN}", text)
    return _CREDENTIAL.sub(rf"\1\2{HIDDEN}", text)


def _bare(found: re.Match[str]) -> str:
    url = found[2].rstrip(_CLOSING)
    rest = re.split(r"[?#]", url, maxsplit=1)
    authority, slash, path = rest[0].partition("/")
    host = _NO_PORT.sub(f":{HIDDEN}", authority.rpartition("@")[2])
    return f"{found[1]}://{host}{slash}{path}" + (f"?{HIDDEN}" if len(rest) > 1 else "") + found[2][len(url) :]
