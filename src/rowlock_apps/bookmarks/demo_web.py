"""The demo's web, and the file of bookmarks that leads there."""

from __future__ import annotations

from html import escape
from typing import NamedTuple

from .small_web import Behaviour, Pages, Send, answer, bomb, endless, page, redirect, robots

NOT_PUBLIC = "10.0.0.5"


class Site(NamedTuple):
    """A page of the demo, and how its link must end: with a title, or dead with an error code."""

    link: str
    behaviour: Behaviour | None  # None: it must never be requested
    title: str | None = None
    code: str | None = None


def sites(run: int) -> list[Site]:
    """The web. A database that has seen a demo before gets one with other names."""
    n = run or ""
    news = [Site(f"news{n}.example/{i}", page(f"News {i}", wait=0.4), f"News {i}") for i in range(1, 9)]
    return [
        *news,
        *(Site(f"slow{n}.example/{i}", page(f"Slow {i}", wait=1.2), f"Slow {i}") for i in range(1, 4)),
        Site(f"moved{n}.example/old", redirect(f"http://blog{n}.example/new"), "A post that moved"),
        Site(f"blog{n}.example/new", page("A post that moved"), "A post that moved"),
        Site(f"shaky{n}.example/", _fails_once(page("Back after a failure")), "Back after a failure"),
        Site(f"endless{n}.example/", endless(b"<title>Endless</title>" + b"<meta name=a content=b>" * 99), "Endless"),
        Site(f"broken{n}.example/", answer(status="500 Internal Server Error"), code="HTTP_500"),
        Site(f"gone{n}.example/", answer(status="410 Gone"), code="HTTP_410"),
        Site(f"members{n}.example/", answer(status="403 Forbidden"), code="HTTP_403"),
        Site(f"quiet{n}.example/private", page("never seen"), code="ROBOTS"),
        Site(f"wall{n}.example/", page("Just a moment..."), code="CAPTCHA"),
        Site(f"bomb{n}.example/", bomb(200_000), code="BOMB"),
        Site(f"trap{n}.example/", redirect("http://169.254.169.254/latest/meta-data/"), code="ADDRESS_REFUSED"),
        Site(f"inside{n}.example/", None, code="ADDRESS_REFUSED"),
        Site(f"news{n}.example:8080/", None, code="PORT_REFUSED"),
    ]


def _fails_once(then: Behaviour) -> Behaviour:
    seen: list[bool] = []

    async def send_it(send: Send) -> None:
        first = not seen
        seen.append(True)
        await (answer(status="503 Service Unavailable") if first else then)(send)

    return send_it


def bookmarks_file(web: list[Site]) -> bytes:
    """What Ana exported: every link, some of them in a second folder and another spelling, and a bookmarklet."""
    rows = [f'<DT><A HREF="http://{escape(site.link)}">my {escape(site.link)}</A>' for site in web]
    again = [f'<DT><A HREF="HTTP://{escape(site.link)}?utm_source=mail#top">again</A>' for site in web[:4]]
    return "\n".join(
        [
            "<!DOCTYPE NETSCAPE-Bookmark-file-1>",
            "<TITLE>Bookmarks</TITLE><H1>Bookmarks</H1><DL><p>",
            *("<DT><H3>To read</H3><DL><p>", *rows, "</DL><p>"),
            *("<DT><H3>Later</H3><DL><p>", *again, '<DT><A HREF="javascript:alert(1)">A bookmarklet</A>', "</DL><p>"),
            "</DL><p>",
        ]
    ).encode()


def pages_of(web: list[Site]) -> Pages:
    """What the servers answer."""
    quiet = next(site.link.partition("/")[0] for site in web if site.code == "ROBOTS")
    pages = {site.link: site.behaviour for site in web if site.behaviour is not None}
    return pages | {f"{quiet}/robots.txt": robots("User-agent: *\nDisallow: /private")}


def addresses_of(web: list[Site]) -> dict[str, list[str]]:
    """Names whose address is inside of our own network."""
    return {site.link.partition("/")[0]: [NOT_PUBLIC] for site in web if site.link.startswith("inside")}
