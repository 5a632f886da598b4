"""Imports on both engines: what is placed, what is counted, and that each link has one job."""

import asyncio
import threading
from typing import Any

import pytest

from apps.bookmarks.conftest import Make
from apps.bookmarks.files import bookmarks_file
from apps.engines import ONE_ENGINE
from rowlock import BatchNotFound, InvalidArguments
from rowlock_apps.bookmarks import BadUpload, ImportNotFound, import_file, imports
from rowlock_apps.bookmarks.shared import ENRICH
from rowlock_apps.bookmarks.small_web import Send, answer, page
from rowlock_apps.bookmarks.uploads import Contents, put_aside

SOME = ["http://a.example/1", "http://a.example/2", "http://b.example/1"]
PAGES = {link.removeprefix("http://"): page(link) for link in SOME}


async def test_a_file_becomes_an_import_with_counters_and_an_end(place: Make) -> None:
    """S0.5, S0.6, S0.7: id, user, source type, status, counters, times and the last error."""
    it = await place(PAGES | {"b.example/gone": answer(status="410 Gone")})
    import_id = await it.bring(bookmarks_file(*SOME, "http://b.example/gone"))
    one = await it.read(import_id)
    assert (one.user_id, one.source_type, one.status, one.total_items) == ("ana", "chrome_html", "queued", 4)
    assert (one.processed_items, one.failed_items, one.started_at, one.over) == (0, 0, None, False)
    [one] = await it.work(import_id)
    assert (one.status, one.total_items, one.processed_items, one.failed_items) == ("failed", 4, 4, 1)
    assert one.last_error == "HTTP_410: b.example answered 410"
    assert one.started_at is not None
    assert one.finished_at is not None
    assert one.over


async def test_what_an_import_came_to_outlives_its_batch(place: Make) -> None:
    """S0.6: batches are pruned, imports are not."""
    it = await place(PAGES)
    import_id = await it.bring(bookmarks_file(*SOME, SOME[0]))
    [before] = await it.work(import_id)
    table = "rowlock_batches" if it.app.settings.database.startswith("sqlite") else "rowlock.batches"
    await it.rows(f"DELETE FROM {table} WHERE id = $1", import_id)
    with pytest.raises(BatchNotFound):
        await it.app.find_batch(import_id)
    after = await it.read(import_id)
    assert (after.status, after.total_items, after.processed_items, after.failed_items) == ("succeeded", 4, 4, 0)
    assert before.processed_items == after.processed_items


async def test_a_link_in_three_folders_and_spellings_is_fetched_once(place: Make) -> None:
    """S0.8, S0.10, S0.11: one job for each canonical link, in however many folders it lies."""
    it = await place(PAGES)
    spellings = [SOME[0], "HTTP://A.example:80/1#top", "http://a.example/x/../1?utm_source=mail"]
    import_id = await it.bring(bookmarks_file(*spellings))
    assert await it.rows("SELECT url FROM bookmarks_links") == [(SOME[0],)]
    assert len(await it.rows("SELECT DISTINCT link_id FROM bookmarks_placements")) == 1
    assert [row[0] for row in await it.rows("SELECT url FROM bookmarks_placements ORDER BY position")] == spellings
    assert (await it.read(import_id)).processed_items == 2
    [one] = await it.work(import_id)
    assert (one.status, one.total_items, one.processed_items) == ("succeeded", 3, 3)
    assert it.web.asked["a.example/1"] == 1


async def test_two_users_who_import_at_once_share_the_jobs_and_both_counts_are_exact(place: Make) -> None:
    """S0.10, S0.19: each link is fetched once, and both imports end with all of their bookmarks."""
    hosts = [f"h{n}.example" for n in range(30)]
    it = await place({f"{host}/": page(host) for host in hosts})
    links = [f"http://{host}/" for host in hosts]
    ids = await asyncio.gather(
        it.bring(bookmarks_file(*links, *links), "ana"), it.bring(bookmarks_file(*reversed(links)), "ben")
    )
    made = [(await it.app.find_batch(import_id)).total for import_id in ids]
    assert sum(made) == 30
    ana, ben = await it.work(*ids)
    assert (ana.status, ana.total_items, ana.processed_items, ana.failed_items) == ("succeeded", 60, 60, 0)
    assert (ben.status, ben.total_items, ben.processed_items, ben.failed_items) == ("succeeded", 30, 30, 0)
    assert {it.web.asked[f"{host}/"] for host in hosts} == {1}


