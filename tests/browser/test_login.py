"""The page of the how-to logs a browser in: its own script, run by a real browser against a real server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from docs.test_docs import ROOT, blocks
from rowlock import Rowlock
from rowlock.api.server import serving
from rowlock.core.config import load_settings
from support.web.browser import OpenWindow

PAGE = """<!doctype html>
<html lang="en"><title>films</title><link rel="icon" href="static/icon.svg">
<script type="module" src="static/page.js"></script><p id="who">
"""
SHOW = """
const found = await session();
document.getElementById("who").textContent = found.owner ?? found.detail;
window.create = (headers) => fetch("api/jobs", {method: "POST", headers, body: '{"jobType": "film", "args": {}}'})
  .then((answer) => answer.status);
window.csrf = found.csrf;
window.watch = () => new Promise((done) => {
  new WebSocket("api/ws").onmessage = ({data}) => done(JSON.parse(data).type);
});
"""
Site = Callable[..., AbstractAsyncContextManager[tuple[Rowlock, str]]]


@pytest.fixture
def site(app_url: str, tmp_path: Path) -> Site:
    """A server with the page of the how-to."""
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "index.html").write_text(PAGE)
    (pages / "icon.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
    (pages / "page.js").write_text(blocks(ROOT / "docs" / "how-to" / "job-api.md", "js")[1][1] + SHOW)

    @asynccontextmanager
    async def start() -> AsyncIterator[tuple[Rowlock, str]]:
        app = Rowlock(settings=load_settings(env={}, flags={"database": app_url, "api.port": 0}))

        @app.task(public=True)
        async def film() -> None: ...

        app.serve_pages(pages)
        async with app, serving(app) as server:
            yield app, "http://{}:{}".format(*server.address)

    return start


async def test_a_login_link_logs_a_browser_in_once_and_its_page_works_under_a_strict_policy(
    site: Site, window: OpenWindow
) -> None:
    async with site() as (app, url):
        link = await app.login_link("ana", base_url=url)
        async with window(link) as shown:
            page = shown.page
            await page.get_by_text("ana").wait_for()
            assert page.url == f"{url}/"  # the secret is gone from the address
            assert await page.evaluate("document.cookie") == ""
            await page.reload()
            await page.get_by_text("ana").wait_for()
            json = {"Content-Type": "application/json"}
            assert await page.evaluate("(h) => create({...h, 'X-Rowlock-CSRF': csrf})", json) == 202
            assert await page.evaluate("watch()") == "ready"
            shown.expect("status of 403")
            assert await page.evaluate("(h) => create(h)", json) == 403
        async with window(link) as again:
            again.expect("status of 401")
            await again.page.get_by_text("unknown, used or too old").wait_for()
        assert [job.owner for job in await app.jobs()] == ["ana"]


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
async def test_a_page_of_another_server_on_this_host_does_nothing_with_the_cookie(
    site: Site, window: OpenWindow
) -> None:
    async with site() as (app, url), site() as (_, other):
        async with window(await app.login_link("ana", base_url=url)) as shown:
            await shown.page.get_by_text("ana").wait_for()
            shown.expect("CORS|ERR_FAILED|401|another origin|CSP|Content Security|Failed to fetch")
            await shown.page.goto(other)
            await shown.page.get_by_text("send Authorization").wait_for()
            tries = """async (url) => {
              const body = '{"jobType": "film", "args": {}}';
              const given = {method: "POST", credentials: "include", headers: {"Content-Type": "text/plain"}, body};
              const send = (more) => fetch(`${url}/api/jobs`, {...given, ...more})
                .then((answer) => answer.status, () => "blocked");
              return [await send({}), await send({mode: "no-cors"})];
            }"""
            assert set(await shown.page.evaluate(tries, url)) <= {"blocked", 0}
        assert await app.jobs() == []


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
async def test_the_browser_fails_a_test_for_what_its_page_does_behind_the_scenes(
    site: Site, window: OpenWindow, tmp_path: Path
) -> None:
    script = """
      console.error("told the console");
      setTimeout(() => { throw new Error("thrown late"); });
      const inline = document.createElement("p");
      try { inline.innerHTML = "<b>text</b>"; } catch {}
      fetch("http://127.0.0.1:9/elsewhere").catch(() => 0);
    """
    (tmp_path / "pages" / "page.js").write_text(script)
    expected = ("told the console", "thrown late", "CSP: require-trusted-types-for", "CSP: connect-src")
    async with site() as (_, url):
        with pytest.raises(AssertionError, match="told the console"):
            async with asyncio.timeout(60), window(url) as shown:
                while not all(any(text in note for note in shown.noted()) for text in expected):
                    await asyncio.sleep(0.02)
        shown.expect(".")
        assert shown.noted() == []
