"""How imports end on both engines: cancelled beside others, retried by an operator, and after their batch is gone."""

from datetime import timedelta

from apps.bookmarks.conftest import Make, Place
from apps.bookmarks.files import bookmarks_file
from rowlock import FakeClock
from rowlock_apps.bookmarks.shared import ENRICH
from rowlock_apps.bookmarks.small_web import Behaviour, Send, answer, page

LINK = "http://a.example/1"
FILE = bookmarks_file(LINK)


async def cancel(it: Place, import_id: str) -> None:
    await (await it.app.find_batch(import_id)).cancel()


async def test_a_link_of_a_canceled_import_is_still_fetched_for_those_who_have_left_it_to_that(place: Make) -> None:
    """S0.10: one job for each link must not mean that one user takes it away from another."""
    it = await place({"a.example/1": page("A"), "a.example/2": page("B")})
    ana = await it.bring(bookmarks_file(LINK, "http://a.example/2"))
    ben = await it.bring(FILE, "ben")
    await cancel(it, ana)
    await it.work(ana, ben)
    assert [(await it.read(one)).status for one in (ana, ben)] == ["canceled", "succeeded"]
    assert (it.web.asked["a.example/1"], it.web.asked["a.example/2"]) == (1, 0)
    assert await it.rows("SELECT title FROM bookmarks_pages") == [("A",)]


async def test_what_nobody_waits_for_is_not_fetched_when_an_import_is_canceled(place: Make) -> None:
    """S0.10: not for those who have cancelled too, who have an answer already, or whose page is there."""
    it = await place({"a.example/1": answer(status="410 Gone"), "a.example/2": page("B"), "a.example/3": page("C")})
    await it.work(await it.bring(bookmarks_file(LINK, "http://a.example/2")))
    ben = await it.bring(bookmarks_file("http://a.example/3"), "ben")
    await cancel(it, ben)
    await it.work(ben)
    ana = await it.bring(bookmarks_file(LINK, "http://a.example/2", "http://a.example/3"))
    await cancel(it, ana)
    it.web.asked.clear()
    await it.work(ana)
    assert it.web.asked.total() == 0
    assert await it.app.jobs(task=ENRICH, state=["queued", "running"]) == []


def better_the_second_time() -> Behaviour:
    seen = []

    async def send_it(send: Send) -> None:
        seen.append(1)
        await (page("A") if len(seen) > 1 else answer(status="410 Gone"))(send)

    return send_it


async def forgotten(it: Place, import_id: str) -> None:
    table = "rowlock_batches" if it.app.settings.database.startswith("sqlite") else "rowlock.batches"
    await it.rows(f"DELETE FROM {table} WHERE id = $1", import_id)


async def test_the_record_of_an_import_is_that_of_its_batch_also_when_that_is_gone(place: Make) -> None:
    """S0.6, S0.7: counters, created, started and finished times and the last error, by one clock."""
    clock = FakeClock()
    it = await place({"a.example/1": page("A"), "b.example/": answer(status="410 Gone")}, clock=clock)
    began = clock.now()
    import_id = await it.bring(bookmarks_file(LINK, "http://b.example/"))
    clock.move(timedelta(hours=1))
    [before] = await it.work(import_id)
    assert (before.created_at, before.started_at) == (began, began + timedelta(hours=1))
    assert (before.status, before.failed_items) == ("failed", 1)
    await forgotten(it, import_id)
    assert await it.read(import_id) == before


async def test_the_record_of_an_import_is_right_after_an_operators_retry(place: Make) -> None:
    """S0.6, S0.7: a batch tells its first end only; a retry may bring another."""
    clock = FakeClock()
    it = await place({"a.example/1": better_the_second_time()}, clock=clock)
    import_id = await it.bring(FILE)
    [first] = await it.work(import_id)
    assert (first.status, first.failed_items, first.last_error) == ("failed", 1, "HTTP_410: a.example answered 410")
    [job] = await it.app.jobs(task=ENRICH)
    clock.move(timedelta(days=1))
    await it.app.retry(job.id)
    async with it.app.worker(poll_interval_seconds=0.1):
        await job.wait(10)
        await (await it.app.find_batch(import_id)).wait(10)

        async def kept() -> bool:
            clock.move(timedelta(minutes=1))  # who looked before the batch was over looks again after a while
            return await it.rows("SELECT state FROM bookmarks_imports") == [("succeeded",)]

        await it.until(kept)
    again = await it.read(import_id)
    assert (again.status, again.failed_items, again.last_error) == ("succeeded", 0, None)
    assert again.started_at == first.started_at
    assert again.finished_at == first.started_at + timedelta(days=1)
    await forgotten(it, import_id)
    assert await it.read(import_id) == again
    assert await it.rows("SELECT last_error FROM bookmarks_imports") == [(None,)]  # as the view shows it then
