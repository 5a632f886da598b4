"""Pictures of the dashboard for the docs: `make images` writes them to docs/images. `--whole` takes the whole length of
each page instead of a screen, for a look at what lies further down.

The system is a real one at work. What an hour of work would have left in the counters is written there beforehand, so
that charts, trends and strips have something to show. Pictures are stored with few colours.
"""

import argparse
import asyncio
import contextlib
import math
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.async_api import Browser, expect

from support.web.browser import open_window, running_browser
from support.web.world import QUEUES, World, world

SIZES = {"desktop": {"width": 1280, "height": 800}, "phone": {"width": 390, "height": 844}}
VIEWS = [
    "now",
    "jobs",
    "queues",
    "failures",
    "workers",
    "schedules",
    "sources",
    "batches",
    "charts",
    "feed",
    "settings",
]
COLOURS = 128
LOAD_SECONDS = 40
MINUTE = 60


# --- an hour that has been


def ends(minute: int) -> Iterator[tuple[str, str, str, int, int, int]]:
    """What ended so many minutes ago: queue, task, what, run bucket, wait bucket, number. In the middle of the hour a
    crowd of jobs comes, and they wait longer."""
    chance = random.Random(minute)
    crowd = math.exp(-(((minute - 27) / 6) ** 2))
    for task, usual in (("links.enrich", 90), ("links.report", 80)):
        for run in range(2, 7):
            number = round(usual * math.exp(-abs(run - 3.4)) * (0.8 + chance.random() * 0.4) * (1 + crowd))
            wait = 2 + round(crowd * 9) + chance.choice((0, 0, 1))
            if number:
                yield "links", task, "succeeded", run, wait, number
    yield "default", "nightly", "succeeded", chance.choice((7, 8)), 3, chance.randint(2, 6)
    if chance.random() < 0.25:
        yield "films", "films.export", "succeeded", chance.choice((13, 14)), 4, 1
    if number := round(chance.random() * 6 + crowd * 14):
        yield "mail", "mail.send", "dead", -1, -1, number
        yield "mail", "mail.send", "attempt.failed", 1, -1, number
    if minute % 3 == 0:
        yield "coins", "coins.fetch", "attempt.failed", 5, -1, chance.randint(1, 3)


async def remember(shop: World) -> None:
    """Write the hour before now into the counters and the samples of queues."""
    now = int(time.time()) // MINUTE * MINUTE
    async with shop.app.transaction() as tx:
        for minute in range(1, 60):
            at = now - minute * MINUTE
            for queue, task, what, run, wait, number in ends(minute):
                await tx.execute(
                    "INSERT INTO rowlock_rollups (seconds, at, queue, task, what, run_bucket, wait_bucket, number,"
                    " run_seconds, wait_seconds) VALUES (60, ?, ?, ?, ?, ?, ?, ?, ?, 0)",
                    *(at, queue, task, what, run, wait, number, number * 0.05),
                )
            crowd = math.exp(-(((minute - 29) / 7) ** 2))
            for queue, ready, running in (("links", round(420 * crowd), 3), ("mail", round(60 * crowd), 1)):
                await tx.execute(
                    "INSERT INTO rowlock_queue_samples (at, queue, ready, waiting, running, oldest_seconds)"
                    " VALUES (?, ?, ?, 0, ?, ?)",
                    *(at, queue, ready, running, ready * 0.4),
                )


async def spread(shop: World) -> None:
    """Move most of what has happened back into the last hour: failures and answers of sources have trends then."""
    async with shop.app.transaction() as tx:
        await tx.execute(
            "UPDATE rowlock_attempts SET finished_at = finished_at - (abs(random()) % 3500)"
            " WHERE task IN ('mail.send', 'coins.fetch') AND random() % 4 <> 0"
        )
        await tx.execute(
            "UPDATE rowlock_jobs_finished SET finished_at = finished_at - (abs(random()) % 3500), started_at = NULL"
            " WHERE task = 'links.enrich' AND batch_id IS NULL AND state = 'succeeded' AND random() % 4 <> 0"
        )


