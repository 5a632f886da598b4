"""The table of the document, on PostgreSQL: its reading queries run as printed, its writing ones are refused."""

from collections.abc import Iterator

import psycopg
import pytest

from apps.stickers.rig import Shop
from rowlock_apps.stickers import app
from support.each import each

UNFIT = "x" * 90
RESET = """
UPDATE jobs
SET status = 'queued', worker_id = NULL, started_at = NULL
WHERE status = 'processing'
AND started_at < NOW() - INTERVAL '5 minutes';
"""
pytestmark = pytest.mark.parametrize("engine", ["postgres"], indirect=True)


@pytest.fixture
def reader(shop: Shop) -> Iterator[psycopg.Connection]:
    with psycopg.connect(shop.url, autocommit=True) as connection:
        connection.execute("SET search_path = stickers")
        yield connection


async def test_jobs_have_the_columns_and_words_of_the_document(
    shop: Shop, reader: psycopg.Connection, in_the_worker: None
) -> None:
    """S1.5, S1.6, S1.9, S1.10: queued, processing, done, error; worker_id, started_at, completed_at, error."""
    done, error = await shop.submit("ana", "a cat"), await shop.submit("ana", UNFIT)
    await shop.run_all()
    processing = await shop.submit("ana", "a dog")
    assert await shop.claim("host-1-2", lease=60) == [processing.id]
    queued = await shop.submit("ana", "a bird")

    columns = "user_id, prompt, status, worker_id, started_at IS NULL, completed_at IS NULL, error"
    rows = {str(row[0]): row[1:] for row in reader.execute(f"SELECT id, {columns} FROM jobs")}
    assert rows[queued.id] == ("ana", "a bird", "queued", None, True, True, None)
    assert rows[processing.id] == ("ana", "a dog", "processing", "host-1-2", False, True, None)
    assert rows[done.id][2] == "done"
    assert rows[done.id][4:] == (False, False, None)
    assert rows[error.id][2] == "error"
    assert rows[error.id][3] == rows[done.id][3] != "host-1-2"
    assert rows[error.id][4:] == (False, False, f"{UNFIT!r} does not fit on a sticker: use shorter words, or fewer")


async def test_the_metrics_of_the_document_run_as_printed(
    shop: Shop, reader: psycopg.Connection, in_the_worker: None
) -> None:
    """S1.16, S1.17, S1.18: length of the queue, jobs in processing, mean time."""
    await shop.submit("ana", "a cat", wait_seconds=0.2)
    await shop.run_all()
    for _ in range(3):
        await shop.submit("ana", "a dog")
    await shop.claim("host-1-2", lease=60)
    assert reader.execute("SELECT COUNT(*) FROM jobs WHERE status = 'queued'").fetchone() == (2,)
    assert reader.execute("SELECT COUNT(*) FROM jobs WHERE status = 'processing'").fetchone() == (1,)
    plan = "\n".join(row[0] for row in reader.execute("EXPLAIN SELECT COUNT(*) FROM jobs WHERE status = 'queued'"))
    assert "jobs_live" in plan
    assert "jobs_finished" not in plan, "the length of the queue is asked for often, and must not cost what is done"
    (mean,) = reader.execute("SELECT AVG(completed_at - started_at) FROM jobs").fetchone() or ()
    assert 0.2 <= mean.total_seconds() < 10


@each("stuck", [False, True])
async def test_a_reset_by_age_is_refused_and_says_what_works(
    shop: Shop, reader: psycopg.Connection, stuck: bool
) -> None:
    """S1.12, S1.13: the document's reset would run a long job twice; also where there is nothing to reset."""
    job = await shop.submit("ana", "a cat")
    await shop.claim("host-1-2", lease=3600)
    if stuck:
        reader.execute("UPDATE rowlock.jobs_live SET started_at = now() - INTERVAL '6 minutes'")
    with pytest.raises(psycopg.errors.FeatureNotSupported) as refused:
        reader.execute(RESET)
    assert "stickers.jobs only shows the jobs; UPDATE is refused" in str(refused.value)
    assert "goes back to the queue by itself when its lease runs out" in str(refused.value)
    assert "rowlock jobs retry ID" in str(refused.value)
    assert (await job.refresh()).locked_by == "host-1-2"


async def test_no_job_is_made_taken_or_removed_through_the_view(shop: Shop, reader: psycopg.Connection) -> None:
    """S1.2: the document's claim is the defect to remove; a job that is inserted would be free of charge."""
    job = await shop.submit("ana", "a cat")
    for sql, says in (
        ("INSERT INTO jobs (prompt, status) VALUES ('a cat', 'queued')", "ordered, and paid for, by"),
        (f"UPDATE jobs SET status = 'processing', worker_id = 'me' WHERE id = '{job.id}'", "UPDATE is refused"),
        ("DELETE FROM jobs", "DELETE is refused"),
    ):
        with pytest.raises(psycopg.errors.FeatureNotSupported, match=says):
            reader.execute(sql)
    assert [found.id for found in await app.jobs(task="stickers.draw", state="queued")] == [job.id]


async def test_the_migration_is_run_again_without_harm(shop: Shop, reader: psycopg.Connection) -> None:
    """S1.6, S1.7: re-runnable; queued jobs have a partial index of their own."""
    await shop.submit("ana", "a cat")
    assert await app.migrate() == []
    assert await shop.credits("ana") == 9
    (index,) = reader.execute("SELECT indexdef FROM pg_indexes WHERE indexname = 'jobs_live_claim'").fetchone() or ("",)
    assert "(queue, task, priority, id) WHERE (ready" in index
