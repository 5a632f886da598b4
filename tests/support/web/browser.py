"""A real browser for tests: Chromium on PATH, else Debian's package where it may be installed, else Playwright's own
download. One browser for each test process; each test gets windows in a context of its own, with no cookies of others.

A window notes what a user would not see and a developer must: errors on the console, exceptions of the page, violations
of the content security policy, requests to another origin. A test fails when one was noted that it did not expect.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import Browser, ConsoleMessage, Page, Request, async_playwright, expect

from support.servers import parts
from support.servers.parts import Part

PATIENCE = 30_000  # milliseconds, for a busy machine; a correct page needs less than a second
expect.set_options(timeout=PATIENCE)
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = [
    "--no-sandbox",  # Chromium refuses to run as root with it
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
INSTALL_SECONDS = 600.0
ROOT = Path(__file__).resolve().parents[3]
PICTURES = ROOT / "docs" / "images"
WATCH = """
addEventListener("securitypolicyviolation", ({ violatedDirective, blockedURI, sourceFile, lineNumber }) =>
  console.error(`CSP: ${violatedDirective} ${blockedURI} ${sourceFile}:${lineNumber}`));
"""
HIDE = """(hidden) => {
  Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
  document.dispatchEvent(new Event("visibilitychange"));
}"""  # as when its window is covered, and uncovered


class NoBrowser(Exception):
    """There is none, and none can be had."""


def find_chromium() -> str | None:
    """The path of a Chromium that is here."""
    found = [Part(program, "chromium").find() for program in PROGRAMS]
    return next((path for path in found if path), None) or _downloaded()


def get_chromium() -> str:
    """The path of a Chromium; it is installed if there is none, by one process of this machine at a time."""
    if (found := find_chromium()) is not None:
        return found
    with parts.one_at_a_time("chromium") as note:
        if (found := find_chromium()) is None and not note.exists():
            told = (
                Part("chromium", "chromium").install(INSTALL_SECONDS) if parts.may_install() else "apt-get may not run"
            )
            if (found := find_chromium()) is None:
                told += _download()
                found = find_chromium()
            note.write_text(told)
        if found is None:
            raise NoBrowser(
                "the browser tests need Chromium: put one on PATH (on Debian: apt-get install chromium) or run"
                f" `{sys.executable} -m playwright install chromium`; tried both: {note.read_text()[-600:]}"
            )
    return found


def _downloaded() -> str | None:
    """What Playwright has downloaded on this machine."""
    folder = os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or str(Path.home() / ".cache" / "ms-playwright")
    found = sorted(Path(folder).glob("chromium-*/chrome-*/chrome"))
    return str(found[-1]) if found else None


def _download() -> str:
    command = [sys.executable, "-m", "playwright", "install", "chromium", "--no-shell"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        return f"\nplaywright install: not done in {INSTALL_SECONDS:g} s"
    return f"\n{done.stdout}{done.stderr}"


@asynccontextmanager
async def running_browser() -> AsyncIterator[Browser]:
    """A browser for as long as the block lasts."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=get_chromium(), args=FLAGS, headless=True)
        try:
            yield browser
        finally:
            await browser.close()


class Window:
    """One page, and what was noted while it was used."""

    def __init__(self, page: Page, origin: str) -> None:
        self.page, self._origin = page, origin
        self._noted: list[str] = []
        self._expected: list[str] = []
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self._noted.append(f"exception: {error}"))
        page.on("request", self._on_request)
        page.on("crash", lambda _: self._noted.append("the page crashed"))

    def expect(self, pattern: str) -> None:
        """Messages like this one are part of the test, such as that of a server that was killed on purpose."""
        self._expected.append(pattern)

    def noted(self) -> list[str]:
        """What nobody expected."""
        return [note for note in self._noted if not any(re.search(pattern, note) for pattern in self._expected)]

    async def axe(self) -> list[str]:
        """What axe has against the page: nothing, for a page that everybody can use."""
        if not await self.page.evaluate("'axe' in window"):  # it is half a megabyte: once for each page
            code = (ROOT / "ui" / "node_modules" / "axe-core" / "axe.min.js").read_text("utf-8")
            await self.page.evaluate(code)
        found: dict[str, Any] = await self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{one['id']}: {one['help']}: {json.dumps([node['html'][:200] for node in one['nodes'][:5]])}"
            for one in found["violations"]
        ]

    async def overflowing(self) -> list[str]:
        """Elements that stick out of the window to the right: what a reader on a phone would not see."""
        found: list[str] = await self.page.evaluate(
            """() => [...document.querySelectorAll("body *")]
              .filter((one) => one.checkVisibility() && one.getBoundingClientRect().right > innerWidth + 1)
              .filter((one) => getComputedStyle(one).clipPath === "none" && !one.closest("[data-scrolls]"))
              .map((one) => one.outerHTML.slice(0, 120))"""
        )
        return found

    async def cut_off(self) -> list[str]:
        """Elements that stick out of a box which hides what does not fit into it, to the left or the right."""
        found: list[str] = await self.page.evaluate(
            """() => [...document.querySelectorAll("body *")].filter((one) => {
              if (!one.checkVisibility() || one.closest("svg, [data-scrolls]")) return false;
              if (getComputedStyle(one).clipPath !== "none") return false;
              const inner = one.getBoundingClientRect();
              for (let box = one.parentElement; box; box = box.parentElement) {
                const { overflowX, textOverflow } = getComputedStyle(box);
                if (overflowX === "visible" || textOverflow === "ellipsis") continue;
                const outer = box.getBoundingClientRect();
                if (inner.left < outer.left - 1 || inner.right > outer.right + 1) return true;
              }
              return false;
            }).map((one) => one.outerHTML.slice(0, 120))"""
        )
        return found

    async def picture(self, name: str) -> None:
        """Write the whole page to docs/images, if PICTURES_OF_PAGES is set: pictures are for people to look at."""
        if os.environ.get("PICTURES_OF_PAGES"):
            PICTURES.mkdir(exist_ok=True)
            await self.page.screenshot(path=PICTURES / f"{name}.png", full_page=True, animations="disabled")

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "assert"):
            self._noted.append(f"console: {message.text} ({message.location.get('url', '')})")

    def _on_request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob") and f"{parts.scheme}://{parts.netloc}" != self._origin:
            self._noted.append(f"request to another origin: {request.url}")


OpenWindow = Callable[..., AbstractAsyncContextManager[Window]]


@asynccontextmanager
async def open_window(browser: Browser, url: str, **options: Any) -> AsyncIterator[Window]:
    """A window of a context of its own that shows an address; `options` are Playwright's for a context. When the block
    ends, nothing may have been noted that it did not expect."""
    place = urlsplit(url)
    context = await browser.new_context(**{"viewport": {"width": 1280, "height": 800}, "locale": "en-GB", **options})
    context.set_default_timeout(PATIENCE)
    try:
        await context.add_init_script(WATCH)
        window = Window(await context.new_page(), f"{place.scheme}://{place.netloc}")
        await window.page.goto(url)
        yield window
        if window.noted():
            raise AssertionError("the page did what nobody expected:\n" + "\n".join(window.noted()))
    finally:
        for page in context.pages:  # an answer that a test holds back must not fail the next one
            await page.unroute_all(behavior="ignoreErrors")
        await context.close()
