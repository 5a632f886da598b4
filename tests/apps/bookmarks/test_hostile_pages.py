"""Pages that were made to hurt: each ends, within its time and in little memory."""

import asyncio
import json
import random
import re
import subprocess
import sys
import time
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rowlock import Permanent, SourceError
from rowlock_apps.bookmarks.small_web import Send, answer, endless, page, small_web
from rowlock_apps.bookmarks.web import body
from rowlock_apps.bookmarks.web.fetch import Limits, open_fetcher
from rowlock_apps.bookmarks.web.head import MOST_BYTES, HeadReader, head_of
from support.each import each

MEASURE = Path(__file__).with_name("measure_fetch.py")
PATIENT = Limits(total=60.0, headers=60.0, idle=60.0)


def test_bombs_and_endless_pages_take_little_memory_and_time() -> None:
    """A gzip of 10 MB that holds 10 GB, endless bodies, endless headers, and drips, in a process that both serves and
    fetches them, so that what it grows by is an upper bound."""
    done = subprocess.run([sys.executable, MEASURE], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    ends = {name: case["end"] for name, case in found.items()}
    assert ends == {
        "bomb": "BOMB",
        "tame_bomb": "Tame",
        "endless": "None",
        "endless_text": "None",
        "endless_headers": "CONNECTION",
        "drip": "TIMEOUT",
        "header_drip": "TIMEOUT",
        "silence": "TIMEOUT",
        "endless_robots": "R",
    }
    assert {name: case["grown_mb"] for name, case in found.items() if case["grown_mb"] > 20} == {}
    assert {name: case["cpu_seconds"] for name, case in found.items() if case["cpu_seconds"] > 4} == {}
    assert {name: case["seconds"] for name, case in found.items() if case["seconds"] > 15} == {}


def cpu_seconds(data: bytes) -> float:
    began = time.process_time()
    reader = HeadReader()
    for n in range(0, len(data), 65536):
        reader.feed(data[n : n + 65536])
        if reader.done:
            break
    reader.head("http://a.example/", None)
    return time.process_time() - began


@each(
    "data",
    [
        b"<div>" * 1_000_000,
        b"<head>" + b"<svg><g>" * 1_000_000,
        b"<a " + b" ".join(b"a%d=1" % n for n in range(100_000)) + b">",
        b"<meta " + b"a " * 100_000 + b">",
        b"<meta content='" + b"<" * 1_000_000,
        b"<title>" + b"<" * 1_000_000,
        b"<!--" * 300_000,
        b"<script>" * 300_000,
        b"<" * 1_000_000,
        b"<a" * 500_000,
        b"&" * 1_000_000,
        b"<title>" + b"&amp;" * 300_000,
        b"<link rel=icon href=" + b"a" * 1_000_000 + b">",
        b"<meta name=description content=x>" * 50_000,
        b"<b><i>" * 200_000,
        b"<table><tr><td>" * 100_000,
        b"<select><option>" * 100_000,
        bytes(1_000_000),
    ],
    ids=lambda data: repr(data[:18]),
)
def test_a_head_made_to_slow_down_the_parser_takes_at_most_a_second(data: bytes) -> None:
    """Depth of 1e6, 1e5 attributes, and what else parsers stumble over: at most a second of CPU time."""
    assert cpu_seconds(data) <= 1.0


@each("charset", ["punycode", "idna", "unicode_escape", "utf-7", "undefined", "zip", "a\x00b"])
def test_a_charset_that_browsers_do_not_know_is_read_as_utf8(charset: str) -> None:
    """Some take many seconds, some make of a page what nobody wrote; it is read as UTF-8."""
    began = time.process_time()
    for data in (rb"<title>+2AA- \ud800 x</title>", b"<title>+2AA- \\ud800 x</title>x-" + b"9" * MOST_BYTES):
        reader = HeadReader()
        reader.feed(data)
        assert reader.head("http://a.example/", charset).title == r"+2AA- \ud800 x"
    assert time.process_time() - began < 1


def test_nothing_is_read_after_the_end_of_a_pages_head_or_the_byte_limit() -> None:
    reader = HeadReader()
    reader.feed(b"<html><head><title>A</title></he")
    assert not reader.done
    reader.feed(b"ad><body><title>B</title>" + b"x" * 100)
    assert reader.done
    assert reader.head("http://a.example/", None).title == "A"
    reader = HeadReader()
    reader.feed(b"x" * (MOST_BYTES + 5))
    assert reader.done


@each(
    "data, charset, title",
    [
        ("<title>Привет</title>".encode("cp1251"), "windows-1251", "Привет"),
        ("<meta charset=euc-kr><title>안녕</title>".encode("euc-kr"), None, "안녕"),
        ("<title>안녕</title>".encode("utf-16"), None, "안녕"),
        ("\ufeff<title>é</title>".encode(), "latin-1", "é"),
        ("<title>é</title>".encode("latin-1"), "no-such-charset", "\ufffd"),
        ("<title>“q”</title>".encode("cp1252"), "iso-8859-1", "“q”"),
        (b"<title>a &amp; b\x00\n c</title>", None, "a & b\ufffd c"),
        (b"<script>'<title>no</title>'</script><title>yes</title>", None, "yes"),
        (b"<title>" + b"long " * 500, None, ("long " * 100).strip()),
    ],
)
def test_a_title_is_read_in_the_encoding_of_its_page(data: bytes, charset: str | None, title: str) -> None:
    reader = HeadReader()
    reader.feed(data)
    assert reader.head("http://a.example/", charset).title == title


def test_urls_of_a_head_are_absolute_and_of_the_web() -> None:
    found = head_of(
        "<base href='/b/'><link rel=icon href=i.png><meta property=og:image content='javascript:alert(1)'>"
        "<link rel=canonical href='http://user:pw@a.example/'>",
        "http://a.example/x",
    )
    assert (found.icon_url, found.image_url, found.canonical_url) == ("http://a.example/b/i.png", None, None)


async def chunks(*data: bytes) -> AsyncIterator[bytes]:
    for piece in data:
        yield piece


async def test_a_body_is_unpacked_step_by_step_and_cut_off() -> None:
    """The cap on output holds without the ratio's help."""
    text = random.Random(1).randbytes(60_000) * 100
    packed = zlib.compressobj(1, zlib.DEFLATED, 31)
    data = packed.compress(text) + packed.flush()
    pieces = chunks(*(data[n : n + 99_999] for n in range(0, len(data), 99_999)))
    steps = [step async for step in body.inflated(pieces, "gzip")]
    assert len(text) > body.MOST_BYTES
    assert b"".join(steps) == text[: body.MOST_BYTES]
    assert max(map(len, steps)) <= body.STEP
    assert b"".join([step async for step in body.inflated(chunks(b"ab", b"cd"), "identity", 3)]) == b"abc"


@each("name", ["br", "zstd", "deflate", "gzip, gzip", "compress"])
async def test_an_encoding_that_was_not_asked_for_is_refused(name: str) -> None:
    with pytest.raises(Permanent) as refused:
        [step async for step in body.inflated(chunks(b"x"), name)]
    assert refused.value.code == "ENCODING"


async def test_broken_gzip_is_the_servers_fault() -> None:
    with pytest.raises(SourceError, match="gzip is broken"):
        [step async for step in body.inflated(chunks(b"not gzip at all"), "gzip")]


async def test_a_server_that_closes_in_the_middle_of_a_page_is_a_connection_error() -> None:
    async def half(send: Send) -> None:
        await send(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 1000\r\n\r\n<title>ha")

    async with small_web({"a.example/": half}) as web, open_fetcher(web.resolve, web.dial) as fetcher:
        with pytest.raises(SourceError) as failed:
            await fetcher.page("http://a.example/")
    assert (failed.value.code, str(failed.value)) == ("CONNECTION", "a.example: ClientPayloadError")


async def test_many_slow_servers_do_not_hold_up_a_quick_one() -> None:
    pages = {
        "slow.example": endless(b"x", pause=0.05),
        "quick.example/": page("Q"),
        "slow.example/robots.txt": answer(),
    }
    async with small_web(pages) as web, open_fetcher(web.resolve, web.dial, limits=PATIENT) as fetcher:
        slow = [asyncio.create_task(fetcher.page(f"http://slow.example/{n}")) for n in range(20)]
        async with asyncio.timeout(30):
            while len([path for path in web.asked if re.fullmatch(r"slow\.example/\d+", path)]) < 20:
                await asyncio.sleep(0.01)
        assert (await fetcher.page("http://quick.example/")).head.title == "Q"
        assert not any(task.done() for task in slow)
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
