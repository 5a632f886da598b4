"""Fair turns between sources, with a real worker on both engines. tests/core/test_seen_sources.py has the property."""

import asyncio

import pytest

from rowlock import Rowlock

EACH = 40  # jobs of a source


@pytest.mark.parametrize("milliseconds", [0, 5])
@pytest.mark.parametrize("slots", [1, 8, 100])
async def test_no_source_waits_for_more_than_twice_as_many_starts_as_there_are_sources(
    app: Rowlock, slots: int, milliseconds: int
) -> None:
    started: list[str] = []
    all_started = asyncio.Event()

    async def work(source: str) -> None:
        started.append(source)
        if len(started) == 4 * EACH:
            all_started.set()
        await asyncio.sleep(milliseconds / 1000)

    @app.task("crawl", source=lambda site: f"site:{site}")
    async def crawl(site: str) -> None:
        await work(f"site:{site}")

    @app.task("mail", source="api:mail")
    async def mail() -> None:
        await work("api:mail")

    await crawl.enqueue_many([{"site": site} for site in ("a", "b", "c") for _ in range(EACH)])
    await mail.enqueue_many([{}] * EACH)
    async with app.worker(pool_size=slots):
        await asyncio.wait_for(all_started.wait(), 60)
    last = dict.fromkeys(("site:a", "site:b", "site:c", "api:mail"), 0)
    for at, source in enumerate(started, 1):
        assert at - last[source] <= 2 * len(last), f"{source} waited from start {last[source]} to {at}"
        last[source] = at
        if started[:at].count(source) == EACH:
            break  # from here on there are fewer sources