async def test_what_was_fetched_is_not_fetched_again_and_what_died_is_tried_again(place: Make) -> None:
    """S0.10: no new job while one has succeeded; a dead one lets go."""
    it = await place(PAGES | {"b.example/gone": answer(status="410 Gone")})
    file = bookmarks_file(*SOME, "http://b.example/gone")
    await it.work(await it.bring(file))
    assert await it.rows("SELECT dead_code FROM bookmarks_links WHERE dead_code IS NOT NULL") == [("HTTP_410",)]
    again = await it.bring(file, "ben")
    assert (await it.app.find_batch(again)).total == 1
    [one] = await it.work(again)
    assert (one.status, one.total_items, one.processed_items, one.failed_items) == ("failed", 4, 4, 1)
    assert (it.web.asked["a.example/1"], it.web.asked["b.example/gone"]) == (1, 2)


async def test_a_link_that_is_being_fetched_for_another_import_is_left_to_it(place: Make) -> None:
    """S0.10: no new job while one is running; the second import waits for it."""
    hold = asyncio.Event()
    reached = asyncio.Event()

    async def held(send: Send) -> None:
        reached.set()
        await hold.wait()
        await page("At last")(send)

    it = await place({"a.example/1": held})
    first = await it.bring(bookmarks_file(SOME[0]))
    async with it.app.worker(poll_interval_seconds=0.2):
        await asyncio.wait_for(reached.wait(), 10)
        second = await it.bring(bookmarks_file(SOME[0]), "ben")
        assert [(await it.read(one)).status for one in (first, second)] == ["running", "running"]
        assert len(await it.app.jobs(task=ENRICH)) == 1
        hold.set()
        await (await it.app.find_batch(first)).wait(10)
    assert [(await it.read(one)).status for one in (first, second)] == ["succeeded", "succeeded"]
    assert it.web.asked["a.example/1"] == 1


@ONE_ENGINE
async def test_what_is_not_of_the_web_is_kept_and_never_fetched(place: Make) -> None:
    """S0.11: bookmarklets and the like are placements; they have no job, are counted, and can be seen."""
    others = [
        "javascript:alert(document.cookie)",
        "data:text/html,<b>hi</b>",
        "file:///etc/passwd",
        "chrome://settings",
        "ftp://a.example/x",
        "http://",
        "http://user:secret@a.example/",
        "just text",
        f"http://{'a.' * 120}example/",
    ]
    it = await place(PAGES)
    import_id = await it.bring(bookmarks_file(SOME[0], *others))
    found = await it.rows("SELECT skipped, url FROM bookmarks_placements WHERE link_id IS NULL ORDER BY position")
    assert [row[1] for row in found] == others
    assert [row[0] for row in found] == ["javascript", "data", "file", "chrome", "ftp", *["invalid"] * 4]
    assert (await it.read(import_id)).processed_items == len(others)
    assert len(await it.app.jobs(task=ENRICH)) == 1
    [one] = await it.work(import_id)
    assert (one.status, one.processed_items, one.total_items) == ("succeeded", 10, 10)


async def test_folders_titles_and_dates_are_kept(place: Make) -> None:
    """S0.11: where the user has put a link."""
    it = await place({})
    await it.bring(
        b"<!DOCTYPE NETSCAPE-Bookmark-file-1><DL><p><DT><H3>Bar</H3><DL><p><DT><H3>News &amp; more</H3><DL><p>"
        b'<DT><A HREF="http://a.example/1" ADD_DATE="1700000000">T &lt;1&gt;</A></DL><p></DL><p></DL><p>'
    )
    [(folder, title, added)] = await it.rows("SELECT folder, title, added_at FROM bookmarks_placements")
    assert (folder, title) == ("Bar / News & more", "T <1>")
    assert str(added).replace(" ", "T")[:19] == "2023-11-14T22:13:20"


BAD: dict[str, tuple[Any, str]] = {
    "empty": (b"", "is empty"),
    "binary": (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + bytes(200), "is binary"),
    "a web page": (b"<html><body><a href='http://a.example/'>a</a></body></html>", "none in a <DL> list"),
    "text": (b"dear diary", "not a bookmarks file"),
    "no links": (b"<!DOCTYPE NETSCAPE-Bookmark-file-1><DL><p></DL>", "not a bookmarks file"),
    "missing": ("/nowhere/bookmarks.html", "cannot read /nowhere/bookmarks.html: No such file"),
    "a folder": ("/", "cannot read /: Is a directory"),
    "a device": ("/dev/null", "cannot read /dev/null: it is no file"),
    "no path": ("a\x00b", "cannot read 'a.x00b': embedded null"),
}


