"""The document's metrics and alerts, by the command."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

from apps.engines import ONE_ENGINE
from apps.stickers.rig import Process, Shop, environment
from rowlock import FakeClock, Rowlock, State
from rowlock_apps.stickers import app


async def stats(shop: Shop, folder: Path, *words: str) -> tuple[int, str]:
    """Exit code and output of `rowlock stats`."""
    command = ("-m", "rowlock", "stats", "--app", "rowlock_apps.stickers:app", *words)
    with Process(folder / "stats.log", environment(shop.url, shop.results), *command) as process:
        return await process.ends(), process.log


async def test_jobs_are_shown_in_the_documents_words_on_each_engine(shop: Shop, in_the_worker: None) -> None:
    """S1.5, S1.9, S1.10, S1.16, S1.17, S1.18: queued, processing, done, error; worker, times, error and picture."""
    done, error = await shop.submit("ana", "a cat", wait_seconds=0.2), await shop.submit("ana", "x" * 90)
    await shop.run_all()
    processing = await shop.submit("ana", "a dog")
    assert await shop.claim("host-1-2", lease=60) == [processing.id]
    queued = await shop.submit("ana", "a bird")
    columns = "status, worker_id, started_at IS NULL, completed_at IS NULL, error, image"
    rows = {
        str(row[0]): (row[1], row[2], bool(row[3]), bool(row[4]), *row[5:])
        for row in await shop.fetch(f"SELECT id, {columns} FROM stickers_document_jobs")
    }
    worker = rows[done.id][1]
    assert worker
    says = f"{'x' * 90!r} does not fit on a sticker: use shorter words, or fewer"
    assert rows == {
        queued.id: ("queued", None, True, True, None, None),
        processing.id: ("processing", "host-1-2", False, True, None, None),
        done.id: ("done", worker, False, False, None, str(shop.results / f"{done.id}.png")),
        error.id: ("error", worker, False, False, says, None),
    }


@ONE_ENGINE
async def test_the_mean_time_is_of_drawings_and_not_of_refunds(shop: Shop, in_the_worker: None) -> None:
    """S1.18: a refund takes milliseconds, and would make a slow model look fast."""
    await shop.submit("ana", "a cat", wait_seconds=0.4)
    for _ in range(4):
        await shop.submit("ana", "x" * 90)  # fails at once, and is refunded
    await shop.run_all()
    stats = await app.stats()
    drawn = stats.finished_tasks["stickers.draw"]
    assert {str(state): found.count for state, found in drawn.items()} == {"dead": 4, "succeeded": 1}
    assert stats.finished_tasks["stickers.refund"][State.SUCCEEDED].count == 4
    assert 0.4 <= (drawn[State.SUCCEEDED].mean_run_seconds or 0) < 10
    assert stats.finished[State.SUCCEEDED].count == 5


@ONE_ENGINE
async def test_metrics_and_alerts(shop: Shop, tmp_path: Path, in_the_worker: None) -> None:
    """S1.16, S1.17, S1.18: length of the queue, jobs in processing, mean time. S1.19, S1.20: one in processing for more
    than 5 minutes: its worker may hang; more than 10 jobs wait: more workers are needed."""
    await shop.open("rich", 100)
    await shop.submit("rich", "a cat", wait_seconds=0.2)
    await shop.run_all()
    await shop.submit("rich", "a cat")
    ago = Rowlock(shop.url, clock=FakeClock(datetime.now(UTC) - timedelta(minutes=6)))
    async with ago:
        assert len(await shop.claim("host-1-2", lease=3600, app=ago)) == 1
    for _ in range(11):
        await shop.submit("rich", "a dog")

    code, told = await stats(shop, tmp_path, "--json", "--max-queued", "10", "--max-running", "5m")
    found = json.loads(told)
    (queue,) = found["queues"]
    assert (queue["name"], queue["queued"], queue["running"]) == ("stickers", 11, 1)
    assert 0.2 <= found["finished_tasks"]["stickers.draw"]["succeeded"]["mean_run_seconds"] < 10
    waiting, running = found["alerts"]
    assert waiting == "alert: 11 jobs are ready in queue 'stickers', more than 10; more workers are needed"
    assert re.fullmatch(
        r"alert: 1 job of queue 'stickers' has been running for longer than 5 min: .* for 6 min.*hang", running
    )
    assert code == 1
