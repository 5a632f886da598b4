"""Keys: equal for what is equal, different for what may be different, and an error for what is neither."""

import decimal
import hashlib
import json
from collections import defaultdict
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import combinations
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowlock.contrib.web_addresses import canonical_url, host_of, link_key, price_key
from rowlock.core.errors import InvalidArguments
from rowlock.core.links import MAX_URL

COIN: dict[str, Any] = {
    "url": "https://www.ebay.com/itm/1",
    "title": "1921-D Morgan",
    "price": "49.99",
    "date": date(2026, 3, 1),
    "kind": "sold",
}


# Prices


@pytest.mark.parametrize("given_id", ["v1|1234|0", "  v1|1234|0\n"])
def test_an_external_id_is_the_key_whatever_else_there_is(given_id: str) -> None:
    assert price_key(given_id) == price_key(given_id, **COIN) == "ext_v1|1234|0"


@pytest.mark.parametrize("absent", [None, "", "  \t"])
def test_without_an_external_id_the_key_is_a_hash(absent: str | None) -> None:
    parts = ["https://www.ebay.com/itm/1", "1921-d morgan", 4999, "2026-03-01", "sold"]
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    assert price_key(absent, **COIN) == f"hash_{digest[:16]}"


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
    ("price", "cents"),
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


@pytest.mark.parametrize("separator", ["|", "\x00", '"', '", "', "\\", '\\"', ",", "]"])
def test_no_part_can_pass_for_two(separator: str) -> None:
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


@pytest.mark.parametrize(
    ("wrong", "says"),
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
        ({"price": 10**5000}, "more than 38 digits"),
        ({"date": datetime(2026, 3, 1)}, "2026-03-01 00:00:00 has no time zone"),
        ({"date": datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))}, "outside of the calendar"),
        ({"date": "2026-03-01"}, "must be a date or a datetime, not str"),
        ({"url": "ebay.com/itm/1"}, "must begin with http:// or https://"),
    ],
)
def test_bad_input_is_refused_with_the_reason(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidArguments, match=says):
        price_key(**wrong)


# Links