async def load(shop: World) -> None:
    """Work of every kind, a paused source, a schedule that fires often, until cancelled."""
    await shop.app.sources.set("domain", concurrency=2, rate="600/min")
    await shop.app.sources.pause("domain:a2.example", 3600)
    await shop.app.schedules.add("prices", "pages.render", every="2s", args={"page": 1})
    async with shop.app.batch("import 8", owner="ben", on_end=shop.tasks["imports.end"]) as batch:
        urls = [{"url": f"https://a{number % 2}.example/{number}"} for number in range(18)]
        await shop.tasks["links.enrich"].using(batch=batch).enqueue_many(urls)
        for number in range(11):
            await shop.tasks["mail.send"].using(batch=batch).enqueue(to=f"reader{number}@example.com")
        await shop.tasks["films.export"].using(batch=batch).enqueue(frames=12)
    shop.jobs["batch"] = batch.id
    number = 0
    while True:
        number += 1
        await shop.tasks["links.enrich"].enqueue(url=f"https://a{number % 3}.example/{number}")
        if number % 6 == 0:
            await shop.tasks["mail.send"].enqueue(to=f"user{number}@example.com")
        if number % 15 == 0:
            await shop.tasks["coins.fetch"].enqueue(market=["north", "south", "east"][number % 3])
        if number % 25 == 0:
            await shop.tasks["pages.render"].enqueue(page=number)
        await asyncio.sleep(0.2 + 0.05 * (number % 5))


# --- the pictures


async def take(shop: World, browser: Browser, folder: Path, *, whole: bool, only: list[str]) -> None:
    """One picture of each view, in light and dark, wide and narrow."""
    views = {view: view for view in (*VIEWS, "settings")}
    views |= {"job": f"job/{shop.jobs['retried']}", "batch": f"batches/{shop.jobs['batch']}"}
    views |= {"failures": "failures?since=1h", "new-job": "new/links.enrich"}
    if whole:
        views |= {f"job-{state}": f"job/{shop.jobs[state]}" for state in ("dead", "running", "retryable", "queued")}
    for scheme in ("light", "dark"):
        for size, viewport in SIZES.items():
            options: dict[str, Any] = {"viewport": viewport, "color_scheme": scheme}
            async with open_window(browser, await shop.login(), **options) as shown:
                await expect(shown.page.locator(".live")).to_have_class("live live")
                for name, view in views.items():
                    if only and name not in only:
                        continue
                    await shown.page.evaluate("(hash) => { location.hash = hash; }", f"#/{view}")
                    await expect(shown.page.locator("main h1")).to_be_visible()
                    await expect(shown.page.locator(".loading")).to_have_count(0)
                    if name == "feed":  # it shows what changes from the moment when it is opened
                        await expect(shown.page.locator(".feed tbody tr").nth(6)).to_be_visible()
                    await shown.page.wait_for_timeout(300)
                    file = folder / f"{name}-{scheme}-{size}.png"
                    await shown.page.screenshot(path=file, full_page=whole)
                    shrink(file)


def shrink(file: Path) -> None:
    """Few colours are enough for text and bars."""
    with Image.open(file) as picture:
        picture.convert("RGB").quantize(COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(
            file, optimize=True
        )


async def main(folder: Path, *, whole: bool, only: list[str]) -> None:
    """Start a system, let it work, take the pictures."""
    expect.set_options(timeout=60_000)
    # The settings show the address of the database: it must be no path of this machine.
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
        async with world("sqlite:///jobs.db", QUEUES[:-1]) as shop, running_browser() as browser:
            await remember(shop)
            working = asyncio.ensure_future(load(shop))
            await asyncio.sleep(LOAD_SECONDS)
            await spread(shop)
            await take(shop, browser, folder, whole=whole, only=only)
            working.cancel()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--only", nargs="*", default=[], help="names of views")
    given = parser.parse_args(sys.argv[1:])
    given.folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(main(given.folder.absolute(), whole=given.whole, only=given.only))
