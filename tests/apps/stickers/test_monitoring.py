"""The document's metrics and alerts, by the command."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

from apps.stickers.rig import Process, Shop, environment
from rowlock import FakeClock, Rowlock


async def stats(shop: Shop, folder: Path, *words: str) -> tuple[int, str]:
    """Exit code and output of `rowlock stats`."""
    command = ("-m", "rowlock", "stats", "--app", "rowlock_apps.stickers:app", *words)
    with Process(folder / "stats.log", environment(shop.url, shop.results), *command) as process:
        return await process.ends(), process.log


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
    assert 0.2 <= found["finished"]["succeeded"]["mean_run_seconds"] < 10
    waiting, running = found["alerts"]
    assert waiting == "alert: 11 jobs wait in the queue stickers, more than 10: start more workers"
    assert re.fullmatch(
        r"alert: a job of the queue stickers has been running for 3\d\d s, more than 300: .*hang", running
    )
    assert code == 1
