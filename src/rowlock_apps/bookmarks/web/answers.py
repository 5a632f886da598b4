"""Decides by the status and headers of an answer: is there a page in it, is it worth another try, or is it the end?"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from rowlock import Permanent, SourceError

from .challenge import challenged_by_headers

REDIRECTS = (301, 302, 303, 307, 308)
LONGEST_WAIT = 86_400.0


def check_status(host: str, status: int, headers: Mapping[str, str]) -> None:
    """Raise unless the answer has a page in it.

    403 and 451, like a captcha and robots.txt, are refusals: dead at once, and counted against the domain as a block
    candidate. A page that is gone (404, 410) or needs a login (401, …) is dead at once: a second try five minutes later
    would not help, and a later import tries again. Servers in trouble (5xx) get their second try.
    """
    if challenged_by_headers(headers):
        raise captcha(host)
    if 200 <= status < 300:
        return
    code = f"HTTP_{status}"
    if status >= 500 or status in (408, 425, 429):
        raise SourceError(f"{host} answered {status}", code=code, retry_after=_wait(headers))
    raise Permanent(f"{host} answered {status}", code=code)


def captcha(host: str) -> Permanent:
    """The server wants to know whether we are human."""
    return Permanent(f"{host} asks for a captcha", code="CAPTCHA")


def _wait(headers: Mapping[str, str]) -> float | None:
    """How long the server asks us to wait."""
    value = headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdigit():
        return min(float(value[:9]), LONGEST_WAIT)
    try:
        moment = parsedate_to_datetime(value)
    except (TypeError, ValueError):
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return min(max((moment - datetime.now(UTC)).total_seconds(), 0.0), LONGEST_WAIT)
