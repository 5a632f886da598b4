"""Links: one text for all spellings of a link, different texts for what may be different pages, else an error."""

from collections import defaultdict
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowlock.core.errors import InvalidArguments
from rowlock.public_web import MAX_URL, parse_url
from rowlock_apps.links import canonical_url
from support.each import each


@each(
    "spelling, canonical",
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


@each(
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
def test_links_that_may_lead_to_different_pages_stay_different(links: list[str]) -> None:
    assert len({canonical_url(link) for link in links}) == len(links)


def test_query_parameters_are_sorted_by_name_and_equal_names_keep_their_order() -> None:
    assert canonical_url("https://a.example/?z=1&b=2&z=0&b=1&a") == "https://a.example/?a&b=2&b=1&z=1&z=0"


@each(
    "wrong, says",
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
def test_text_that_is_not_a_link_is_refused_with_the_reason(wrong: str, says: str) -> None:
    with pytest.raises(InvalidArguments, match=says) as refused:
        canonical_url(wrong)
    assert len(str(refused.value)) < 800


@each("wrong", [None, b"https://example.com/", 5])
def test_a_link_that_is_not_text_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidArguments, match="must be text"):
        canonical_url(wrong)


@each(
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
        assert parse_url(once).host == parse_url(link).host


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


@each(
    "link, host",
    [
        ("https://WWW.Example.com:8443/a?b#c", "www.example.com"),
        ("http://Bücher.example", "xn--bcher-kva.example"),
        ("http://192.0.2.1:81/", "192.0.2.1"),
        ("http://[2001:db8::1]:81/", "[2001:db8::1]"),
    ],
)
def test_the_host_of_a_link_does_not_include_its_port(link: str, host: str) -> None:
    assert parse_url(link).host == host
