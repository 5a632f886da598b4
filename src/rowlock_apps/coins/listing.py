"""A market's answer: JSON listings, every value of which is checked.

An answer that breaks the format as a whole (not JSON, another shape, too large) is refused: nothing of it is used. A
single invalid listing (a negative price, no title, an unknown type) is left out and counted. If all of them are
invalid, the market has changed its format, and the whole answer is refused.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from datetime import date as Day
from decimal import ROUND_HALF_UP, Decimal
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError

from rowlock import InvalidArguments
from rowlock_apps.coins.price_key import price_key

MAX_BYTES = 1024 * 1024
MAX_LISTINGS = 500
JSON_TYPE = re.compile(r"application/json|[\w.-]+/[\w.+-]+\+json")  # RFC 6839: application/vnd.market+json is JSON
HIGHEST_PRICE = Decimal(100_000_000)  # several times the dearest coin ever sold

PriceType = Literal["sold", "ask", "bid"]
Line = Annotated[str, StringConstraints(strip_whitespace=True, max_length=500, pattern=r"^[^\x00-\x1f\x7f]*$")]


class BadAnswer(ValueError):
    """An answer that cannot be used; asking again would not help."""


def _as_text(given: Any) -> Any:
    """An id as text: some markets number their listings."""
    return str(given) if isinstance(given, int) and not isinstance(given, bool) else given


def _as_day(given: Any) -> Any:
    """A day in any form of ISO 8601; a date with a time zone is converted to UTC first."""
    if not isinstance(given, str):
        return given
    moment = datetime.fromisoformat(given.strip())
    try:
        return (moment if moment.tzinfo is None else moment.astimezone(UTC)).date()
    except OverflowError:
        raise ValueError("a moment outside of the years 1 to 9999 in UTC") from None


class Listing(BaseModel):
    """One offer or sale."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    external_id: Annotated[Line, StringConstraints(max_length=200), BeforeValidator(_as_text)] | None = None
    url: Annotated[Line, StringConstraints(pattern=r"^(https?://\S+)?$")] = ""
    title: Annotated[Line, StringConstraints(min_length=1)]
    price: Annotated[Decimal, Field(ge=Decimal("0.01"), le=HIGHEST_PRICE)]
    currency: Annotated[str, StringConstraints(pattern=r"^[A-Z]{3}$")]
    type: PriceType
    date: Annotated[Day, BeforeValidator(_as_day)]

    @cached_property
    def dedupe_key(self) -> str:
        """`ext_…` if the market gives it an id, else `hash_…`."""
        return price_key(
            self.external_id, url=self.url, title=self.title, price=self.price, date=self.date, kind=self.type
        )

    @property
    def cents(self) -> int:
        """The price in hundredths."""
        return int((self.price * 100).to_integral_value(ROUND_HALF_UP))


class Answer(BaseModel):
    """The valid listings of one answer, and how many were invalid."""

    listings: tuple[Listing, ...] = ()
    skipped: int = 0


def read_answer(body: bytes, content_type: str) -> Answer:
    """The listings in a market's answer, or BadAnswer."""
    if not JSON_TYPE.fullmatch(content_type):
        raise BadAnswer(f"it is {content_type or 'of no type'}, not application/json")
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadAnswer(f"it is not JSON: {error}") from None
    rows = data.get("listings") if isinstance(data, dict) else None
    if not isinstance(rows, list):
        raise BadAnswer('it has no list under "listings"')
    if len(rows) > MAX_LISTINGS:
        raise BadAnswer(f"it has {len(rows)} listings, more than {MAX_LISTINGS}")
    listings = tuple(listing for listing in map(_read, rows) if listing is not None)
    if rows and not listings:
        raise BadAnswer(f"none of its {len(rows)} listings is valid; the first: {json.dumps(rows[0])[:200]}")
    return Answer(listings=listings, skipped=len(rows) - len(listings))


def _read(row: Any) -> Listing | None:
    try:
        listing = Listing.model_validate(row)
        _ = listing.dedupe_key  # computed here, so that a listing without a possible key is left out
    except (ValidationError, InvalidArguments):
        return None
    return listing