@pytest.mark.parametrize(
    ("spelling", "canonical"),
    [
        ("HTTP://Example.COM", "http://example.com/"),
        ("  https://example.com/  ", "https://example.com/"),
        ("https://example.com.", "https://example.com/"),
        ("http://example.com:80/a", "http://example.com/a"),
        ("https://example.com:0443/a", "https://example.com/a"),
        ("https://example.com:/a", "https://example.com/a"),
        ("https://example.com:80/a", "https://example.com:80/a"),
        ("https://example.com/a#b?c=1", "https://example.com/a"),
        ("https://example.com?", "https://example.com/"),
        ("https://example.com/a?#b", "https://example.com/a"),
        ("https://example.com/a/./b/../c", "https://example.com/a/c"),
        ("https://example.com/../../a", "https://example.com/a"),
        ("https://example.com/a/..", "https://example.com/"),
        ("https://example.com/a/b/.", "https://example.com/a/b/"),
        ("https://example.com/a/%2e%2E/b", "https://example.com/b"),
        ("https://example.com/a//../b", "https://example.com/a/b"),
        ("https://example.com/%7euser/%41%2f%c3%a9", "https://example.com/~user/A%2F%C3%A9"),
        ("https://example.com/é|[x]", "https://example.com/%C3%A9%7C%5Bx%5D"),
        ("https://example.com/100%", "https://example.com/100%25"),
        ("https://example.com/%%341", "https://example.com/%2541"),
        ("https://ex%61mple.com/", "https://example.com/"),
        ("https://Bücher.example/", "https://xn--bcher-kva.example/"),
        ("https://XN--bcher-KVA.example/", "https://xn--bcher-kva.example/"),
        ("https://bu\u0308cher.example/", "https://xn--bcher-kva.example/"),
        ("https://b%C3%BCcher.example/", "https://xn--bcher-kva.example/"),
        ("https://straße.example/", "https://xn--strae-oqa.example/"),
        ("https://STRAẞE.example/", "https://xn--strae-oqa.example/"),
        ("https://βόλος.example/", "https://xn--nxasmm1c.example/"),
        ("https://例え。テスト/", "https://xn--r8jz45g.xn--zckzah/"),
        ("https://ｅｘａｍｐｌｅ．ｃｏｍ/", "https://example.com/"),
        ("https://exa\u00admple.com/", "https://example.com/"),
        ("https://℡.example/", "https://tel.example/"),
        ("https://☃.example/", "https://xn--n3h.example/"),
        ("https://a_b.-c.example/", "https://a_b.-c.example/"),
        ("http://192.0.2.1:8080/", "http://192.0.2.1:8080/"),
        ("http://[2001:DB8:0:0:1:0:0:1]:80/", "http://[2001:db8::1:0:0:1]/"),
        ("http://[::]/", "http://[::]/"),
        ("http://[0:0:0:0:0:0:0:1]:81/", "http://[::1]:81/"),
        ("http://[1::]/", "http://[1::]/"),
        ("http://[10:0:1:2:3:4:5:6]/", "http://[10:0:1:2:3:4:5:6]/"),
        ("http://[::ffff:192.0.2.1]/", "http://[::ffff:c000:201]/"),
        ("https://example.com/?b=2&a=1", "https://example.com/?a=1&b=2"),
        ("https://example.com/?&b=2&&a=1&", "https://example.com/?a=1&b=2"),
        ("https://example.com/?q=%e9&x[]=1", "https://example.com/?q=%E9&x%5B%5D=1"),
        ("https://example.com/?a=1?b=/c:@", "https://example.com/?a=1?b=/c:@"),
        ("https://example.com/?a=b\\c", "https://example.com/?a=b%5Cc"),
        ("https://example.com/?utm_source=x&UTM_Medium=y&utm_=1&id=7", "https://example.com/?id=7"),
        ("https://example.com/?gclid=1&FBCLID=2&MsClkId=3&mc_cid=4&mc_eid=5&igshid=6", "https://example.com/"),
        ("https://example.com/?utm%5Fsource=x&%67clid", "https://example.com/"),
    ],
)
def test_every_spelling_of_a_link_has_one_text(spelling: str, canonical: str) -> None:
    assert canonical_url(spelling) == canonical
    assert canonical_url(canonical) == canonical


@pytest.mark.parametrize(
    "links",
    [
        ["https://example.com/", "http://example.com/", "https://www.example.com/", "https://example.com:8443/"],
        ["https://example.com/a", "https://example.com/a/", "https://example.com/A", "https://example.com//a"],
        ["https://example.com/a/b", "https://example.com/a%2Fb", "https://example.com/a%252Fb"],
        ["https://example.com/?a=b+c", "https://example.com/?a=b%20c", "https://example.com/?a=b%2Bc"],
        ["https://example.com/?a=1&a=2", "https://example.com/?a=2&a=1", "https://example.com/?a=1"],
        ["https://example.com/?a+b=1&a%20b=2", "https://example.com/?a%20b=2&a+b=1"],
        ["https://example.com/?a", "https://example.com/?a=", "https://example.com/?A"],
        ["https://example.com/?a=1&b=2", "https://example.com/?a=1%26b=2", "https://example.com/?a=1;b=2"],
        ["https://example.com/?ref=x", "https://example.com/?source=x", "https://example.com/?utmost=x"],
        ["https://strasse.example/", "https://straße.example/"],
        ["https://example.com/?a=1", "https://example.com/%3Fa=1"],
    ],
)
def test_what_may_be_another_page_stays_another_link(links: list[str]) -> None:
    assert len({canonical_url(link) for link in links}) == len(links)