@ONE_ENGINE
async def test_a_bad_upload_is_a_clear_error_and_leaves_nothing(place: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """S0.3: bad input is refused before anything is written."""
    it = await place({})
    for bad, (upload, message) in BAD.items():
        with pytest.raises(BadUpload, match=message):
            await it.bring(upload)
            pytest.fail(f"{bad} was imported")
    monkeypatch.setattr("rowlock_apps.bookmarks.uploads.MOST_BOOKMARKS", 2)
    with pytest.raises(BadUpload, match="more than 2 bookmarks"):
        await it.bring(bookmarks_file(*SOME))
    monkeypatch.setattr("rowlock_apps.bookmarks.uploads.MOST_BYTES", 100)
    with pytest.raises(BadUpload, match="more than 100; split it"):
        await it.bring(bookmarks_file(*SOME))
    batches = "rowlock_batches" if it.app.settings.database.startswith("sqlite") else "rowlock.batches"
    for table in ("bookmarks_imports", "bookmarks_links", "bookmarks_placements", batches):
        assert await it.rows(f"SELECT * FROM {table}") == []
    assert await it.app.jobs() == []


@ONE_ENGINE
async def test_bad_words_for_users_and_imports_are_refused(place: Make) -> None:
    it = await place({})
    for user in (" ", "a\x00b", "\ud800"):
        with pytest.raises(InvalidArguments, match="user_id must be text"):
            await it.bring(bookmarks_file(*SOME), user)
    for unknown in ("nonsense", "01a1e3fe-e43f-71b9-8543-993b40930a9b"):
        with pytest.raises(ImportNotFound, match=f"no import with id {unknown}"):
            await it.read(unknown, "ana")


async def test_a_canceled_import_says_so_and_its_links_may_be_imported_again(place: Make) -> None:
    """S0.5: the status `canceled`."""
    it = await place(PAGES)
    import_id = await it.bring(bookmarks_file(*SOME))
    await (await it.app.find_batch(import_id)).cancel()
    assert (await it.read(import_id)).status == "canceled"
    [one] = await it.work(await it.bring(bookmarks_file(*SOME)))
    assert (one.status, one.processed_items) == ("succeeded", 3)


@ONE_ENGINE
async def test_the_web_tier_makes_jobs_and_fetches_nothing(place: Make) -> None:
    """S0.3: an import without a worker asks nobody for anything."""
    it = await place(PAGES)
    await it.read(await it.bring(bookmarks_file(*SOME)))
    assert (it.web.asked.total(), it.web.resolved.total(), it.web.dialled) == (0, 0, [])


@ONE_ENGINE
async def test_a_file_with_a_bad_byte_is_imported_with_a_warning(place: Make) -> None:
    """S0.7: the import's record says what was replaced; a file without such bytes has no warning."""
    it = await place({})
    good = bookmarks_file("http://a.example/").replace(b"title 0", "Съешь ещё булок".encode())
    bad = await it.read(await it.bring(good.replace("ещё".encode(), "ещё".encode() + b"\xff\xfe")))
    assert (bad.encoding, bad.replaced_characters) == ("utf-8", 2)
    assert bad.warning is not None
    assert bad.warning.startswith("characters of the file that are not utf-8, and were replaced by U+FFFD: 2;")
    assert await it.rows("SELECT title FROM bookmarks_placements") == [("Съешь ещё\ufffd\ufffd булок",)]
    fine = await it.read(await it.bring(good))
    assert (fine.encoding, fine.replaced_characters, fine.warning) == ("utf-8", 0, None)


class Killed(BaseException):
    """The process ends here."""


async def test_the_id_of_an_import_is_told_before_its_first_bookmark_is_placed(place: Make) -> None:
    """S0.3: whoever is killed in between knows what to cancel."""
    it = await place({})
    told: list[str] = []

    def begun(import_id: str) -> None:
        told.append(import_id)
        raise Killed

    with pytest.raises(Killed):
        await import_file(it.app, "ana", bookmarks_file(*SOME), begun=begun)
    [import_id] = told
    assert await it.rows("SELECT * FROM bookmarks_placements") == []
    one = await it.read(import_id)
    assert (one.status, one.total_items, one.processed_items) == ("canceled", 3, 0)
    with pytest.raises(BadUpload):
        await import_file(it.app, "ana", b"not bookmarks", begun=begun)
    assert len(told) == 1


@ONE_ENGINE
async def test_a_file_is_read_in_a_thread_so_that_it_does_not_block_the_event_loop(
    place: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = await place({})
    threads: list[int] = []

    def noted(*args: Any) -> Contents:
        threads.append(threading.get_ident())
        return put_aside(*args)

    monkeypatch.setattr(imports, "put_aside", noted)
    await it.bring(bookmarks_file(*SOME))
    assert len(threads) == 1
    assert threads != [threading.get_ident()]
