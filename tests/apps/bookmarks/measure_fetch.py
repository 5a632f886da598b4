"""Serves hostile pages and fetches them in one process; prints how each ended, what it took and what it grew by."""

import asyncio
import gc
import json
import threading
import time

import psutil

from rowlock import Permanent, SourceError
from rowlock_apps.bookmarks.small_web import Behaviour, Send, answer, bomb, endless, page, small_web
from rowlock_apps.bookmarks.web.fetch import Fetcher, Limits, open_fetcher

HTML = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
process = psutil.Process()


def forever(start: bytes, again: bytes, pause: float = 0.0) -> Behaviour:
    async def send_it(send: Send) -> None:
        await send(start)
        while True:
            await send(again)
            await asyncio.sleep(pause)

    return send_it


PAGES: dict[str, Behaviour] = {
    "bomb": bomb(10 << 20),
    "tame_bomb": page("Tame", head="<!--" + "a b c d e " * 20_000 + "-->"),
    "endless": endless(),
    "endless_text": forever(HTML + b"\r\n", b"x" * 65536),
    "endless_headers": forever(HTML, b"X-More: " + b"y" * 1000 + b"\r\n"),
    "drip": forever(HTML + b"\r\n", b"<!--x-->", 0.05),
    "header_drip": forever(HTML, b"X: y\r\n", 0.05),
    "silence": forever(b"", b"", 0.2),
}


WAITING = ["drip", "header_drip", "silence"]  # these may wait together
SHORT = Limits(total=1.2, headers=0.6, idle=0.6)
LONG = Limits(total=20, headers=10, idle=10)  # for pages that end by their size, on a busy machine too


class Peak:
    """The largest resident size while a block runs."""

    def __enter__(self) -> "Peak":
        gc.collect()
        self.before = self.most = process.memory_info().rss
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._over.wait(0.005):
            self.most = max(self.most, process.memory_info().rss)

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def grown_mb(self) -> float:
        return (self.most - self.before) / (1 << 20)


async def one(fetcher: Fetcher, name: str) -> tuple[str, float]:
    began = time.monotonic()
    try:
        end = str((await fetcher.page(f"http://{name.replace('_', '-')}.example/")).head.title)
    except (Permanent, SourceError) as error:
        end = error.code
    return end, time.monotonic() - began


async def main() -> None:
    pages = {f"{name.replace('_', '-')}.example/": behaviour for name, behaviour in PAGES.items()}
    pages |= {"endless-robots.example/robots.txt": forever(b"HTTP/1.1 200 OK\r\n\r\n", b"# nothing\n" * 500)}
    pages |= {"endless-robots.example/": page("R"), "warm.example/": page("W"), "warm.example/robots.txt": answer()}
    found: dict[str, dict[str, object]] = {}
    groups = [([name], LONG) for name in [*PAGES, "endless_robots"] if name not in WAITING] + [(WAITING, SHORT)]
    async with small_web(pages) as web:
        for names, limits in groups:
            async with open_fetcher(web.resolve, web.dial, limits=limits) as fetcher:
                await fetcher.page("http://warm.example/")
                began = time.process_time()
                with Peak() as peak:
                    ends = await asyncio.gather(*(one(fetcher, name) for name in names))
                cpu = round(time.process_time() - began, 2)
            for name, (end, took) in zip(names, ends, strict=True):
                grown = round(peak.grown_mb, 1)
                found[name] = {"end": end, "seconds": round(took, 2), "cpu_seconds": cpu, "grown_mb": grown}
    print(json.dumps(found))


asyncio.run(main())