def test_query_parameters_are_sorted_by_name_and_equal_names_keep_their_order() -> None:
    assert canonical_url("https://a.example/?z=1&b=2&z=0&b=1&a") == "https://a.example/?a&b=2&b=1&z=1&z=0"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("", "must begin with http"),
        ("example.com", "must begin with http"),
        ("//example.com/", "must begin with http"),
        ("http:example.com", "must begin with http"),
        ("ftp://example.com/", "must begin with http"),
        ("javascript://example.com/%0aalert(1)", "must begin with http"),
        ("https://", "no host"),
        ("https:///path", "no host"),
        ("https://:443/", "no host"),
        ("https://./", "no host"),
        ("https://a..example/", "empty part"),
        ("https://example.com/a b", r"' ' at position 21"),
        ("https://example.com/a\u00a0b", "at position 21"),
        ("https://example.com/a\nb", r"'\\n' at position 21"),
        ("https://example.com/\n", "at position 20"),
        ("https://example.com/\x00", "at position"),
        ("https://example.com/\x7f", "at position"),
        ("https://example.com/\u0085", "at position"),
        ("https://example.com/\ud800", "at position"),
        ("https://example.com\\@evil.example/", "backslash"),
        ("https://exa%20mple.com/", "' ' in its host"),
        ("https://exa%0Ample.com/", "in its host"),
        ("https://exa%FFmple.com/", "in its host"),
        ("https://exa%ZZmple.com/", "'%' in its host"),
        ("https://a℀b.example/", "'/' in its host"),
        ("https://a\u202eb.example/", "in its host"),
        ("https://a\u0378b.example/", "in its host"),
        ("https://a:b:80/", "':' in its host"),
        ("https://example.com:99999/", "port"),
        ("https://example.com:0/", "port"),
        ("https://example.com:-1/", "port"),
        ("https://example.com:8o/", "port"),
        ("https://example.com:٨٠/", "port"),
        (f"https://example.com:{'9' * 5000}/", "port"),
        ("http://127.1/", "ends in a number"),
        ("http://2130706433/", "ends in a number"),
        ("http://0x7f.0x1/", "ends in a number"),
        ("http://192.0.2.256/", "ends in a number"),
        ("http://192.0.2.01/", "ends in a number"),
        ("http://[::1/", "IPv6"),
        ("http://[::1]x/", "IPv6"),
        ("http://[fe80::1%25eth0]/", "IPv6"),
        ("http://[]/", "IPv6"),
        ("http://[v1.a]/", "IPv6"),
        (f"https://{'a' * 64}.example/", "too long"),
        (f"https://{'ü' * 60}.example/", "too long"),
        (f"https://{'ü' * 4000}.example/", "too long"),
        (f"https://{'a.' * 127}example/", "too long"),
        (f"https://example.com/{'a' * MAX_URL}", "more than 8192"),
        (f"https://example.com/{'é' * 2000}", "more than 8192"),
        (f"https://example.com/{' ' * MAX_URL}", "more than 8192"),
    ],
)
def test_what_is_no_link_is_refused_with_the_reason(wrong: str, says: str) -> None:
    for function in (canonical_url, host_of, link_key):
        with pytest.raises(InvalidArguments, match=says) as refused:
            function(wrong)
        assert len(str(refused.value)) < 800


@pytest.mark.parametrize("wrong", [None, b"https://example.com/", 5])
def test_a_link_is_text(wrong: Any) -> None:
    with pytest.raises(InvalidArguments, match="must be text"):
        canonical_url(wrong)


@pytest.mark.parametrize(
    "link", ["https://me:s3cret@a.example/", "https://me:s3/cret@a.example/", "ftp://s3cret@a.example", "s3cret:x@a/ b"]
)
def test_a_password_is_refused_and_not_repeated(link: str) -> None:
    with pytest.raises(InvalidArguments) as refused:
        canonical_url(link)
    assert "s3" not in str(refused.value)


def test_user_info_is_refused_but_not_an_at_elsewhere() -> None:
    for link in ("https://@a.example/", "https://me@a.example/"):
        with pytest.raises(InvalidArguments, match="user name or password"):
            canonical_url(link)
    assert canonical_url("https://a.example/@me?mail=a@b") == "https://a.example/@me?mail=a@b"


