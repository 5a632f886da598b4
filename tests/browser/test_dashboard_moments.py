"""What a reader does while something is still on its way: a drawing, an answer, the end of a dialog. Each test holds
that moment, which else lasts some milliseconds."""

import asyncio
import re
import time
import uuid
from typing import Any

import pytest
from playwright.async_api import Request, Route, expect

from rowlock.api.live.panels import Panels
from support.tasks.contract import until
from support.web.browser import OpenWindow
from support.web.page import ONE_ENGINE, go_on, live, rest, show
from support.web.world import World
from support.web.world import until as world_until

pytestmark = ONE_ENGINE
AN_HOUR = 3_600_000  # milliseconds
LIST = re.compile(r"/api/operator/jobs\?")
NEWEST = re.compile(r"/api/operator/jobs\?limit=100")
RUNNING = re.compile(r"/api/operator/jobs\?state=running&limit=100")
FIND = re.compile(r"/api/operator/find\?")

WHEN_FIRST_DRAWN = """
new MutationObserver((_, drawing) => {
  if (!document.querySelector("header.top")) return;
  drawing.disconnect();
  const current = () => document.querySelector("nav [aria-current]").textContent;
  addEventListener("hashchange", () => { window.shownThen = current(); });
  location.hash = "#/queues";
}).observe(document, { childList: true, subtree: true });
"""


async def test_an_address_that_changes_while_the_page_is_first_drawn_is_followed_at_once(
    shop: World, window: OpenWindow
) -> None:
    async with window(f"{shop.url}/static/icon.svg") as shown:
        shown.expect("favicon.ico")  # the browser asks for it beside a picture
        await shown.page.add_init_script(WHEN_FIRST_DRAWN)
        await shown.page.goto(await shop.login())
        await expect(shown.page.locator("h1")).to_have_text("Queues")
        assert await shown.page.evaluate("shownThen") == "Queues"


PRESS_FIND = """async () => {
  document.dispatchEvent(new KeyboardEvent("keydown", { key: "k", ctrlKey: true }));
  await null; // the page has drawn its dialog, and the browser has not painted it
  return document.activeElement.getAttribute("role");
}"""


async def test_a_dialog_has_the_keyboard_as_soon_as_it_is_drawn(shop: World, window: OpenWindow) -> None:
    async with window(await shop.login()) as shown:
        await live(shown.page)
        assert await shown.page.evaluate(PRESS_FIND) == "combobox"


CLOSE_AND_OPEN = """(button) => new Promise((told) => {
  const dialog = document.querySelector("dialog");
  dialog.addEventListener("close", () => setTimeout(told));
  dialog.close(); // as Escape does; the browser tells the page later
  document.querySelector(button).click();
})"""


async def test_a_dialog_that_is_opened_before_the_end_of_the_last_one_is_told_stays_open(
    shop: World, window: OpenWindow
) -> None:
    async with window(await shop.login()) as shown:
        page = shown.page
        for view, button in (
            ("now", "button.find"),
            ("jobs?state=dead", ".list-actions button.danger"),
            ("schedules", ".head-actions button"),
            ("queues", ".row-actions button"),
        ):
            await show(page, view)
            await page.locator(button).first.click()
            await expect(page.get_by_role("dialog")).to_be_visible()
            await page.evaluate(CLOSE_AND_OPEN, button)
            assert (view, await page.locator("dialog[open]").count()) == (view, 1)
            await page.keyboard.press("Escape")
            await expect(page.get_by_role("dialog")).to_have_count(0)


async def test_the_focus_is_back_where_it_was_when_a_dialog_is_left_by_its_button(
    shop: World, window: OpenWindow
) -> None:
    async with window(await shop.login()) as shown:
        page = shown.page
        await show(page, "schedules")
        for button in ("New schedule", "Pause nightly"):
            await page.get_by_role("button", name=button).focus()
            await page.keyboard.press("Enter")
            await page.get_by_role("dialog").get_by_role("button", name="Leave it").click()
            await expect(page.get_by_role("button", name=button)).to_be_focused()


TYPE_AT_ONCE = """(hash) => new Promise((done) => {
  addEventListener("hashchange", () => {
    const field = document.getElementById("filter");
    field.value = "task:mail.send";
    field.dispatchEvent(new Event("input", { bubbles: true }));
    requestAnimationFrame(() => setTimeout(() => requestAnimationFrame(() => setTimeout(() => done(field.value)))));
  }, { once: true });
  location.hash = hash;
})"""


async def test_what_is_typed_into_the_filter_right_after_another_filter_was_chosen_stays(
    shop: World, window: OpenWindow
) -> None:
    async with window(await shop.login()) as shown:
        await live(shown.page)
        await show(shown.page, "jobs")
        await expect(shown.page.locator(".chips")).to_contain_text(re.compile(r"dead\s*\d"))
        assert await shown.page.evaluate(TYPE_AT_ONCE, "#/jobs?state=dead") == "task:mail.send"


