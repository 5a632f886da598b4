"""The document's own tables on PostgreSQL: its names, its words, its queries."""

from collections.abc import AsyncIterator

import psycopg
import pytest

from apps.bookmarks.conftest import Make, Place
from apps.bookmarks.files import bookmarks_file
from rowlock_apps.bookmarks.shared import ENRICH
from rowlock_apps.bookmarks.small_web import answer, page


@pytest.fixture
def engine() -> str:
    return "postgres"


# As the document prints it.
ELIGIBLE = """
SELECT link_canonical_id FROM enrichment_jobs
WHERE status IN ('queued','failed')
  AND run_after <= now()
  AND ((locked_at IS NULL) OR (locked_at < now() - interval '10 minutes'))
"""


@pytest.fixture
async def reader(postgres: str) -> AsyncIterator[psycopg.AsyncConnection]:
    async with await psycopg.AsyncConnection.connect(postgres, autocommit=True) as connection:
        await connection.execute("SET search_path = bookmarks")
        yield connection


async def all_of(reader: psycopg.AsyncConnection, sql: str) -> list[tuple[object, ...]]:
    return await (await reader.execute(sql)).fetchall()


async def imported(place: Make) -> Place:
    return await place(
        {
            "a.example/": page("A"),
            "dead.example/": answer(status="403 No"),
            "shaky.example/": answer(status="500 Oh"),
        }
    )


LINKS = ["http://a.example/", "http://dead.example/", "http://shaky.example/", "javascript:1"]


async def test_the_views_speak_the_documents_words(place: Make, reader: psycopg.AsyncConnection) -> None:
    """S0.5, S0.8, S0.9, S0.12: queued, running, succeeded, failed (waits for its second try), dead, canceled."""
    it = await imported(place)
    import_id = await it.bring(bookmarks_file(*LINKS))
    assert await all_of(reader, "SELECT status, total_items, processed_items, failed_items FROM import_jobs") == [
        ("queued", 4, 1, 0)
    ]
    assert await all_of(reader, "SELECT DISTINCT status, attempts, max_attempts FROM enrichment_jobs") == [
        ("queued", 0, 2)
    ]
    assert len(await all_of(reader, ELIGIBLE)) == 3

    async def settled() -> bool:
        found = await all_of(reader, "SELECT status FROM enrichment_jobs ORDER BY status")
        return found == [("dead",), ("failed",), ("succeeded",)]

    async with it.app.worker(poll_interval_seconds=0.1):
        await it.until(settled)
    rows = await all_of(reader, "SELECT status, attempts, last_error, locked_at FROM enrichment_jobs ORDER BY status")
    assert [row[:3] for row in rows] == [
        ("dead", 1, "dead.example answered 403"),
        ("failed", 1, "shaky.example answered 500"),
        ("succeeded", 1, None),
    ]
    assert await all_of(reader, ELIGIBLE) == []
    await reader.execute("UPDATE rowlock.jobs_live SET run_after = now() - interval '1 second'")
    assert len(await all_of(reader, ELIGIBLE)) == 1
    running = await all_of(reader, "SELECT status, processed_items, failed_items, last_error FROM import_jobs")
    assert running == [("running", 3, 1, "HTTP_403: dead.example answered 403")]
    [shaky] = [job for job in await it.app.jobs(task=ENRICH) if job.state == "retryable"]
    await it.app.cancel(shaky.id)
    await (await it.app.find_batch(import_id)).wait(10)
    assert await all_of(reader, "SELECT status, processed_items FROM import_jobs") == [("failed", 4)]
    await (await it.app.find_batch(await it.bring(bookmarks_file("http://new.example/")))).cancel()
    assert ("canceled",) in await all_of(reader, "SELECT status FROM import_jobs")


async def test_a_link_has_one_row_there_its_newest_job(place: Make, reader: psycopg.AsyncConnection) -> None:
    """S0.8: link_canonical_id is unique."""
    it = await imported(place)
    await it.work(await it.bring(bookmarks_file("http://dead.example/")))
    await it.bring(bookmarks_file("http://dead.example/"))
    assert len(await it.app.jobs(task=ENRICH)) == 2
    assert await all_of(reader, "SELECT status FROM enrichment_jobs") == [("queued",)]
    assert await all_of(
        reader, "SELECT 1 FROM enrichment_jobs e JOIN public.bookmarks_links l ON l.id = e.link_canonical_id"
    ) == [(1,)]


WRITES = [
    "UPDATE import_jobs SET status = 'canceled'",
    "DELETE FROM import_jobs",
    "INSERT INTO import_jobs (user_id) VALUES ('ana')",
    "UPDATE enrichment_jobs SET status = 'queued'",
    "DELETE FROM enrichment_jobs",
    "INSERT INTO enrichment_jobs (status) VALUES ('queued')",
    "UPDATE import_jobs SET status = 'canceled' WHERE false",
    "DELETE FROM enrichment_jobs WHERE false",
]


async def test_writing_to_the_views_is_refused_with_a_hint(place: Make, reader: psycopg.AsyncConnection) -> None:
    """S0.2: one source of truth."""
    it = await imported(place)
    await it.bring(bookmarks_file(*LINKS))
    for statement in WRITES:
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="is a view to be read") as refused:
            await reader.execute(statement)
        assert "rowlock jobs retry" in (refused.value.diag.message_hint or "")
