"""robots.txt: whom it speaks to, what it forbids, and one that cannot be read."""

import pytest

from rowlock import SourceError
from rowlock_apps.bookmarks.small_web import answer, page, small_web
from rowlock_apps.bookmarks.web import robots
from rowlock_apps.bookmarks.web.fetch import ROBOT, open_fetcher
from support.each import each

ALL = "User-agent: *\nDisallow: "


@each(
    "text, path, allowed",
    [
        (ALL + "/", "/x", False),
        (ALL, "/x", True),
        ("\ufeff" + ALL + "/", "/x", False),  # a mark before the first line is none of its letters
        (f"User-agent: {ROBOT}/1.0\nDisallow: /", "/x", False),
        (f"User-agent: {ROBOT.upper()} (a robot)\nDisallow: /", "/x", False),
        (f"User-agent: {ROBOT}-2\nDisallow: /", "/x", True),
        (f"User-agent: {ROBOT}/2.0\nDisallow:\n\n{ALL}/", "/x", True),
        (ALL + "/a*c", "/abc", False),
        (ALL + "/a%2A", "/abc", True),
        (ALL + "/a%2A", "/a*c", False),
        (ALL + "/a%2A", "/a%2ac", False),
        (ALL + "/a%2Ac*e", "/a*cde", False),
        (ALL + "/a$", "/a", False),
        (ALL + "/a$", "/ab", True),
        (ALL + "/a%24", "/ab", True),
        (ALL + "/a%24", "/a$b", False),
        (ALL + "/p\nAllow: /p/q", "/p/q/r", True),
    ],
)
def test_robots_txt_allows_or_forbids_a_path(text: str, path: str, allowed: bool) -> None:
    assert robots.parse(text, ROBOT).allows(path) is allowed


async def test_a_robots_txt_that_cannot_be_unpacked_is_asked_for_again() -> None:
    """What it says is not known, so nothing is fetched; it may be another one the next time."""
    packed = answer(b"x", Content_Encoding="br")
    async with small_web({"a.example/robots.txt": packed, "a.example/": page("A")}) as web:
        async with open_fetcher(web.resolve, web.dial) as fetcher:
            with pytest.raises(SourceError, match=r"robots\.txt of a\.example: .* packed as 'br'") as failed:
                await fetcher.page("http://a.example/")
    assert failed.value.code == "ENCODING"
    assert web.asked["a.example/"] == 0


async def test_a_mark_before_a_robots_txt_hides_nothing() -> None:
    marked = answer(b"\xef\xbb\xbfUser-agent: *\r\nDisallow: /\r\n", Content_Type="text/plain")
    async with small_web({"a.example/robots.txt": marked, "a.example/": page("A")}) as web:
        async with open_fetcher(web.resolve, web.dial) as fetcher:
            with pytest.raises(Exception, match=r"robots\.txt of a\.example forbids it"):
                await fetcher.page("http://a.example/")
