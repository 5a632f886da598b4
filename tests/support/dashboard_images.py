"""Pictures of the dashboard for the docs, of a real system at work: `make images` writes them to docs/images.

They are taken after two minutes of load, so that the charts have something to show, and stored with few colours.
"""

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.async_api import Browser, expect

from support.browser import open_window, running_browser
from support.dashboard_world import QUEUES, World, world

SIZES = {"desktop": {"width": 1280, "height": 800}, "phone": {"width": 390, "height": 844}}
VIEWS = ["now", "jobs", "queues", "failures", "workers", "schedules", "sources", "batches", "charts", "feed"]
COLOURS = 128
LOAD_SECONDS = 130


async def load(shop: World, seconds: float) -> None:
    """Work of every kind, a paused queue and a paused source, for so long."""
    await shop.app.sources.set("domain", concurrency=2, rate="600/min")
    await shop.app.sources.pause("domain:a2.example", 3600)
    end = asyncio.get_running_loop().time() + seconds
    number = 0
    while asyncio.get_running_loop().time() < end:
        number += 1
        await shop.tasks["links.enrich"].enqueue(url=f"https://a{number % 3}.example/{number}")
        if number % 6 == 0:
            await shop.tasks["mail.send"].enqueue(to=f"user{number}@example.com")
        if number % 15 == 0:
            await shop.tasks["coins.fetch"].enqueue(market=["north", "south", "east"][number % 3])
        if number % 40 == 0:
            await shop.app.schedules.run("nightly")
        await asyncio.sleep(0.15 + 0.1 * (number % 5))


async def take(shop: World, browser: Browser, folder: Path) -> None:
    """One picture of each view, in light and dark, wide and narrow."""
    views = {view: view for view in VIEWS}
    views |= {"job": f"job/{shop.jobs['dead']}", "new-job": "new/links.enrich"}
    for scheme in ("light", "dark"):
        for size, viewport in SIZES.items():
            options: dict[str, Any] = {"viewport": viewport, "color_scheme": scheme}
            async with open_window(browser, await shop.login(), **options) as shown:
                await expect(shown.page.locator(".live")).to_have_class("live live")
                for name, view in views.items():
                    await shown.page.evaluate("(hash) => { location.hash = hash; }", f"#/{view}")
                    await expect(shown.page.locator("main h1")).to_be_visible()
                    await expect(shown.page.locator(".loading")).to_have_count(0)
                    await shown.page.wait_for_timeout(1500 if name == "feed" else 300)
                    file = folder / f"{name}-{scheme}-{size}.png"
                    await shown.page.screenshot(path=file)
                    shrink(file)


def shrink(file: Path) -> None:
    """Few colours are enough for text and bars."""
    with Image.open(file) as picture:
        picture.convert("RGB").quantize(COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(
            file, optimize=True
        )


async def main(folder: Path) -> None:
    """Start a system, let it work, take the pictures."""
    expect.set_options(timeout=60_000)
    with tempfile.TemporaryDirectory() as place:
        async with world(f"sqlite:///{place}/jobs.db", QUEUES[:-1]) as shop, running_browser() as browser:
            working = asyncio.ensure_future(load(shop, LOAD_SECONDS + 120))
            await asyncio.sleep(LOAD_SECONDS)
            await take(shop, browser, folder)
            working.cancel()


if __name__ == "__main__":
    images = Path(sys.argv[1])
    images.mkdir(parents=True, exist_ok=True)
    asyncio.run(main(images))
