"""The guard: not one connection to what only we can reach, by whatever name, answer or redirect."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest

from rowlock import Permanent
from rowlock.public_web import AddressRefused, is_public_address, public_socket, web_target
from rowlock_apps.bookmarks.small_web import PUBLIC, answer, page, redirect, robots, small_web, to_loopback
from rowlock_apps.bookmarks.web.fetch import open_fetcher, redirected
from support.each import each

PRIVATE_V4 = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.1.2.3",
    "169.254.169.254", "169.254.170.2", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.192", "192.0.2.1",
    "192.88.99.1", "192.168.0.1", "192.168.255.255", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1",
    "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "168.63.129.16",
]  # fmt: skip
PRIVATE_V6 = [
    "::", "::1", "::ffff:127.0.0.1", "::ffff:7f00:1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:100.64.0.1",
    "::127.0.0.1", "::10.0.0.1", "::8.8.8.8", "64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b::10.0.0.1",
    "64:ff9b:1::1", "2002:7f00:1::", "2002:a00:1::", "2002:a9fe:a9fe::", "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001::1", "2001:10::1", "2001:20::1", "2001:db8::1", "3fff::1", "100::1", "fc00::1", "fd00:ec2::254", "fe80::1",
    "febf::1", "fec0::1", "ff02::1", "ff0e::1", "5f00::1", "4000::1", "fe80::1%eth0", "2606:4700::6810:84e5%eth0",
]  # fmt: skip
SPELLINGS = [
    "localhost", "LOCALHOST", "localhost.", "sub.localhost", "localhost.localdomain.local", "printer.local",
    "metadata.google.internal", "router.lan", "intranet", "kubernetes.default.svc.home.arpa", "hidden.onion",
    "2130706433", "017700000001", "0x7f000001", "0x7f.1", "127.1", "127.0.1", "0177.0.0.1", "127.0.0.1.",
    "127.0.0.0x1", "１２７.０.０.１", "127。0。0。1", "ⓛocalhost", "loc\u00adalhost", "localhost%00.example.com",
    "%6c%6f%63alhost", "user@127.0.0.1", "example.com@127.0.0.1", "127.0.0.1\\@example.com", "127.0.0.1#@example.com",
    "[::1]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[fe80::1%25eth0]",
    "[fe80::1%eth0]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[::1", "::1", "256.256.256.256", "1.2.3.4.5",
    "", ".", "..", "a..example", "-", "exa mple.com", "127.0.0.1:80:80", "example.com:99999", "example.com:22",
    "example.com:8080", "example.com:6379", "0", "00000000177.0.0.1", "127.0.0.1%0d%0aX: y",
]  # fmt: skip
HOSTILE = [*PRIVATE_V4, *(f"[{address}]" for address in PRIVATE_V6), *SPELLINGS]
OTHER_SCHEMES = [
    "file:///etc/passwd",
    "ftp://a.example/",
    "gopher://a.example/",
    "javascript:1",
    "data:,x",
    "//a.example",
]


async def test_no_hostile_host_is_ever_dialled() -> None:
    """More than 80 of them, by address, by number and by name; and the DNS is not asked about our own names."""
    assert len(HOSTILE) > 80
    own = {"localhost": ["127.0.0.1"], "localhost.": ["127.0.0.1"]}
    async with small_web({}, own) as web, open_fetcher(web.resolve, web.dial) as fetcher:
        for host in HOSTILE:
            for scheme in ("http", "https"):
                with pytest.raises(Permanent) as refused:
                    await fetcher.page(f"{scheme}://{host}/latest/meta-data/")
                assert refused.value.code in ("ADDRESS_REFUSED", "URL_REFUSED", "PORT_REFUSED"), host
        for url in OTHER_SCHEMES:
            with pytest.raises(AddressRefused):
                await fetcher.page(url)
    assert (web.dialled, web.asked.total()) == ([], 0)
    assert dict(web.resolved) == {}


@each("address", [*PRIVATE_V4, *PRIVATE_V6])
def test_private_and_special_addresses_are_not_public(address: str) -> None:
    assert not is_public_address(address)
    info = (socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 80))
    with pytest.raises(AddressRefused):
        public_socket(info)


@each("address", ["8.8.8.8", "93.184.215.14", "2606:4700::6810:84e5", "64:ff9b::8.8.8.8", "::ffff:8.8.8.8"])
def test_public_addresses_are_public(address: str) -> None:
    assert is_public_address(address)


@each("address", [*PRIVATE_V4, *PRIVATE_V6, "not an address", ""])
async def test_a_name_with_one_private_address_among_its_answers_is_never_called(address: str) -> None:
    """All answers are looked at, not only the first."""
    async with small_web({}, {"a.example": [PUBLIC, address]}) as web, open_fetcher(web.resolve, web.dial) as fetcher:
        with pytest.raises(AddressRefused, match="not a public address"):
            await fetcher.page("http://a.example/")
    assert web.dialled == []


async def test_a_name_is_resolved_once_for_each_request_and_called_where_it_was_checked() -> None:
    """Rebinding: a second answer would be loopback, and nobody asks for it."""
    answers = {"a.example": iter([[PUBLIC], [PUBLIC], ["127.0.0.1"]])}
    asked: list[str] = []

    async def resolve(host: str) -> list[str]:
        asked.append(host)
        return next(answers[host])

    async with small_web({"a.example/": page("A")}) as web, open_fetcher(resolve, web.dial) as fetcher:
        assert (await fetcher.page("http://a.example/")).head.title == "A"  # robots.txt, then the page
        assert (asked, web.dialled) == (["a.example"] * 2, [PUBLIC] * 2)
        with pytest.raises(AddressRefused):
            await fetcher.page("http://a.example/")
    assert (len(asked), len(web.dialled)) == (3, 2)


@each(
    "location",
    [
        *(f"http://{address}/" for address in PRIVATE_V4[::3]),
        *(f"https://[{address}]/" for address in PRIVATE_V6[::3]),
        *(f"http://{host}/" for host in SPELLINGS[::3]),
        *(
            "file:///etc/passwd",
            "ftp://a.example/",
            "javascript:alert(1)",
            "http://a.example:22/",
            "http://in.example/",
        ),
        *("//127.0.0.1/", "\\\\127.0.0.1\\x", "http:\\\\127.0.0.1"),
    ],
)
async def test_a_redirect_to_a_forbidden_place_is_not_followed(location: str) -> None:
    pages = {"a.example/": redirect("http://b.example/"), "b.example/": redirect(location)}
    own = {"in.example": ["10.0.0.1"], "localhost": ["127.0.0.1"]}
    async with small_web(pages, own) as web, open_fetcher(web.resolve, web.dial) as fetcher:
        with pytest.raises(Permanent) as refused:
            await fetcher.page("http://a.example/")
    assert refused.value.code != "TOO_MANY_REDIRECTS"
    assert set(web.dialled) == {PUBLIC}
    assert set(web.asked) <= {"a.example/robots.txt", "b.example/robots.txt", "a.example/", "b.example/", BACK}


BACK = "b.example/\\\\127.0.0.1\\x"  # a browser would take it for a host; here it is a path, or refused


async def test_redirects_end_after_five_and_may_change_host() -> None:
    hops = {f"h{n}.example/": redirect(f"http://h{n + 1}.example/") for n in range(5)}
    async with small_web(hops | {"h5.example/": page("There")}) as web:
        async with open_fetcher(web.resolve, web.dial) as fetcher:
            assert (await fetcher.page("http://h0.example/")).final_url == "http://h5.example/"
    loop = {"a.example/": redirect("/x"), "a.example/x": redirect("/")}
    async with small_web(loop) as web, open_fetcher(web.resolve, web.dial) as fetcher:
        with pytest.raises(Permanent) as refused:
            await fetcher.page("http://a.example/")
    assert refused.value.code == "TOO_MANY_REDIRECTS"
    assert web.asked["a.example/"] + web.asked["a.example/x"] == 6


async def test_no_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/")
    async with small_web({"a.example/": page("A")}) as web, open_fetcher(web.resolve, web.dial) as fetcher:
        assert (await fetcher.page("http://a.example/")).head.title == "A"
    assert set(web.dialled) == {PUBLIC}


async def _one_connection(serve: Callable[..., Any], use: Callable[[int], Any]) -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        await use(server.sockets[0].getsockname()[1])


async def test_cookies_and_credentials_go_nowhere_and_the_host_is_kept() -> None:
    """What one answer sets, no later request carries; and each request says whom it is for."""
    requests: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append((await reader.readuntil(b"\r\n\r\n")).decode())
        to = b"Location: http://b.example/x?y=1\r\n" if "b.example" not in requests[-1] else b""
        robots_asked = "robots.txt" in requests[-1]
        status = b"404 No" if robots_asked else b"302 Found" if to else b"200 OK"
        writer.write(b"HTTP/1.1 %b\r\nSet-Cookie: a=secret\r\n%bContent-Length: 0\r\n\r\n" % (status, to))
        await writer.drain()
        writer.close()

    async def resolve(host: str) -> list[str]:
        return [PUBLIC]

    async def use(port: int) -> None:
        async with open_fetcher(resolve, lambda info: to_loopback(port)) as fetcher:
            await fetcher.page("http://a.example/p?q=1")

    await _one_connection(serve, use)
    assert [line.splitlines()[0] for line in requests][1::2] == ["GET /p?q=1 HTTP/1.1", "GET /x?y=1 HTTP/1.1"]
    assert ["Host: a.example" in request for request in requests] == [True, True, False, False]
    assert not any("cookie" in request.lower() or "authorization" in request.lower() for request in requests)
    assert not any("referer" in request.lower() for request in requests)
    assert all("Accept-Encoding: gzip, identity" in request for request in requests)


async def test_the_name_is_kept_in_tls() -> None:
    """The connection goes to an address; the certificate is that of the name."""
    hello: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello.append(await reader.read(2000))
        writer.close()

    async def resolve(host: str) -> list[str]:
        return [PUBLIC]

    async def use(port: int) -> None:
        async with open_fetcher(resolve, lambda info: to_loopback(port)) as fetcher:
            with pytest.raises(Exception, match=r"secure\.example"):
                await fetcher.page("https://secure.example/")

    await _one_connection(serve, use)
    assert b"secure.example" in hello[0]


def test_a_target_keeps_what_the_url_says() -> None:
    target = web_target("HTTP://A.Example:80/b/../c?z=1&a=2&utm_source=x#top")
    assert (target.host, target.port, target.path) == ("a.example", 80, "/b/../c?z=1&a=2&utm_source=x")
    assert web_target("https://a.example").url == "https://a.example/"
    assert web_target("https://a.example?x").path == "/?x"
    assert web_target("http://a.example/ä b").path == "/%C3%A4%20b"
    assert web_target("http://a.example:8080/", ports={8080}).authority == "a.example:8080"


async def test_a_fetcher_may_be_given_ports_other_than_80_and_443() -> None:
    async with small_web({"a.example:8080/": page("A"), "a.example:8080/robots.txt": robots("")}) as web:
        async with open_fetcher(web.resolve, web.dial, ports={8080}) as fetcher:
            assert (await fetcher.page("http://a.example:8080/")).head.title == "A"
            with pytest.raises(AddressRefused, match="port 80 of"):
                await fetcher.page("http://a.example/")


async def test_a_response_that_is_not_http_is_an_error_that_names_the_server() -> None:
    async with small_web({"a.example/": answer(status="abc")}) as web, open_fetcher(web.resolve, web.dial) as fetcher:
        with pytest.raises(Exception, match=r"a\.example"):
            await fetcher.page("http://a.example/")


@each(
    "location",
    [
        "http://h.example:99999/cb?code=canary#canary",
        "ftp://u:canary@h.example/?q=canary",
        "http://u:canary@exa℀mple.com/",
        "http://[canary]/",
        "http://u:canary@h.example/",
        "http://h.example/\x01?q=canary",
        "http://h.example:22/?q=canary",
    ],
)
def test_a_refused_redirect_names_its_server_and_nothing_of_its_url(location: str) -> None:
    """S0.29: what it carries may let others in."""
    with pytest.raises(AddressRefused) as refused:
        redirected(web_target("http://a.example/"), location, (80, 443))
    assert "canary" not in str(refused.value)
    assert "a.example redirects" in str(refused.value) or "port 22 of h.example" in str(refused.value)
