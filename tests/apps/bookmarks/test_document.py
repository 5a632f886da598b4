"""The document's two tables, its moves and its claim on both engines, seen in its own words."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apps.bookmarks.conftest import Make, Place
from apps.bookmarks.files import bookmarks_file
from rowlock import FakeClock
from rowlock_apps.bookmarks import cancel_import, make_app
from rowlock_apps.bookmarks.links import link_id
from rowlock_apps.bookmarks.shared import ENRICH
from rowlock_apps.bookmarks.small_web import Behaviour, Send, answer, page

LINK = "http://a.example/"
FILE = bookmarks_file(LINK)
COLUMNS = {
    "import_jobs": "id user_id source_type status total_items processed_items failed_items created_at started_at "
    "finished_at last_error",
    "enrichment_jobs": "id link_canonical_id status attempts max_attempts run_after locked_at locked_by last_error "
    "created_at updated_at",
}


async def enrichment(it: Place, columns: str) -> tuple[Any, ...]:
    [row] = await it.rows(
        f"SELECT {columns} FROM bookmarks_enrichment_jobs WHERE link_canonical_id = $1", link_id(LINK)
    )
    return row


async def imported(it: Place, columns: str) -> tuple[Any, ...]:
    [row] = await it.rows(f"SELECT {columns} FROM bookmarks_import_jobs")
    return row


def moment(value: datetime | str) -> datetime:
    return datetime.fromisoformat(value) if isinstance(value, str) else value


class Held:
    """A page that answers when told to."""

    def __init__(self, *then: Behaviour) -> None:
        self._then, self._asked = then, 0
        self.reached, self.go_on = asyncio.Event(), asyncio.Event()

    async def __call__(self, send: Send) -> None:
        self._asked += 1
        self.reached.set()
        await self.go_on.wait()
        await self._then[min(self._asked, len(self._then)) - 1](send)

    @asynccontextmanager
    async def asked(self) -> AsyncIterator[None]:
        """While the server has not answered yet; afterwards it does."""
        await asyncio.wait_for(self.reached.wait(), 20)
        yield
        self.go_on.set()
        self.reached.clear()


async def test_the_views_have_the_documents_columns_on_both_engines(place: Make, engine: str) -> None:
    """S0.5–S0.9: in its order."""
    it = await place({})
    for view, columns in COLUMNS.items():
        if engine == "sqlite":
            found = await it.rows(f"SELECT name FROM pragma_table_info('bookmarks_{view}') ORDER BY cid")
        else:
            found = await it.rows(
                "SELECT column_name FROM information_schema.columns WHERE table_schema = 'bookmarks' "
                "AND table_name = $1 ORDER BY ordinal_position",
                view,
            )
        assert " ".join(name for (name,) in found) == columns


async def test_a_link_goes_from_queued_to_running_to_failed_and_after_its_second_try_to_dead(place: Make) -> None:
    """S0.8, S0.9, S0.12: each move as the view shows it, with attempts, times, lock and error."""
    clock, server = FakeClock(), Held(answer(status="500 Oh"))
    it = await place({"a.example/": server}, clock=clock)
    await it.bring(FILE)
    began = clock.now()
    assert await enrichment(it, "status, attempts, max_attempts, locked_at, locked_by, last_error") == (
        *("queued", 0, 2),
        *(None, None, None),
    )
    async with it.app.worker(poll_interval_seconds=0.05) as worker:
        for attempt, then in ((1, "failed"), (2, "dead")):
            started = clock.now()
            async with server.asked():
                assert await enrichment(it, "status, attempts, locked_by") == ("running", attempt, worker.id)
                locked, updated = await enrichment(it, "locked_at, updated_at")
                assert (moment(locked), moment(updated)) == (started, started)
            server.go_on.clear()
            if then == "dead":
                server.go_on.set()
            await it.until(lambda then=then: shows(it, then))  # type: ignore[misc]
            assert await enrichment(it, "attempts, locked_at, last_error") == (attempt, None, "a.example answered 500")
            if then == "failed":
                waits = moment((await enrichment(it, "run_after"))[0]) - clock.now()
                assert timedelta(minutes=5) <= waits <= timedelta(minutes=6)
                clock.move(timedelta(minutes=6, seconds=1))
    assert moment((await enrichment(it, "created_at"))[0]) == began
    assert moment((await enrichment(it, "updated_at"))[0]) == clock.now()
    assert await imported(it, "status, processed_items, failed_items, last_error") == (
        *("failed", 1, 1),
        "HTTP_500: a.example answered 500",
    )


async def shows(it: Place, status: str) -> bool:
    return (await enrichment(it, "status"))[0] == status


async def test_a_link_that_failed_may_succeed_and_one_that_is_cancelled_is_dead(place: Make) -> None:
    """S0.12: failed to queued to running to succeeded; the document has no word for an operator's cancel."""
    clock = FakeClock()
    server = Held(answer(status="500 Oh"), page("A"))
    server.go_on.set()
    it = await place({"a.example/": server}, clock=clock)
    await it.bring(FILE)
    async with it.app.worker(poll_interval_seconds=0.05):
        await it.until(lambda: shows(it, "failed"))
        assert await imported(it, "status, processed_items") == ("running", 0)
        clock.move(timedelta(minutes=6))
        await it.until(lambda: shows(it, "succeeded"))
    assert await enrichment(it, "attempts, locked_at") == (2, None)
    assert await imported(it, "status, processed_items, failed_items, last_error") == ("succeeded", 1, 0, None)
    await it.bring(bookmarks_file("http://b.example/"), "ben")
    [job] = await it.app.jobs(task=ENRICH, state="queued")
    await it.app.cancel(job.id)
    assert await it.rows("SELECT status FROM bookmarks_enrichment_jobs WHERE id = $1", job.id) == [("dead",)]