async def test_the_search_shows_no_job_that_an_earlier_text_has_found(shop: World, window: OpenWindow) -> None:
    asked, answered = list[str](), asyncio.Event()

    async def hold_the_second(route: Route) -> None:
        asked.append(route.request.url)
        if len(asked) > 1:
            await answered.wait()
        await route.continue_()

    async with window(await shop.login()) as shown:
        page = shown.page
        await live(page)
        await page.route(FIND, hold_the_second)
        await page.keyboard.press("Control+k")
        jobs = page.get_by_role("option").filter(has_text="job, ")
        await page.get_by_role("combobox").fill(shop.jobs["dead"])
        await expect(jobs).to_contain_text("dead")
        await page.get_by_role("combobox").fill(shop.jobs["cancelled"])
        await expect(jobs).to_have_count(0)
        answered.set()
        await expect(jobs).to_contain_text("cancelled")
        await page.keyboard.press("Enter")
        await page.wait_for_url(f"**/#/job/{shop.jobs['cancelled']}")


async def test_a_read_that_is_slower_than_the_news_is_not_begun_again_before_its_end(
    shop: World, window: OpenWindow
) -> None:
    tag = f"t{uuid.uuid4().hex[:8]}"
    asked, answered = list[Request](), asyncio.Event()

    async def answer_late(route: Route) -> None:
        answer = await route.fetch()
        asked.append(route.request)
        await answered.wait()
        await route.fulfill(response=answer)

    async with window(await shop.login()) as shown:
        page = shown.page
        await live(page)
        await page.clock.install()
        await page.route(LIST, answer_late)
        await show(page, f"jobs?tag={tag}")
        await expect(page.locator(".chips")).to_contain_text(re.compile(r"queued\s*0"))
        await until(lambda: len(asked) == 1)
        job = await shop.tasks["mail.send"].using(tags=[tag], delay=3600).enqueue(to="late@example.com")
        await expect(page.locator(".chips")).to_contain_text(re.compile(r"queued\s*1"))  # the news is there
        answered.set()
        await expect(page.locator("main")).to_contain_text("No job matches this filter")
        assert len(asked) == 1
        await page.clock.fast_forward(AN_HOUR)  # it is read again after ten times as long as the read took
        await expect(page.locator(f"tr[data-id='{job.id}']")).to_be_visible()


async def test_the_list_stays_as_it_is_once_a_row_is_selected(shop: World, window: OpenWindow) -> None:
    asked: list[str] = []
    async with window(await shop.login()) as shown:
        page = shown.page
        await show(page, "jobs?state=dead")
        row = page.locator(f"tr[data-id='{shop.jobs['dead']}']")
        await expect(row).to_be_visible()
        await live(page)
        await page.clock.install()
        await page.clock.pause_at(time.time() * 1000 + AN_HOUR)
        await rest(page)
        await go_on(page)  # news has come, and the list waits for a moment before it reads again
        await row.get_by_role("checkbox").check()
        page.on("request", lambda request: asked.append(request.url) if LIST.search(request.url) else None)
        await page.clock.run_for(60_000)
        await expect(page.locator(".list-status")).to_contain_text("1 selected")
        assert asked == []


# --- live


async def test_a_page_asks_for_what_is_new_and_for_nothing_while_nothing_happens(
    shop: World, window: OpenWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds, look = asyncio.Semaphore(0), Panels._round

    async def counted(self: Panels, store: Any) -> None:
        await look(self, store)
        rounds.release()

    monkeypatch.setattr(Panels, "_round", counted)
    tag, asked = f"t{uuid.uuid4().hex[:8]}", list[Request]()
    async with window(await shop.login()) as shown:
        page = shown.page
        await live(page)
        page.on("request", lambda request: asked.append(request))
        await show(page, f"jobs?tag={tag}")
        await expect(page.locator("main")).to_contain_text("No job matches this filter")
        async with asyncio.timeout(60):
            while asked:  # until the server has looked five times, and the page has asked nothing meanwhile
                asked.clear()
                for _ in range(5):
                    await rounds.acquire()
        job = await shop.tasks["mail.send"].using(tags=[tag], delay=3600).enqueue(to="new@example.com")
        await expect(page.locator(f"tr[data-id='{job.id}']")).to_be_visible()
        assert any("if-none-match" in request.headers for request in asked if LIST.search(request.url))


async def test_the_feed_shows_what_happens_to_jobs(shop: World, window: OpenWindow) -> None:
    film = await shop.tasks["films.export"].enqueue(frames=1)
    await world_until(shop.app, film.id, "running")
    async with window(await shop.login()) as shown:
        page = shown.page
        await live(page)
        async with page.expect_response(NEWEST), page.expect_response(RUNNING):
            await show(page, "feed")
        await expect(page.locator("main")).to_contain_text("Waiting for something to happen")
        lines = page.get_by_label("Changes of jobs").locator("tbody tr")
        job = await shop.tasks["mail.send"].enqueue(to="nobody@example.com")
        last = lines.filter(has=page.locator(f"a[href*='{job.id}']")).first
        await expect(last).to_contain_text("dead")
        await expect(last).to_contain_text("SMTP_550")
        await shop.app.cancel(film.id)
        await expect(lines.filter(has=page.locator(f"a[href*='{film.id}']")).first).to_contain_text("cancelled")