def test_the_longest_link_is_taken() -> None:
    link = "https://example.com/" + "a" * (MAX_URL - 20)
    assert canonical_url(link) == link


# What Hypothesis finds, it must find in addresses that are nearly right.
known = ["a.example", "A.Example.", "bücher.example", "192.0.2.1", "[::1]", "a", "ex%61mple"]
hosts = st.sampled_from(known) | st.text(alphabet="aZé.-%4ßς。\u0301\u200d", min_size=1, max_size=8)
pieces = st.lists(
    st.sampled_from([*"/.?&=+;:@#%|[]~", "..", "%2e", "%2F", "%25", "%34", "%E9", "é", "a", "b", "utm_x", "gclid"]),
    max_size=14,
).map("".join)
links = st.builds(
    lambda scheme, host, port, rest: f"{scheme}://{host}{port}{rest}",
    st.sampled_from(["http", "https", "HTTPS"]),
    hosts,
    st.sampled_from(["", ":80", ":443", ":8080", ":"]),
    st.builds("/{}?{}#{}".format, pieces, pieces, pieces) | pieces | pieces.map("?{}".format),
)


def canonical_or_none(link: str) -> str | None:
    try:
        return canonical_url(link)
    except InvalidArguments:
        return None


@given(links | st.text(max_size=30) | st.text(max_size=30).map("http://a.example/{}".format))
def test_a_canonical_link_does_not_change_again(link: str) -> None:
    once = canonical_or_none(link)
    if once is not None:
        assert canonical_url(once) == once
        assert once.isascii()
        assert host_of(once) == host_of(link)


@given(pieces)
def test_a_canonical_url_keeps_the_meaning_of_the_query_without_tracking_parameters(query: str) -> None:
    def values(link: str) -> dict[str, list[str]]:
        found = defaultdict(list)
        for name, value in parse_qsl(urlsplit(link).query, keep_blank_values=True, errors="surrogateescape"):
            if not name.lower().startswith("utm_") and name.lower() != "gclid":
                found[name].append(value)
        return found

    link = f"https://a.example/?{query}"
    assert values(canonical_url(link)) == values(link)


@given(st.lists(st.sampled_from(["a", "%2F", "%20", "é", "", "b.c", "~", "%7E", "+", "%2B"]), max_size=6))
def test_a_canonical_url_keeps_the_meaning_of_a_path_without_dots(segments: list[str]) -> None:
    path = "/" + "/".join(segments)
    assert unquote_to_bytes(urlsplit(canonical_url(f"https://a.example{path}")).path) == unquote_to_bytes(path)


@given(st.permutations(["a=1", "b=2", "c", "d=4&d=3", "utm_campaign=5"]))
def test_the_order_of_different_names_does_not_matter(order: list[str]) -> None:
    assert canonical_url(f"https://a.example/?{'&'.join(order)}") == "https://a.example/?a=1&b=2&c&d=4&d=3"


@pytest.mark.parametrize(
    ("link", "host"),
    [
        ("https://WWW.Example.com:8443/a?b#c", "www.example.com"),
        ("http://Bücher.example", "xn--bcher-kva.example"),
        ("http://192.0.2.1:81/", "192.0.2.1"),
        ("http://[2001:db8::1]:81/", "[2001:db8::1]"),
    ],
)
def test_the_host_has_no_port(link: str, host: str) -> None:
    assert host_of(link) == host


def test_a_link_key_is_short_and_the_same_for_all_spellings() -> None:
    longest = "https://example.com/" + "a" * (MAX_URL - 20)
    links = ["https://example.com/", "https://example.com/a", "http://example.com/", longest]
    for one, other in combinations(links, 2):
        assert link_key(one) != link_key(other)
    assert {len(link_key(link)) for link in links} == {37}
    assert link_key("HTTPS://example.com:443/?utm_source=x#y") == link_key("https://example.com/")
    assert link_key("https://example.com/") == "link_" + hashlib.sha256(b"https://example.com/").hexdigest()[:32]
