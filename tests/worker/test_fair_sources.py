"""Fair turns between sources, with a real worker on both engines. tests/core/test_seen_sources.py has the property."""

import asyncio

from rowlock import Rowlock
from support.each import each

EACH = 40  # jobs of a source


@each("milliseconds", [0, 5])
@each("slots", [1, 8, 100])
async def test_no_source_waits_for_more_than_twice_as_many_starts_as_there_are_sources(
    app: Rowlock, slots: int, milliseconds: int
) -> None:
    row = f"{slots}-{milliseconds}"  # of the table above: its tasks and sources are its own
    sites, mail_source = [f"site:{letter}-{row}" for letter in "abc"], f"api:mail-{row}"
    started: list[str] = []
    all_started = asyncio.Event()

    async def work(source: str) -> None:
        started.append(source)
        if len(started) == 4 * EACH:
            all_started.set()
        await asyncio.sleep(milliseconds / 1000)

    @app.task(f"crawl-{row}", source=lambda site: site)
    async def crawl(site: str) -> None:
        await work(site)

    @app.task(f"mail-{row}", source=mail_source)
    async def mail() -> None:
        await work(mail_source)

    await crawl.enqueue_many([{"site": site} for site in sites for _ in range(EACH)])
    await mail.enqueue_many([{}] * EACH)
    async with app.worker(pool_size=slots):
        await asyncio.wait_for(all_started.wait(), 60)
    last = dict.fromkeys((*sites, mail_source), 0)
    for at, source in enumerate(started, 1):
        assert at - last[source] <= 2 * len(last), f"{source} waited from start {last[source]} to {at}"
        last[source] = at
        if started[:at].count(source) == EACH:
            break  # from here on there are fewer sources
