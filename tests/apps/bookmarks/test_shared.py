"""Links that two imports have: one job fetches them, both imports wait for it, and both count how it ends."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from apps.bookmarks.conftest import Make, Place
from apps.bookmarks.files import bookmarks_file
from rowlock import FakeClock, JobHandle, NotAllowed
from rowlock_apps.bookmarks import ImportNotFound, cancel_import, tables
from rowlock_apps.bookmarks.imports import ENDED
from rowlock_apps.bookmarks.shared import ENRICH, now
from rowlock_apps.bookmarks.small_web import Behaviour, Send, answer, page

LINK = "http://a.example/1"
FILE = bookmarks_file(LINK)


async def stands(it: Place, import_id: str) -> tuple[str, int, int, int]:
    one = await it.read(import_id)
    return one.status, one.processed_items, one.failed_items, one.total_items


async def test_an_import_of_links_that_somebody_else_asked_for_ends_when_they_do_and_counts_the_dead(
    place: Make,
) -> None:
    """S0.6, S0.10: forty links, none of which the second import has a job for."""
    hosts = [f"h{n}.example" for n in range(40)]
    dead = {f"{host}/": answer(status="410 Gone") for host in hosts[:7]}
    it = await place({f"{host}/": page(host) for host in hosts} | dead)
    links = [f"http://{host}/" for host in hosts]
    ana = await it.bring(bookmarks_file(*links))
    ben = await it.bring(bookmarks_file(*links, *links[:5]), "ben")  # and five of them in two folders
    assert (await it.app.find_batch(ben)).total == 0
    assert await stands(it, ben) == ("running", 5, 0, 45)
    await it.work(ana, ben, seconds=60)
    assert await stands(it, ana) == ("failed", 40, 7, 40)
    assert await stands(it, ben) == ("failed", 45, 7, 45)
    last_error = (await it.read(ben)).last_error
    assert last_error is not None
    assert last_error.startswith("HTTP_410: h")
    assert {it.web.asked[f"{host}/"] for host in hosts} == {1}


async def test_an_import_is_over_when_its_own_links_and_the_shared_ones_are(place: Make) -> None:
    """S0.6: its own link ends first."""
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def held(send: Send) -> None:
        reached.set()
        await go_on.wait()
        await page("A")(send)

    it = await place({"a.example/1": held, "b.example/": page("B")})
    ana = await it.bring(FILE)
    async with it.app.worker(poll_interval_seconds=0.1):
        await asyncio.wait_for(reached.wait(), 30)
        ben = await it.bring(bookmarks_file(LINK, "http://b.example/"), "ben")
        await (await it.app.find_batch(ben)).wait(30)
        assert await stands(it, ben) == ("running", 1, 0, 2)
        assert (await it.read(ben)).finished_at is None
        go_on.set()
        await it.until(lambda: over(it, ana, ben))
    assert await stands(it, ben) == ("succeeded", 2, 0, 2)
    assert (await it.read(ben)).finished_at is not None
    assert it.web.asked["a.example/1"] == 1


async def over(it: Place, *ids: str) -> bool:
    return all([(await it.read(import_id)).over for import_id in ids])


async def test_what_is_kept_of_an_import_has_its_shared_links_in_it(place: Make) -> None:
    """S0.6, S0.7: also when its batch is pruned; the import's end comes when the last link's does."""
    clock = FakeClock()
    it = await place({"a.example/1": answer(status="410 Gone")}, clock=clock)
    ana, ben = await it.bring(FILE), await it.bring(FILE, "ben")
    sealed = clock.now()
    clock.move(timedelta(hours=1))
    await it.work(ana, ben)
    before = await it.read(ben)
    assert (before.status, before.failed_items, before.last_error) == ("failed", 1, "HTTP_410: a.example answered 410")
    assert before.finished_at == sealed + timedelta(hours=1)
    clock.move(timedelta(minutes=1))  # who looked before the link had ended looks again
    await kept(it, ben, "failed")
    await it.rows(f"DELETE FROM {batches(it)} WHERE id = $1", ben)
    assert await it.read(ben) == before


async def kept(it: Place, import_id: str, state: str) -> None:
    async def there() -> bool:
        return await it.rows("SELECT state FROM bookmarks_imports WHERE id = $1", import_id) == [(state,)]

    async with it.app.worker(poll_interval_seconds=0.1):
        await it.until(there)


def batches(it: Place) -> str:
    return "rowlock_batches" if it.app.settings.database.startswith("sqlite") else "rowlock.batches"


@pytest.mark.parametrize(("status", "ends"), [("200 OK", ("succeeded", 1, 0, 1)), ("410 Gone", ("failed", 1, 1, 1))])
async def test_the_end_of_a_link_that_nobody_has_told_an_import_is_found_by_looking(
    place: Make, status: str, ends: tuple[str, int, int, int]
) -> None:
    """S0.13: the link may end while the second import is being written, or an older worker may end it."""
    clock = FakeClock()
    it = await place({"a.example/1": page("A", status=status)}, clock=clock)
    ana, ben = await it.bring(FILE), await it.bring(FILE, "ben")
    await it.app.sources.set("domain", concurrency=0)
    async with it.app.worker(poll_interval_seconds=0.1):
        [end] = await it.app.jobs(task=ENDED)
        await it.until(lambda: looks_again_later(it, end))
    await it.app.sources.set("domain", concurrency=2)
    await it.work(ana, ben)
    await it.rows("UPDATE bookmarks_shared_links SET outcome = NULL, ended_at = NULL, last_error = NULL RETURNING 1")
    assert (await it.read(ben)).status == "running"
    clock.move(timedelta(minutes=1))
    await kept(it, ben, ends[0])
    assert await stands(it, ben) == ends


async def looks_again_later(it: Place, end: JobHandle[Any]) -> bool:
    return (await end.refresh()).run_after > now(it.app) and end.state == "queued"


async def test_a_job_that_an_operator_cancels_is_done_for_the_others_once_more_and_then_counts_as_failed(
    place: Make,
) -> None:
    """S0.10: the first cancel is the first import's; a second one is meant."""
    clock = FakeClock()
    it = await place({"a.example/1": page("A")}, clock=clock)
    ana, ben = await it.bring(FILE), await it.bring(FILE, "ben")
    [first] = await it.app.jobs(task=ENRICH)
    await it.app.cancel(first.id)
    await it.app.sources.set("domain", concurrency=0)  # nothing is fetched from here on
    async with it.app.worker(poll_interval_seconds=0.1):
        await it.until(lambda: has_live_job(it))
        [second] = await it.app.jobs(task=ENRICH, state="queued")
        assert second.batch_id is None
        assert await stands(it, ben) == ("running", 0, 0, 1)
        await it.app.cancel(second.id)
        clock.move(timedelta(minutes=1))
        await it.until(lambda: over(it, ana, ben))
    assert await stands(it, ben) == ("failed", 1, 1, 1)
    assert (await it.read(ben)).last_error == "the job of a.example was cancelled"
    assert it.web.asked.total() == 0