async def test_a_canceled_import_is_canceled_in_the_view(place: Make) -> None:
    """S0.5."""
    it = await place({})
    import_id = await it.bring(FILE)
    assert await imported(it, "user_id, source_type, status") == ("ana", "chrome_html", "queued")
    await cancel_import(it.app, "ana", import_id)
    assert await imported(it, "status") == ("canceled",)


# As the document prints it; SQLite has no intervals, and its times are text.
NOW = {"postgres": "now()", "sqlite": "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"}
TEN_MINUTES_AGO = {
    "postgres": "now() - interval '10 minutes'",
    "sqlite": "strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-10 minutes')",
}


async def eligible(it: Place, engine: str) -> int:
    rows = await it.rows(
        f"""
        SELECT id FROM bookmarks_enrichment_jobs
        WHERE status IN ('queued','failed')
          AND run_after <= {NOW[engine]}
          AND ((locked_at IS NULL) OR (locked_at < {TEN_MINUTES_AGO[engine]}))
        """
    )
    return len(rows)


async def test_what_the_document_calls_eligible_is_claimed_and_nothing_else(place: Make, engine: str) -> None:
    """S0.15: queued and due; not while it is locked; not while it waits for its time; failed and due."""
    server = Held(answer(status="500 Oh"), page("A"))
    it = await place({"a.example/": server} | {host: page(host) for host in LATER})
    await it.bring(FILE)
    assert await eligible(it, engine) == 1
    async with it.app.worker(poll_interval_seconds=0.05), it.app.worker(poll_interval_seconds=0.05):
        async with server.asked():
            assert await eligible(it, engine) == 0
            await polls(it, LATER[:12])
            assert it.web.asked["a.example/"] == 1
        await it.until(lambda: shows(it, "failed"))
        assert await eligible(it, engine) == 0
        await polls(it, LATER[12:])
        assert it.web.asked["a.example/"] == 1
        table = "rowlock_jobs_live" if engine == "sqlite" else "rowlock.jobs_live"
        await it.rows(f"UPDATE {table} SET run_after = created_at RETURNING 1")
        await it.until(lambda: shows(it, "succeeded"))
    assert it.web.asked["a.example/"] == 2


LATER = [f"later{n}.example" for n in range(24)]


async def polls(it: Place, hosts: list[str]) -> None:
    """The workers have looked for work: what came later is done."""
    later = await it.bring(bookmarks_file(*(f"http://{host}/" for host in hosts)), "carol")
    await (await it.app.find_batch(later)).wait(20)


async def test_a_lock_holds_for_ten_minutes_and_not_a_second_longer(place: Make, database: str) -> None:
    """S0.13, S0.15: two locks, taken a second apart, of a worker that stands still: its clock does not go on."""
    start = datetime.now(UTC) + timedelta(days=1)  # a server that has just started reclaims nothing
    stands, goes = FakeClock(start), FakeClock(start)
    servers = Held(page("A")), Held(page("B"))
    it = await place({"a.example/": servers[0], "b.example/": servers[1]}, clock=stands)
    quick = {"lease_seconds": 1.2, "heartbeat_seconds": 0.4, "sweep_seconds": 0.2, "shutdown_timeout_seconds": 1.0}
    async with make_app(database, clock=goes, resolve=it.web.resolve, dial=it.web.dial) as other:
        async with it.app.worker(poll_interval_seconds=0.05, shutdown_timeout_seconds=1.0):
            for server, link in zip(servers, ("http://a.example/", "http://b.example/"), strict=True):
                stands.move(1)
                await it.bring(bookmarks_file(link))
                await asyncio.wait_for(server.reached.wait(), 20)
            second, first = await it.app.jobs(task=ENRICH)  # the newest comes first
            goes.move(timedelta(minutes=10, seconds=1.5))
            async with other.worker(poll_interval_seconds=0.05, **quick):  # what it takes itself, it holds for less
                await it.until(lambda: lost(first))
                assert not await lost(second)
                goes.move(1)
                await it.until(lambda: lost(second))
                for server in servers:
                    server.go_on.set()


async def lost(job: Any) -> bool:
    return bool((await job.refresh()).losses)


WRITES = ["UPDATE {} SET status = 'canceled' WHERE false", "DELETE FROM {}", "INSERT INTO {} (status) VALUES ('x')"]


async def test_the_views_can_only_be_read_on_both_engines(place: Make) -> None:
    """S0.2: one source of truth."""
    it = await place({})
    await it.bring(FILE)
    for view in COLUMNS:
        for statement in WRITES:
            with pytest.raises(Exception, match="view"):
                await it.rows(statement.format(f"bookmarks_{view}"))


async def test_the_views_show_one_row_for_each_link_its_newest_job_and_nothing_that_is_no_link(place: Make) -> None:
    """S0.8: link_canonical_id is unique; a job that somebody has made by hand hides nothing."""
    it = await place({"a.example/": answer(status="410 Gone")})
    await it.work(await it.bring(FILE))
    await it.bring(FILE, "ben")
    for odd in ("not an id", "", "01a1e3fe-e43f-71b9-8543-99 b40930a9b"):
        await it.app.enqueue(ENRICH, link_id=odd, host="a.example")
    assert len(await it.app.jobs(task=ENRICH)) == 5
    assert [status for (status,) in await it.rows("SELECT status FROM bookmarks_enrichment_jobs")] == ["queued"]
    assert await enrichment(it, "status") == ("queued",)
