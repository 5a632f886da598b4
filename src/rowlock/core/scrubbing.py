"""Removes secrets from texts that are stored, logged or sent to an error tracker: messages of exceptions, above all.

A URL keeps its scheme, host and path: its query, fragment and user may identify a person or give access. So may what
follows `Authorization:`, `Cookie:`, `token=` and the like.
"""

from __future__ import annotations

import re

HIDDEN = "…"

_URL = re.compile(r"\b([a-z][a-z0-9+.\-]{0,20})://(\S+)", re.IGNORECASE)  # a secret may have quotes and brackets in it
_CLOSING = "\"'<>()[]{},.;:"
_NO_PORT = re.compile(r":(?!\d{1,5}$)[^\]]*$")
_LOOSE_QUERY = re.compile(r"\?[\w.%\[\]\-]{1,100}=[^\s\"'<>]*")
_HEADER = re.compile(r"\b((?:proxy-)?authorization|(?:set-)?cookie)([\"']?\s*[:=]\s*)[^\r\n]+", re.IGNORECASE)
_SCHEME = re.compile(r"\b(bearer|basic)(\s+)[\w.~+/=\-]{8,}", re.IGNORECASE)
_CREDENTIAL = re.compile(
    r"\b([\w\-]{0,40}(?:token|password|passwd|pwd|secret|api[_-]?key|access[_-]?key|session[_-]?id|signature))"
    r"([\"']?\s*[:=]\s*)(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s\"',;&]+)",
    re.IGNORECASE,
)
_MAIL = re.compile(r"[\w.+\-%]{1,64}@[\w\-]{1,63}(?:\.[\w\-]{1,63}){1,8}")


def scrub(text: str, *, people: bool = False) -> str:
    """The text without secrets; with `people`, also without e-mail addresses."""
    text = _URL.sub(_bare, text)
    text = _LOOSE_QUERY.sub(f"?{HIDDEN}", text)
    text = _HEADER.sub(rf"\1\2{HIDDEN}", text)
    text = _SCHEME.sub(rf"\1\2{HIDDEN}", text)
    text = _CREDENTIAL.sub(rf"\1\2{HIDDEN}", text)
    return _MAIL.sub(HIDDEN, text) if people else text


def _bare(found: re.Match[str]) -> str:
    url = found[2].rstrip(_CLOSING)
    rest = re.split(r"[?#]", url, maxsplit=1)
    authority, slash, path = rest[0].partition("/")
    host = _NO_PORT.sub(f":{HIDDEN}", authority.rpartition("@")[2])
    return f"{found[1]}://{host}{slash}{path}" + (f"?{HIDDEN}" if len(rest) > 1 else "") + found[2][len(url) :]
