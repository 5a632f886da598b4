"""Bookmarks files as they come: malformed, huge, nested, in any encoding."""

import io
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from apps.bookmarks.files import START, bookmarks_file
from rowlock_apps.bookmarks import charsets, tables
from rowlock_apps.bookmarks.chrome_html import DEEPEST, LONGEST_TAG, Bookmark, bookmarks
from rowlock_apps.bookmarks.encoding import encoding_of, text_of
from rowlock_apps.bookmarks.links import INVALID, Link, link_id, link_of
from rowlock_apps.bookmarks.uploads import BadUpload, items, opened, put_aside
from support.each import each


def read(text: str, size: int = 1 << 20) -> list[Bookmark]:
    return list(bookmarks(text[n : n + size] for n in range(0, len(text), size)))


def hrefs(text: str) -> list[str]:
    return [found.href for found in read(text)]


A = '<DT><A HREF="http://a.example/{}">t</A>\n'


def test_a_file_of_chrome() -> None:
    found = read(
        START.format(charset="UTF-8")
        + '<DT><H3 ADD_DATE="1" PERSONAL_TOOLBAR_FOLDER="true">Bookmarks bar</H3>\n<DL><p>\n'
        '<DT><A HREF="http://a.example/1" ADD_DATE="1700000000" ICON="data:,AA>BB">One &amp; <b>only</b></A>\n'
        "<DD>a description that is nobody's title\n"
        '<DT><H3>Sub</H3>\n<DL><p>\n<DT><A HREF="http://a.example/2">Two</A>\n</DL><p>\n'
        '<DT><A HREF="http://a.example/3">Three</A>\n</DL><p>\n<DT><A HREF="http://a.example/4">Four</A>\n</DL><p>\n'
    )
    assert found == [
        Bookmark("http://a.example/1", "One & only", "Bookmarks bar", 1_700_000_000, True),
        Bookmark("http://a.example/2", "Two", "Bookmarks bar / Sub", None, True),
        Bookmark("http://a.example/3", "Three", "Bookmarks bar", None, True),
        Bookmark("http://a.example/4", "Four", "", None, True),
    ]


@each(
    "text, expected",
    [
        ("<dl><dt><a href='x'>a<dt><a href=y>b<dl>", ["x", "y"]),
        ("<DL><A HREF = \"x\" >a</A ><A\nHREF='y'\n>b</a>", ["x", "y"]),
        ('<DL><A HREF="x>a</A><A HREF="y">b</A>', ["x>a</A><A HREF="]),
        ('<DL><A HREF="never closed>a</A><DT>', []),
        ("<DL><A>no href</A><A HREF=''>empty</A><A HREF=x>b</A>", ["x"]),
        ("</DL></DL></DL><DL><A HREF=x>b</A>", ["x"]),
        ("<DL><!-- <A HREF=no>x</A> --><A HREF=yes>b</A>", ["yes"]),
        ("<DL><!-- never closed <A HREF=x>b</A>", ["x"]),
        ("<DL>a < b <A HREF=x>1 < 2</A>", ["x"]),
        ("<DL><ABBR>no</ABBR><ADDRESS>no</ADDRESS><A HREF=x>b</A>", ["x"]),
        ("<DL><A HREF=x HREF=y>b</A>", ["x"]),
        ("<DL><A HREF=x", ["x"]),
        ("<DL><A HREF='a&amp;b&#39;c\n\td'>b</A>", ["a&b'cd"]),
    ],
)
def test_links_of_malformed_files_are_read_as_far_as_possible(text: str, expected: list[str]) -> None:
    assert hrefs(text) == expected


@each("size", [1, 2, 3, 7, 64, 1000])
def test_a_bookmarks_file_reads_alike_in_pieces_of_any_size(size: int) -> None:
    text = START.format(charset="UTF-8") + "<DT><H3>F</H3><DL><p>" + "".join(map(A.format, range(20))) + "</DL></DL>"
    assert read(text, size) == read(text)
    assert len(read(text)) == 20


def test_thirty_thousand_folders_are_no_deeper_than_paths_go() -> None:
    def pieces() -> Iterator[str]:
        for _ in range(30):
            yield "<DT><H3>f</H3><DL><p>" * 1000
        yield A.format("deep")
        for _ in range(30):
            yield "</DL><p>" * 1000
        yield "<DL>" + A.format("flat")

    deep, flat = bookmarks(pieces())
    assert deep.folder == " / ".join("f" * DEEPEST)
    assert flat.folder == ""


