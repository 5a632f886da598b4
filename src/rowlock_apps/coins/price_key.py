"""The key by which a price that was seen before is recognised.

Keys are stored, so the rules here must never change: new keys would no longer match stored ones. Spellings that might
mean different prices get different keys, because a duplicate does less harm than a price that is missing.
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation

from rowlock import InvalidArguments
from rowlock_apps.links import canonical_url

# Cents are rounded with this context: other code may have changed the thread's own decimal context.
_CENT, _EXACT = Decimal("0.01"), Context(prec=40, rounding=ROUND_HALF_UP, traps=[InvalidOperation])


def price_key(
    external_id: str | None = None,
    *,
    url: str = "",
    title: str = "",
    price: Decimal | int | float | str = 0,
    date: date | datetime | None = None,
    kind: str = "",
) -> str:
    """A key for one observed price: the source's own id, else a hash of page, title, price, day and kind."""
    if external_id is not None and (own := _text(external_id, "external_id").strip()):
        return f"ext_{own}"
    page = _text(url, "url").partition("#")[0].partition("?")[0].strip(" ")
    parts: list[str | int] = [
        canonical_url(page) if page else "",
        " ".join(_text(title, "title").lower().split()),
        _cents(price),
        _day(date),
        _text(kind, "kind").strip().lower(),
    ]
    if not any(parts):
        raise InvalidArguments("price_key() got only empty values; give an external_id, or url and title")
    # JSON, so that no text inside one part can be mistaken for the boundary between two parts.
    return f"hash_{hashlib.sha256(json.dumps(parts, ensure_ascii=False).encode()).hexdigest()[:16]}"


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise InvalidArguments(f"price_key({what}=) must be text, not {type(value).__name__}; use str()")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidArguments(
            f"price_key({what}=) has half a character at position {error.start}; decode it with errors='replace'"
        ) from None
    return value


def _cents(price: object) -> int:
    if isinstance(price, bool) or not isinstance(price, (Decimal, int, float, str)):
        raise InvalidArguments(f"price_key(price=) must be a number such as 12.50, not {type(price).__name__}")
    try:
        exact = Decimal(str(price) if isinstance(price, float) else price)
    except ArithmeticError:
        raise InvalidArguments(
            f"price_key(price=) must be a number such as 12.50, not {price!r:.40}; remove currency signs and separators"
        ) from None
    if not exact.is_finite():
        raise InvalidArguments(f"price_key(price=) must be a finite number, not {exact}; skip such prices")
    try:
        return int(exact.quantize(_CENT, context=_EXACT).scaleb(2, context=_EXACT))
    except ArithmeticError:
        raise InvalidArguments("price_key(price=) has more than 38 digits before its point; is it a price?") from None


def _day(moment: object) -> str:
    if moment is None:
        return ""
    if not isinstance(moment, date):
        raise InvalidArguments(f"price_key(date=) must be a date or a datetime, not {type(moment).__name__}")
    if not isinstance(moment, datetime):
        return moment.isoformat()
    if moment.utcoffset() is None:
        raise InvalidArguments(f"price_key(date=) {moment} has no time zone, so its day is not known; give it a tzinfo")
    try:
        return moment.astimezone(UTC).date().isoformat()
    except OverflowError:
        raise InvalidArguments(f"price_key(date=) {moment} is outside of the calendar in UTC; is it right?") from None
