"""What is taken of a market's answer, and what is not."""

import json
from typing import Any

import pytest

from apps.coins.helpers import LISTING, listing
from rowlock_apps.coins.listing import MAX_LISTINGS, BadAnswer, read_answer
from support.each import each


def answer(*rows: Any) -> bytes:
    return json.dumps({"listings": rows}).encode()


def test_a_listing_is_read() -> None:
    found = read_answer(answer(LISTING), "application/json")
    (one,) = found.listings
    assert (one.title, one.cents, one.type, one.date.isoformat()) == (LISTING["title"], 4150, "sold", "2026-01-15")
    assert found.skipped == 0


@each("price, cents", [("41.5", 4150), (41.5, 4150), (41, 4100), ("0.015", 2), (0.1 + 0.2, 30)])
def test_prices_are_exact_cents(price: Any, cents: int) -> None:
    (one,) = read_answer(answer(listing(price=price)), "application/json").listings
    assert one.cents == cents


@each(
    "wrong",
    [
        {"price": -1},
        {"price": 0},
        {"price": "0.001"},
        {"price": "1e12"},
        {"price": "1e400000"},
        {"price": "NaN"},
        {"price": float("inf")},
        {"price": "12 dollars"},
        {"price": None},
        {"price": [1]},
        {"currency": "dollars"},
        {"currency": None},
        {"type": "gift"},
        {"date": "yesterday"},
        {"date": "2026-02-30"},
        {"title": ""},
        {"title": "x" * 501},
        {"title": "a\x00b"},
        {"title": "half a \ud83d character"},
        {"title": 7},
        {"url": "javascript:alert(1)"},
        {"url": "https://a b/"},
        {"external_id": "x" * 201},
        {"external_id": None, "url": "https://user:secret@market.example/"},  # no key can be made of it
    ],
)
def test_an_invalid_listing_is_left_out_and_counted(wrong: dict[str, Any]) -> None:
    found = read_answer(answer(LISTING, listing(**wrong)), "application/json")
    assert (len(found.listings), found.skipped) == (1, 1)


@each("row", [None, 7, "listing", [], {}])
def test_a_row_that_is_not_a_listing_is_left_out_and_counted(row: Any) -> None:
    assert read_answer(answer(row, LISTING), "application/json").skipped == 1


@each(
    "body, content_type, reason",
    [
        (answer(LISTING), "text/html", "text/html, not application/json"),
        (answer(LISTING), "", "of no type"),
        (b"", "application/json", "not JSON"),
        (b"<html>", "application/json", "not JSON"),
        (b"\xff\xfe\x00", "application/json", "not JSON"),
        (b"[" * 100_000, "application/json", "not JSON"),
        (b"null", "application/json", 'no list under "listings"'),
        (b"[]", "application/json", 'no list under "listings"'),
        (b'{"listings": {}}', "application/json", 'no list under "listings"'),
        (answer(*[LISTING] * (MAX_LISTINGS + 1)), "application/json", "501 listings, more than 500"),
        (answer(listing(price=-1), {}), "application/json", "none of its 2 listings is valid"),
    ],
)
def test_an_answer_that_is_not_as_agreed_is_refused_as_a_whole(body: bytes, content_type: str, reason: str) -> None:
    with pytest.raises(BadAnswer, match=reason):
        read_answer(body, content_type)


def test_an_answer_without_listings_is_valid() -> None:
    assert read_answer(answer(), "application/json").listings == ()


def test_the_key_is_the_markets_id_or_else_a_hash() -> None:
    """S4.15, S4.16: `ext_…` is preferred; the hash does not see the URL's query or how the title is spaced."""
    rows = [LISTING, listing(external_id=None), listing(external_id=" ", url="https://market.example/1?q=2#top")]
    rows.append(listing(external_id=None, title="1921-d  MORGAN dollar"))
    rows.append(listing(external_id=None, type="ask"))
    keys = [one.dedupe_key for one in read_answer(answer(*rows), "application/json").listings]
    assert keys[0] == "ext_1"
    assert keys[1].startswith("hash_")
    assert len(keys[1]) == len("hash_") + 16
    assert keys[1] == keys[2] == keys[3] != keys[4]


def test_a_market_may_number_its_listings() -> None:
    (found,) = read_answer(answer(listing(external_id=123)), "application/json").listings
    assert (found.external_id, found.dedupe_key) == ("123", "ext_123")


@each(
    "given, day",
    [
        ("2026-01-15", "2026-01-15"),
        ("20260115", "2026-01-15"),
        ("2026-01-15T10:30:00", "2026-01-15"),
        ("2026-01-15T23:30:00Z", "2026-01-15"),
        ("2026-01-15T23:30:00.5-05:00", "2026-01-16"),  # the day in UTC
        ("2026-W03-4", "2026-01-15"),
    ],
)
def test_a_date_may_have_any_form_of_iso_8601(given: str, day: str) -> None:
    (found,) = read_answer(answer(listing(date=given)), "application/json").listings
    assert found.date.isoformat() == day


@each("content_type", ["application/vnd.market+json", "application/hal+json", "text/x.a-b+json"])
def test_every_json_type_is_read(content_type: str) -> None:
    assert len(read_answer(answer(LISTING), content_type).listings) == 1
    with pytest.raises(BadAnswer):
        read_answer(answer(LISTING), content_type.replace("+json", "+xml"))


def test_a_moment_that_utc_has_no_day_for_is_left_out() -> None:
    found = read_answer(answer(listing(date="0001-01-01T00:00:00+14:00"), LISTING), "application/json")
    assert (len(found.listings), found.skipped) == (1, 1)