@each(
    "unit",
    ["<a", '<a href="', "<a href='x", "<!--", "<", '="', "<h3>", "<dl>", '<a href=">', "&", "</a>", "<a href=x>"],
)
def test_the_time_is_linear_in_the_size(unit: str) -> None:
    """What would make a careless reader quadratic."""
    text = unit * (200_000 // len(unit))
    began = time.process_time()
    for _ in bookmarks(text[n : n + 65536] for n in range(0, len(text), 65536)):
        pass
    assert time.process_time() - began < 2


@each("inside", ["x", "x ", "x= ", "=", "/x", "a='"])
def test_the_time_is_linear_in_the_size_of_a_tag(inside: str) -> None:
    """An icon may have a quarter of a megabyte; so may what is none."""
    text = f'<DL><A HREF="http://a.example/" {inside * (LONGEST_TAG // len(inside))}>t</A>'
    began = time.process_time()
    assert hrefs(text) == ["http://a.example/"]
    assert time.process_time() - began < 1


@each(
    "date, expected",
    [
        ("1700000000", 1_700_000_000),
        ("0" * 5000 + "1700000000", 1_700_000_000),
        ("0", None),
        ("0" * 19 + "1" + "0" * 5000, None),
        ("0" * 10 + "17000000009999999999", None),
        ("13300000000000000", None),
        ("1.5e9", None),
        ("١٧٠٠", None),
        ("", None),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_date_is_of_this_century_or_none(date: str, expected: int | None) -> None:
    [found] = read(f'<DL><A HREF=x ADD_DATE="{date}">t</A>')
    assert found.added == expected


def test_long_titles_and_folders_are_cut_off() -> None:
    [found] = read("<DL><H3>" + "f" * 9999 + "</H3><DL><A HREF=x>" + "t" * 5_000_000 + "</A>")
    assert (len(found.title), len(found.folder)) == (500, 200)


TEXT = START.format(charset="{charset}") + '<DT><A HREF="http://a.example/">{title}</A>\n</DL>'
RUSSIAN, KOREAN, FRENCH = (
    "Съешь же ещё этих мягких французских булок",
    "다람쥐 헌 쳇바퀴에 타고파",
    "L'été où l'on écoute",
)


@each(
    "title, codec, declared",
    [
        (RUSSIAN, "utf-8", "UTF-8"),
        (RUSSIAN, "utf-8-sig", "UTF-8"),
        (KOREAN, "utf-16", "UTF-8"),
        (KOREAN, "utf-16-le", "UTF-16"),
        (RUSSIAN, "utf-16-be", "nonsense"),
        (RUSSIAN, "cp1251", "windows-1251"),
        (KOREAN, "euc-kr", "euc-kr"),
        (FRENCH, "cp1252", "iso-8859-1"),
        (RUSSIAN, "utf-8", "windows-1251"),  # and from here on what is declared is wrong
        (RUSSIAN, "cp1251", "UTF-8"),
        (RUSSIAN, "cp1251", "euc-kr"),
        (KOREAN, "euc-kr", "UTF-8"),
        (KOREAN, "cp949", "nonsense"),
        (FRENCH, "cp1252", "UTF-8"),
    ],
)
def test_a_file_is_read_in_its_real_encoding_whatever_it_declares(title: str, codec: str, declared: str) -> None:
    file = io.BytesIO(TEXT.format(charset=declared, title=title).encode(codec))
    [found] = bookmarks(text_of(file, encoding_of(file).codec))
    assert found.title == title


@each(
    "titles, codec, declared, bad, read_as",
    [
        ([RUSSIAN, KOREAN], "utf-8", "UTF-8", b"\xff", "utf-8"),
        ([RUSSIAN, KOREAN], "utf-8", "nonsense", b"\xc3", "utf-8"),  # half a character
        ([FRENCH], "utf-8", "UTF-8", b"\xe9", "utf-8"),
        ([RUSSIAN], "utf-8-sig", "windows-1251", b"\xff", "utf-8-sig"),  # the mark says what it is
        ([RUSSIAN], "cp1251", "windows-1251", b"\x98", "cp1251"),  # what it declares, with a byte that has no letter
        ([KOREAN] * 30, "cp949", "euc-kr", b"\xff\xff", "cp949"),
        ([RUSSIAN], "cp1251", "windows-1251", "\xe9".encode(), "cp1251"),  # a declared one that fits wins over UTF-8
    ],
)
def test_one_bad_byte_costs_one_character_and_changes_no_other(
    titles: list[str], codec: str, declared: str, bad: bytes, read_as: str
) -> None:
    """A file with one bad byte is still the file that it was, and how many characters were replaced is known."""
    rows = "".join(f'<DT><A HREF="http://a.example/">{title}</A>\n' for title in titles)
    data = (START.format(charset=declared) + rows + '<DT><A HREF="http://b.example/">#</A>\n</DL>').encode(codec)
    file = io.BytesIO(data.replace(b"#", b"ab" + bad + b"<b>c</b>"))
    encoding = encoding_of(file)
    found = [bookmark.title for bookmark in bookmarks(text_of(file, encoding.codec))]
    assert encoding.codec == read_as
    assert found[:-1] == titles
    assert encoding.replaced == found[-1].count("\ufffd")
    assert (encoding.replaced > 0) == (bad != "\xe9".encode())


def test_characters_that_somebody_else_has_replaced_are_not_counted() -> None:
    file = io.BytesIO(TEXT.format(charset="UTF-8", title=f"{RUSSIAN} \ufffd \ufffd").encode() + b"\xff")
    assert encoding_of(file) == ("utf-8", 1)


@each("size", [1, 2, 3])
def test_replaced_characters_are_counted_wherever_a_piece_ends(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rowlock_apps.bookmarks.encoding.CHUNK", size)
    data = TEXT.format(charset="UTF-8", title=f"{RUSSIAN} \ufffd").encode()
    assert encoding_of(io.BytesIO(data.replace(b" \xef\xbf\xbd", b"\xff\xef\xbf\xbd\xfe"))) == ("utf-8", 2)


@each("declared", ["unicode_escape", "raw_unicode_escape", "utf-7", "punycode", "idna", "rot13"])
def test_a_declared_encoding_that_browsers_do_not_know_is_ignored(declared: str) -> None:
    file = io.BytesIO(TEXT.format(charset=declared, title=r"été \ud800").encode("cp1252"))
    [found] = bookmarks(text_of(file, encoding_of(file).codec))
    assert found.title == r"été \ud800"


def test_every_codec_of_the_web_reads_any_bytes_and_all_but_their_names_are_unknown() -> None:
    for codec in set(charsets._CODECS.values()):
        file = io.BytesIO(bytes(range(256)))
        assert "".join(text_of(file, codec))
    names = ("UTF-8", "ISO_8859-1:1987", "Shift_JIS", "ks_c_5601-1987", " windows-1251 ", "no-such", "", "a\x00")
    found = [charsets.codec_of(name) for name in names]
    assert found == ["utf-8", None, "cp932", "cp949", "cp1251", None, None, None]


def test_broken_bytes_cost_only_themselves() -> None:
    file = io.BytesIO(
        TEXT.format(charset="UTF-8", title="ab").encode().replace(b"ab", b"\xff" + "ä".encode() + b"\xfe")
    )
    lines = io.BytesIO()
    assert put_aside(file, lines).total == 1
    [found] = items(lines)
    assert found.link == Link(link_id("http://a.example/"), "http://a.example/", "a.example")


def test_an_upload_may_be_bytes_or_a_path(tmp_path: Path) -> None:
    content, path = bookmarks_file("http://a.example/"), tmp_path / "bookmarks.html"
    path.write_bytes(content)
    for upload in (content, path, str(path)):
        with opened(upload) as file:
            assert put_aside(file, io.BytesIO()).total == 1
    assert file.closed
    with pytest.raises(BadUpload, match="cannot read"), opened(tmp_path / "nowhere.html"):
        pass


@each(
    "href, expected",
    [
        ("http://a.example/x?b=1&utm_source=y", "http://a.example/x?b=1"),
        ("  HTTPS://A.Example:443/ä b ", "https://a.example/%C3%A4%20b"),
        ("http://a.example/\n\tx", "http://a.example/x"),
        ("http://bücher.example/", "http://xn--bcher-kva.example/"),
        ("http://[2606:4700::1]:8080/", "http://[2606:4700::1]:8080/"),
        ("JavaScript:void(0)", "javascript"),
        ("chrome-extension://abc/", "chrome-extension"),
        ("", INVALID),
        ("no scheme", INVALID),
        ("http://", INVALID),
        ("http://127.1/", INVALID),
    ],
)
def test_a_bookmark_has_a_canonical_link_or_the_reason_why_it_has_none(href: str, expected: str) -> None:
    found = link_of(href)
    assert (found.url if isinstance(found, Link) else found) == expected


def test_a_links_id_is_made_of_its_url() -> None:
    """S0.8: link_canonical_id is a uuid, the same wherever the link is met."""
    for url in ("http://a.example/", "http://xn--bcher-kva.example/%C3%A4", "https://a.example/x?a=1"):
        assert link_id(url) == str(uuid.uuid5(uuid.NAMESPACE_URL, url))
    assert link_of("http://[2606:4700::1]:8080/x") == Link(
        link_id("http://[2606:4700::1]:8080/x"), "http://[2606:4700::1]:8080/x", "[2606:4700::1]"
    )


async def test_links_are_written_in_one_order_by_everybody() -> None:
    """Else two imports of one file, in other orders, would wait for each other in a circle."""

    class Written:
        def __init__(self) -> None:
            self.args: tuple[object, ...] = ()

        async def execute(self, sql: str, *args: object) -> None:
            self.args = args

        async def fetch(self, sql: str, *args: object) -> list[object]:
            return []

    one, other = Written(), Written()
    lines = [bookmarks_file(*urls) for urls in (URLS, URLS[::-1])]
    for session, data in zip((one, other), lines, strict=True):
        put = io.BytesIO()
        put_aside(io.BytesIO(data), put)
        await tables.add_links(session, list(items(put)))
    assert one.args[1:] == other.args[1:]
    assert len(one.args) == 1 + 3 * len(URLS)


URLS = [f"http://{n}.a.example/" for n in range(30)]


def test_one_bad_byte_in_a_file_that_says_utf8_costs_one_character_also_beside_a_single_accent() -> None:
    file = io.BytesIO(TEXT.format(charset="UTF-8", title="Caf\u00e9 #").encode().replace(b"#", b"\xff"))
    assert encoding_of(file) == ("utf-8", 1)