async def has_live_job(it: Place) -> bool:
    return bool(await it.app.jobs(task=ENRICH, state="queued"))


def better_the_second_time() -> Behaviour:
    seen = []

    async def send_it(send: Send) -> None:
        seen.append(1)
        await (page("A") if len(seen) > 1 else answer(status="410 Gone"))(send)

    return send_it


async def test_an_operators_retry_of_a_shared_link_changes_every_import_that_has_it(place: Make) -> None:
    """S0.6: both had counted it as dead."""
    clock = FakeClock()
    it = await place({"a.example/1": better_the_second_time()}, clock=clock)
    ana, ben = await it.bring(FILE), await it.bring(FILE, "ben")
    await it.work(ana, ben)
    clock.move(timedelta(minutes=1))
    await kept(it, ben, "failed")
    [job] = await it.app.jobs(task=ENRICH)
    await it.app.retry(job.id)
    async with it.app.worker(poll_interval_seconds=0.1):
        await job.wait(30)
    clock.move(timedelta(minutes=1))
    for import_id in (ana, ben):
        await kept(it, import_id, "succeeded")
        assert await stands(it, import_id) == ("succeeded", 1, 0, 1)
        assert (await it.read(import_id)).last_error is None


async def test_a_single_link_that_is_cancelled_is_as_dead_as_a_dead_one_and_its_import_goes_on(place: Make) -> None:
    """S0.5, S0.6: only who cancels an import cancels it; the link that it shares is waited for, and counted."""
    both = bookmarks_file(LINK, "http://a.example/2")
    it = await place({"a.example/1": page("A"), "a.example/2": page("B")})
    await it.app.sources.set("domain", concurrency=0)
    ana, ben = await it.bring(FILE), await it.bring(both, "ben")
    [own] = [job for job in await it.app.jobs(task=ENRICH) if job.batch_id == ben]
    await it.app.cancel(own.id)
    assert await stands(it, ben) == ("running", 1, 1, 2)
    await it.app.sources.set("domain", concurrency=2)
    await it.work(ana, ben)
    assert await stands(it, ana) == ("succeeded", 1, 0, 1)
    assert await stands(it, ben) == ("failed", 2, 1, 2)


