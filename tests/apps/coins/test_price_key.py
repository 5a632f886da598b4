"""Keys of prices: equal for equal prices, different for prices that may differ, and an error for what has no price."""

import decimal
import hashlib
import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowlock.core.errors import InvalidArguments
from rowlock_apps.coins.price_key import price_key
from support.each import each

COIN: dict[str, Any] = {
    "url": "https://www.ebay.com/itm/1",
    "title": "1921-D Morgan",
    "price": "49.99",
    "date": date(2026, 3, 1),
    "kind": "sold",
}


@each("given_id", ["v1|1234|0", "  v1|1234|0\n"])
def test_an_external_id_is_the_key_whatever_else_there_is(given_id: str) -> None:
    assert price_key(given_id) == price_key(given_id, **COIN) == "ext_v1|1234|0"


@each("absent", [None, "", "  \t"])
def test_without_an_external_id_the_key_is_a_hash(absent: str | None) -> None:
    parts = ["https://www.ebay.com/itm/1", "1921-d morgan", 4999, "2026-03-01", "sold"]
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    assert price_key(absent, **COIN) == f"hash_{digest[:16]}"


@each(
    "spelling",
    [
        {"url": "HTTPS://WWW.eBay.com:443/a/../itm/1?hash=item1&_trkparms=x y#top"},
        {"title": "  1921-D\u00a0 \n\tMORGAN "},
        {"price": Decimal("49.990")},
        {"price": 49.99},
        {"price": " 4999e-2 "},
        {"date": datetime(2026, 3, 1, 23, 59, 59, tzinfo=UTC)},
        {"date": datetime(2026, 3, 2, 8, 30, tzinfo=timezone(timedelta(hours=9)))},
        {"date": datetime(2026, 2, 28, 22, 0, tzinfo=timezone(timedelta(hours=-5)))},
        {"kind": " SOLD "},
    ],
)
def test_other_spellings_have_the_same_key(spelling: dict[str, Any]) -> None:
    assert price_key(**COIN | spelling) == price_key(**COIN)


@each(
    "other",
    [
        {"url": "https://www.ebay.com/itm/2"},
        {"url": ""},
        {"title": "1921-S Morgan"},
        {"price": "50"},
        {"price": "-49.99"},
        {"date": date(2026, 3, 2)},
        {"date": None},
        {"date": datetime(2026, 3, 1, 22, 0, tzinfo=timezone(timedelta(hours=-5)))},
        {"kind": "ask"},
    ],
)
def test_two_coins_that_differ_in_one_part_have_different_price_keys(other: dict[str, Any]) -> None:
    assert price_key(**COIN | other) != price_key(**COIN)


@each(
    "price, cents",
    [
        ("0.005", 1),
        ("0.0049999999999999999999999999999999999999999999999999", 0),
        (1.005, 101),  # as it is written, not as it is stored in binary
        (2.675, 268),
        (0.1 + 0.2, 30),
        ("-0.005", -1),
        (12, 1200),
        (1e15, 10**17),
        ("99999999999999999999999999.99", 10**28 - 1),
    ],
)
def test_cents_are_exact_and_half_a_cent_goes_up(price: Any, cents: int) -> None:
    assert price_key(title="a", price=price) == price_key(title="a", price=Decimal(cents).scaleb(-2))
    assert price_key(title="a", price=price) != price_key(title="a", price=Decimal(cents + 1).scaleb(-2))


def test_cents_do_not_depend_on_the_threads_context() -> None:
    before = price_key(title="a", price="12345678.905")
    with decimal.localcontext(decimal.Context(prec=3, rounding=decimal.ROUND_DOWN, traps=[decimal.Inexact])):
        assert price_key(title="a", price="12345678.905") == before


@each("separator", ["|", "\x00", '"', '", "', "\\", '\\"', ",", "]"])
def test_a_separator_inside_a_part_never_makes_it_look_like_two_parts(separator: str) -> None:
    joined = [
        price_key(title=f"a{separator}b", kind="c"),
        price_key(title="a", kind=f"b{separator}c"),
        price_key(title=f"a{separator}b{separator}c"),
        price_key(title=f"a{separator}", kind=f"b{separator}c"),
        price_key(title=f"a{separator}0{separator}{separator}c"),
        price_key(title="a", kind="c"),
    ]
    assert len(set(joined)) == len(joined)


words = st.text(alphabet='ab|",\\ \x1f[]', max_size=6)


@given(st.tuples(words, words), st.tuples(words, words))
def test_keys_are_equal_only_if_all_parts_are(one: tuple[str, str], other: tuple[str, str]) -> None:
    def normal(parts: tuple[str, str]) -> tuple[str, str]:
        return " ".join(parts[0].lower().split()), parts[1].strip().lower()

    keys = [price_key(title=title, price=1, kind=kind) for title, kind in (one, other)]
    assert (keys[0] == keys[1]) == (normal(one) == normal(other))


@each(
    "wrong, says",
    [
        ({}, "only empty values"),
        ({"url": " ", "title": " \n", "price": "0.001", "kind": " "}, "only empty values"),
        ({"external_id": 12345}, r"external_id=\) must be text, not int"),
        ({"title": None}, r"title=\) must be text, not NoneType"),
        ({"title": "a\ud800"}, "half a character at position 1"),
        ({"kind": "\udfff"}, "half a character"),
        ({"price": "$12.50"}, r"such as 12.50, not '\$12.50'; remove currency"),
        ({"price": "1,234.50"}, "remove currency signs and separators"),
        ({"price": ""}, "must be a number"),
        ({"price": True}, "must be a number"),
        ({"price": None}, "must be a number"),
        ({"price": "NaN"}, "finite number, not NaN"),
        ({"price": Decimal("sNaN")}, "finite number"),
        ({"price": float("nan")}, "finite number, not NaN"),
        ({"price": float("inf")}, "finite number, not Infinity"),
        ({"price": "-inf"}, "finite number, not -Infinity"),
        ({"price": "1e400"}, "more than 38 digits"),
        pytest.param({"price": 10**5000}, "more than 38 digits", id="price of 5001 digits"),
        ({"date": datetime(2026, 3, 1)}, "2026-03-01 00:00:00 has no time zone"),
        ({"date": datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))}, "outside of the calendar"),
        ({"date": "2026-03-01"}, "must be a date or a datetime, not str"),
        ({"url": "ebay.com/itm/1"}, "must begin with http:// or https://"),
    ],
)
def test_bad_input_is_refused_with_the_reason(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidArguments, match=says):
        price_key(**wrong)
