"""What k = 2 is counted for: the registrable domain."""

import asyncio
import socket
from collections import Counter

import pytest

from apps.bookmarks.conftest import Make
from apps.bookmarks.files import bookmarks_file
from rowlock_apps.bookmarks.links import Link, domain_of, link_of
from rowlock_apps.bookmarks.shared import ENRICH
from rowlock_apps.bookmarks.small_web import Behaviour, Send, page
from support.each import each


@each(
    "url, domain",
    [
        ("http://a.co.uk/", "a.co.uk"),
        ("http://www.a.co.uk/", "a.co.uk"),
        ("http://blog.a.co.uk:8080/", "a.co.uk"),
        ("http://x.y.z.example.com./", "example.com"),
        ("http://WWW.Example.COM/", "example.com"),
        ("http://a.github.io/", "a.github.io"),
        ("http://www.b.github.io/", "b.github.io"),
        ("http://github.io/", "github.io"),
        ("http://co.uk/", "co.uk"),
        ("http://www.ck/", "www.ck"),  # an exception of the list
        ("http://www.city.kawasaki.jp/", "city.kawasaki.jp"),
        ("http://www.bücher.example/", "xn--bcher-kva.example"),
        ("http://www.食狮.公司.cn/", "xn--85x722f.xn--55qx5d.cn"),
        ("http://shop.a.unheard-of/", "a.unheard-of"),
        ("http://localhost/", "localhost"),
        ("http://93.184.215.14/", "93.184.215.14"),
        ("http://94.184.215.14:81/", "94.184.215.14"),
        ("http://[2606:4700::1]:8080/", "[2606:4700::1]"),
    ],
)
def test_the_registrable_domain_of_a_link(url: str, domain: str) -> None:
    """S0.22: hosts of one operator share the limit, operators under one suffix do not."""
    link = link_of(url)
    assert isinstance(link, Link)
    assert domain_of(link.host) == domain


def test_a_domain_is_known_without_asking_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the public suffix list must come with the library")

    monkeypatch.setattr(socket, "socket", refuse)
    from rowlock_apps.bookmarks import links

    links._suffixes.cache_clear()
    domain_of.cache_clear()
    assert domain_of("www.a.co.uk") == "a.co.uk"


async def test_two_of_one_registrable_domain_at_a_time_whatever_the_host(place: Make) -> None:
    """S0.22, S0.23: six hosts of one domain have two requests at a time; three of a shared suffix have three."""
    running, go_on = Counter[str](), asyncio.Event()

    def held(host: str) -> Behaviour:
        async def send_it(send: Send) -> None:
            running[host.partition(".")[2]] += 1
            await go_on.wait()
            await page(host)(send)

        return send_it

    async def as_many_as_may() -> bool:
        return running == {"a.co.uk": 2, "github.io": 3}

    hosts = [f"h{n}.a.co.uk" for n in range(6)] + [f"{name}.github.io" for name in ("ana", "ben", "carol")]
    it = await place({f"{host}/": held(host) for host in hosts} | {"late.example/": page("Late")})
    first = await it.bring(bookmarks_file(*(f"http://{host}/" for host in hosts)))
    async with it.app.worker(poll_interval_seconds=0.05):
        await it.until(as_many_as_may)
        late = await it.bring(bookmarks_file("http://late.example/"))
        await (await it.app.find_batch(late)).wait(30)  # the worker has claimed once more, and left the third alone
        at_work = Counter(job.source for job in await it.app.jobs(task=ENRICH, state="running"))
        go_on.set()
        await (await it.app.find_batch(first)).wait(30)
    assert at_work["domain:a.co.uk"] == 2
    assert (await it.read(first)).processed_items == 9
    sources = {job.source for job in await it.app.jobs(task=ENRICH)}
    assert sources == {
        "domain:a.co.uk",
        "domain:ana.github.io",
        "domain:ben.github.io",
        "domain:carol.github.io",
        "domain:late.example",
    }