async def test_an_import_that_only_waits_can_be_canceled_and_takes_nothing_from_the_other(place: Make) -> None:
    """S0.5, S0.10: its own jobs are over, so it is not the batch that is cancelled."""
    it = await place({"a.example/1": page("A")})
    ana, ben = await it.bring(FILE), await it.bring(FILE, "ben")
    assert (await cancel_import(it.app, "ben", ben)).status == "canceled"
    with pytest.raises(NotAllowed, match=f"import {ben} is already canceled"):
        await cancel_import(it.app, "ben", ben)
    await it.work(ana, ben)
    assert await stands(it, ana) == ("succeeded", 1, 0, 1)
    assert (await it.read(ben)).status == "canceled"
    assert it.web.asked["a.example/1"] == 1


async def test_an_import_that_has_jobs_can_be_canceled_and_the_other_is_still_served(place: Make) -> None:
    """S0.5, S0.10: the link gets a job of its own, which the second import waits for."""
    it = await place({"a.example/1": page("A"), "a.example/2": page("B")})
    ana = await it.bring(bookmarks_file(LINK, "http://a.example/2"))
    ben = await it.bring(FILE, "ben")
    assert (await cancel_import(it.app, "ana", ana)).status == "canceled"
    assert await stands(it, ben) == ("running", 0, 0, 1)
    await it.work(ana, ben)
    assert await stands(it, ben) == ("succeeded", 1, 0, 1)
    assert (it.web.asked["a.example/1"], it.web.asked["a.example/2"]) == (1, 0)


async def test_a_link_of_a_canceled_import_does_not_wait_until_the_other_import_has_done_its_own(place: Make) -> None:
    """S0.10: the second import's own link is answered after the shared one only."""
    shared_is_asked = asyncio.Event()

    async def shared_link(send: Send) -> None:
        shared_is_asked.set()
        await page("A")(send)

    async def own_link(send: Send) -> None:
        await asyncio.wait_for(shared_is_asked.wait(), 30)
        await page("B")(send)

    it = await place({"a.example/1": shared_link, "b.example/": own_link})
    ana, ben = await it.bring(FILE), await it.bring(bookmarks_file(LINK, "http://b.example/"), "ben")
    await cancel_import(it.app, "ana", ana)
    await it.work(ana, ben)
    assert await stands(it, ben) == ("succeeded", 2, 0, 2)
    assert (it.web.asked["a.example/1"], it.web.asked["b.example/"]) == (1, 1)


async def test_nobody_can_read_or_cancel_the_import_of_another_user_or_learn_that_there_is_one(place: Make) -> None:
    """S0.3: the web tier checks rights."""
    it = await place({"a.example/1": page("A")})
    ana = await it.bring(FILE)
    unknown = "01a1e3fe-e43f-71b9-8543-993b40930a9b"
    for wanted in (ana, unknown):
        with pytest.raises(ImportNotFound) as read:
            await it.read(wanted, "ben")
        with pytest.raises(ImportNotFound) as cancelled:
            await cancel_import(it.app, "ben", wanted)
        assert str(read.value) == str(cancelled.value) == f"no import with id {wanted}"
    assert await stands(it, ana) == ("queued", 0, 0, 1)
    assert (await it.read(ana.upper(), "ana")).id == ana


@pytest.mark.parametrize("engine", ["postgres"])  # SQLite has one writer: there is no such moment
async def test_a_link_whose_job_is_canceled_while_an_import_is_being_written_is_fetched_for_it(
    place: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S0.10: it has found a job for its link, which is cancelled before anybody can see that it waits for it."""
    it = await place({"a.example/1": page("A")})
    ana = await it.bring(FILE)
    reached, go_on = asyncio.Event(), asyncio.Event()
    count = tables.count_without_job

    async def slow(tx: Any, import_id: str, number: int) -> None:  # the last step of a portion
        reached.set()
        await go_on.wait()
        await count(tx, import_id, number)

    monkeypatch.setattr(tables, "count_without_job", slow)
    bringing = asyncio.create_task(it.bring(FILE, "ben"))
    await reached.wait()
    await cancel_import(it.app, "ana", ana)
    async with it.app.worker(poll_interval_seconds=0.1):
        [ended] = await it.app.jobs(task=ENDED)
        await ended.wait(30)
        go_on.set()
        ben = await bringing
        await it.until(lambda: over(it, ben))
    assert await stands(it, ben) == ("succeeded", 1, 0, 1)
    assert it.web.asked["a.example/1"] == 1
