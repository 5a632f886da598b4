"""Bookmarks files: small ones by hand, large ones by number."""

from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path

ICON = "data:image/png;base64," + "iVBORw0KGgoAAAANSUhEUgAAABAAAAAQCAYAAAAf8" * 12
START = (
    "<!DOCTYPE NETSCAPE-Bookmark-file-1>\n"
    '<META HTTP-EQUIV="Content-Type" CONTENT="text/html; charset={charset}">\n'
    "<TITLE>Bookmarks</TITLE>\n<H1>Bookmarks</H1>\n<DL><p>\n"
)


def bookmarks_file(*urls: str, charset: str = "UTF-8") -> bytes:
    """A file with these links, titled by their numbers."""
    rows = [f'    <DT><A HREF="{escape(url)}">title {number}</A>' for number, url in enumerate(urls)]
    return (START.format(charset=charset) + "\n".join(rows) + "\n</DL><p>\n").encode()


def large_lines(number: int, hosts: int = 500) -> Iterator[str]:
    """As Chrome writes it: folders, icons, and one bookmark in ten twice."""
    yield START.format(charset="UTF-8")
    for n in range(number):
        if n % 100 == 0:
            yield f'    <DT><H3 ADD_DATE="1600000000" LAST_MODIFIED="0">Folder {n // 100}</H3>\n    <DL><p>\n'
        which = n // 10 if n % 10 == 9 else n
        url = f"https://host{which % hosts}.example/articles/{which}?id={which}&amp;utm_source=mail"
        words = f"Article {n} &mdash; something to read later"
        yield f'        <DT><A HREF="{url}" ADD_DATE="{1_600_000_000 + n}" ICON="{ICON}">{words}</A>\n'
        if n % 100 == 99:
            yield "    </DL><p>\n"
    yield "</DL><p>\n"


def write_lines(path: Path, lines: Iterable[str]) -> Path:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(lines)
    return path
