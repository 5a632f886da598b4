"""The dashboard in a real browser, over a real server and a real worker; what the database has a part in,
on each engine."""

import re
import uuid
from pathlib import Path

from playwright.async_api import Page, expect

from rowlock import Rowlock
from rowlock.api.access import tokens
from rowlock.api.server import serving
from rowlock.core.config import load_settings
from support.sql.refusals import refused
from support.web.browser import OpenWindow, Window
from support.web.page import ONE_ENGINE, confirm, live, rest, show
from support.web.world import LINKS, World, until

VIEWS = {  # each with something that only the database could have told
    "now": "queues are fine",
    "jobs?state=running": "films.export",
    "queues": "films",
    "failures": "SMTP_550",
    "workers": "films.export",
    "schedules": "nightly",
    "sources": "domain:a0.example",
    "batches": "import 7",
    "charts": "Ends of jobs",
    "feed": "What operators did",
    "settings": "Schema",
    "new/links.enrich": "Fetch a page and note its title.",
}


HOSTILE = Path(__file__).with_name("hostile.txt").read_text("utf-8").splitlines()


async def look_at_each_view(shop: World, shown: Window, *, axe: bool) -> None:
    """Each view tells something of the database, and nothing sticks out of it."""
    await live(shown.page)
    some = {f"job/{shop.jobs['dead']}": "no such mailbox", f"batches/{shop.jobs['batch']}": "imports.end"}
    for view, text in {**VIEWS, **some}.items():
        await show(shown.page, view)
        await expect(shown.page.locator("main")).to_contain_text(text)
        await expect(shown.page.locator(".loading")).to_have_count(0)
        assert (view, await shown.overflowing()) == (view, [])
        if axe:
            assert (view, await shown.axe()) == (view, [])


async def test_each_view_shows_what_is_in_the_database_to_everybody(shop: World, window: OpenWindow) -> None:
    async with window(await shop.login(), color_scheme="light") as shown:
        await look_at_each_view(shop, shown, axe=shop.engine == "sqlite")  # the page is the same on both


@ONE_ENGINE
async def test_each_view_fits_a_phone_in_the_dark(shop: World, window: OpenWindow) -> None:
    async with window(await shop.login(), color_scheme="dark", viewport={"width": 390, "height": 844}) as shown:
        await look_at_each_view(shop, shown, axe=True)


async def test_numbers_are_those_of_the_database(shop: World, window: OpenWindow) -> None:
    async with window(await shop.login()) as shown:
        page = shown.page
        await show(page, "jobs?task=links.enrich")
        await expect(page.locator(".chips")).to_contain_text(re.compile(rf"succeeded\s*{LINKS}"))
        await expect(page.locator("table.jobs tbody tr")).to_have_count(LINKS + 1)
        await show(page, "batches")
        await expect(page.locator("main tbody")).to_contain_text(f"{LINKS} / {LINKS}")
        await show(page, f"job/{shop.jobs['running']}")
        await expect(page.locator("main")).to_contain_text("40 % drawing frame 12")
        await expect(page.locator(".explain")).to_contain_text("has run attempt 1 since")
        await expect(page.get_by_label("Log lines")).to_contain_text("drawing 30 frames")
        await show(page, f"job/{shop.jobs['queued']}")
        await expect(page.locator(".explain")).to_contain_text("waits for its time")
        await show(page, f"job/{shop.jobs['succeeded']}")
        await expect(page.get_by_role("link", name="import 7")).to_be_visible()
        await expect(page.get_by_role("link", name="links.report")).to_be_visible()


async def test_a_change_is_seen_without_a_reload(shop: World, window: OpenWindow) -> None:
    async with window(await shop.login()) as shown:
        page = shown.page
        tag = f"t{uuid.uuid4().hex[:8]}"
        await show(page, f"jobs?tag={tag}")
        await expect(page.locator("main")).to_contain_text("No job matches this filter")
        await live(page)
        job = await shop.tasks["mail.send"].using(tags=[tag]).enqueue(to="new@example.com")
        await expect(page.locator(f"tr[data-id='{job.id}']")).to_contain_text("dead")
        await rest(page)  # or the live connection, once it is back, reads again before the button is pressed
        await page.context.set_offline(True)
        shown.expect("ERR_INTERNET_DISCONNECTED")
        await show(page, "queues")
        await expect(page.get_by_role("alert")).to_contain_text("cannot be reached")
        await page.context.set_offline(False)
        await page.get_by_role("button", name="Try again").click()
        await expect(page.locator("main tbody")).to_contain_text("films")


@ONE_ENGINE
async def test_a_job_is_enqueued_cancelled_retried_and_run_again(shop: World, window: OpenWindow) -> None:
    app = shop.app
    async with window(await shop.login()) as shown:
        page = shown.page
        await live(page)

        await show(page, "new/films.export")
        await page.get_by_label("frames").fill("7")
        await page.get_by_role("button", name="Enqueue").click()
        await expect(page.locator(".job-line")).to_contain_text("running")
        film = page.url.rpartition("/")[2]
        assert (await app.job(film)).args == {"frames": 7}

        await page.get_by_role("button", name="Cancel").click()
        await confirm(page, "Cancel 1")
        await until(app, film, "cancelled")
        await expect(page.locator(".job-line")).to_contain_text("cancelled")

        await page.get_by_role("button", name="Retry").click()
        await confirm(page, "Retry 1")
        await until(app, film, "running")
        await app.cancel(film)
        await until(app, film, "cancelled")

        await page.get_by_role("link", name="Run again").click()
        await expect(page.get_by_label("as JSON")).to_have_value(re.compile(r'"frames": 7'))
        await page.get_by_label("as JSON").fill('{"frames": 8}')
        await page.get_by_role("button", name="Enqueue").click()
        await expect(page.locator("pre").first).to_contain_text('"frames": 8')
        again = page.url.rpartition("/")[2]
        assert again != film
        await app.cancel(again)
        await expect_in_the_audit(page, "cancel", "retry")


@ONE_ENGINE
async def test_a_queue_a_schedule_and_a_source_are_paused_and_resumed(shop: World, window: OpenWindow) -> None:
    async with window(await shop.login()) as shown:
        page = shown.page
        for view, name in (("queues", "coins"), ("schedules", "nightly"), ("sources", "domain:a1.example")):
            await show(page, view)
            await page.get_by_role("button", name=f"Pause {name}").click()
            await confirm(page, "Pause")
            await expect(page.get_by_role("button", name=f"Resume {name}")).to_be_visible()
            await page.get_by_role("button", name=f"Resume {name}").click()
            await confirm(page, "Resume")
            await expect(page.get_by_role("button", name=f"Pause {name}")).to_be_visible()
        await expect_in_the_audit(page, "queue", "schedule", "source")


@ONE_ENGINE
async def test_a_schedule_is_run_at_once(shop: World, window: OpenWindow) -> None:
    async with window(await shop.login()) as shown:
        page = shown.page
        await show(page, "schedules")
        await page.get_by_role("button", name="Run now nightly").click()
        await confirm(page, "Run now")
        await expect(page.locator("h1")).to_have_text("nightly")


async def expect_in_the_audit(page: Page, *actions: str) -> None:
    await show(page, "feed")
    for action in actions:
        await expect(page.get_by_label("What operators did")).to_contain_text(action)


async def test_an_action_on_a_filter_counts_first_and_changes_nothing_else(shop: World, window: OpenWindow) -> None:
    app, tag = shop.app, f"t{uuid.uuid4().hex[:8]}"
    send = shop.tasks["mail.send"]
    made = [await send.using(tags=[tag], delay=3600).enqueue(to=f"{n}@example.com") for n in range(5)]
    async with window(await shop.login()) as shown:
        page = shown.page
        await show(page, f"jobs?tag={tag}")
        await expect(page.locator("table.jobs tbody tr")).to_have_count(5)
        for row in (0, 1):
            await page.locator("table.jobs tbody input").nth(row).check()
        await page.get_by_role("button", name="Run 2 now").click()
        await confirm(page, "Run now 2")
        await expect(page.locator(".chips")).to_contain_text(re.compile(r"dead\s*2"))
        await page.get_by_role("button", name="Cancel all").click()
        await expect(page.get_by_role("dialog")).to_contain_text("3 jobs")
        await page.get_by_role("button", name="Leave it").click()
        assert sorted([(await app.job(job.id)).state for job in made]) == ["dead"] * 2 + ["queued"] * 3
        await page.get_by_role("button", name="Cancel all").click()
        await confirm(page, "Cancel 3")
        await expect(page.get_by_role("status").filter(has_text="3 jobs cancelled")).to_be_visible()
        assert sorted([(await app.job(job.id)).state for job in made]) == ["cancelled"] * 3 + ["dead"] * 2
    assert (await app.job(shop.jobs["queued"])).state == "queued"
    assert (await app.job(shop.jobs["running"])).state == "running"


@ONE_ENGINE
async def test_an_action_names_the_job_that_could_not_be_changed(shop: World, window: OpenWindow) -> None:
    app, tag = shop.app, f"t{uuid.uuid4().hex[:8]}"
    send = shop.tasks["mail.send"]
    made = [await send.using(tags=[tag], delay=3600).enqueue(to=f"{n}@example.com") for n in range(3)]
    async with window(await shop.login()) as shown:
        page = shown.page
        await show(page, f"jobs?tag={tag}")
        await page.get_by_role("button", name="Cancel all").click()
        with refused(app.settings.database, "jobs_finished", "id", made[1].id):
            await confirm(page, "Cancel 3")
            said = page.get_by_text("2 jobs cancelled.")
            await expect(said).to_contain_text(f"1 job could not be changed and stays as before: {made[1].id}")
        await expect(said).not_to_contain_text("had changed meanwhile")
    assert [(await app.job(job.id)).state for job in made] == ["cancelled", "queued", "cancelled"]


CLOSE_AND_FIND = """() => {
  document.querySelector("dialog").close();
  document.dispatchEvent(new KeyboardEvent("keydown", { key: "k", ctrlKey: true }));
}"""


@ONE_ENGINE
async def test_the_keyboard_is_enough(shop: World, window: OpenWindow) -> None:
    async with window(await shop.login()) as shown:
        page = shown.page
        await live(page)
        for keys, view in (("gq", "queues"), ("gj", "jobs"), ("f", "jobs?state=dead")):
            await page.keyboard.type(keys)
            await page.wait_for_url(f"**/#/{view}")
        await expect(page.get_by_label("Filter", exact=True)).to_have_value("state:dead ")
        await page.keyboard.press("/")
        await expect(page.get_by_label("Filter", exact=True)).to_be_focused()
        await page.keyboard.press("Control+a")
        await page.keyboard.type("task:coins.fetch")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/#/jobs?task=coins.fetch")
        await expect(page.locator(f"tr[data-id='{shop.jobs['retryable']}']")).to_be_visible()
        await page.locator("h1").focus()
        await page.keyboard.press("j")
        await page.keyboard.press("x")
        await expect(page.locator("tr.selected")).to_have_count(1)
        await page.keyboard.press("c")
        await expect(page.get_by_role("dialog")).to_contain_text("1 job")
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        await page.keyboard.press("Enter")
        await page.wait_for_url(f"**/#/job/{shop.jobs['retryable']}")
        await page.keyboard.press("?")
        await expect(page.get_by_role("dialog")).to_contain_text("Shortcuts")
        # The next dialog is asked for before the browser tells the page that this one has been closed.
        await page.evaluate(CLOSE_AND_FIND)
        line = f"12:00:01 ERROR worker: Job {shop.jobs['dead']} (mail.send) failed, now dead"
        await expect(page.get_by_role("combobox", name="Job id")).to_be_focused()
        await page.keyboard.type(line)
        await expect(page.get_by_role("dialog").get_by_role("option").first).to_contain_text("mail.send")
        await page.keyboard.press("Enter")
        await page.wait_for_url(f"**/#/job/{shop.jobs['dead']}")
        await page.keyboard.press("Control+k")
        await expect(page.get_by_role("combobox", name="Job id")).to_be_focused()


@ONE_ENGINE
async def test_a_reader_sees_everything_and_can_change_nothing(shop: World, window: OpenWindow) -> None:
    async with window(await shop.login(scope="operator:read")) as shown:
        page = shown.page
        await expect(page.locator(".top")).to_contain_text("Read-only")
        assert "once" not in page.url  # the secret is gone from the address
        job, batch = f"job/{shop.jobs['dead']}", f"batches/{shop.jobs['batch']}"
        for view in ("jobs", "queues", "workers", "schedules", "sources", "settings", job, batch):
            await show(page, view)
            await expect(page.locator("main h1")).to_be_visible()
            await expect(page.locator(".loading")).to_have_count(0)
            verbs = re.compile(r"^(Retry|Cancel|Delete|Pause|Resume|Run|Purge|Drain|Stop|New|Change|Remove)")
            assert await page.locator("main").get_by_role("button", name=verbs).count() == 0


@ONE_ENGINE
async def test_strangers_get_the_login_and_a_token_opens_a_session(shop: World, window: OpenWindow) -> None:
    secret = tokens.new_secret()
    await (await shop.app.store()).run(tokens.create(secret, None, "operator", None))
    async with window(shop.url) as shown:
        shown.expect("status of 401")
        page = shown.page
        await page.get_by_label("Login link or token").fill("rowlock_wrong")
        await page.get_by_role("button", name="Log in").click()
        await expect(page.get_by_role("alert")).to_contain_text("not valid")
        assert await shown.axe() == []
        await page.get_by_label("Login link or token").fill(secret)
        await page.get_by_role("button", name="Log in").click()
        await expect(page.locator("h1")).to_have_text("Now")
        assert secret not in await page.evaluate(
            "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])"
        )
        await page.get_by_role("button", name="Log out").click()
        await expect(page.get_by_label("Login link or token")).to_be_visible()


@ONE_ENGINE
async def test_the_login_says_why_a_pasted_or_opened_link_does_not_open_the_dashboard(
    shop: World, window: OpenWindow
) -> None:
    async with window(shop.url) as shown:
        shown.expect("status of 401")
        page, alert = shown.page, shown.page.get_by_role("alert")
        await page.get_by_label("Login link or token").fill(await shop.app.login_link("ana", base_url=shop.url))
        await page.get_by_role("button", name="Log in").click()
        await expect(alert).to_contain_text("This login is for one owner's jobs")
        await page.evaluate("() => { location.hash = '#once=rowlock_wrong'; }")
        await expect(alert).to_contain_text("unknown, used or too old")


@ONE_ENGINE
async def test_a_login_link_works_when_the_reader_goes_on_before_the_page_is_painted(
    shop: World, window: OpenWindow
) -> None:
    async with window(f"{shop.url}/static/icon.svg") as shown:
        shown.expect("favicon.ico")  # the browser asks for it beside a picture
        page = shown.page
        # The page's script runs before this event, what it leaves for after the first painting runs later.
        await page.add_init_script("addEventListener('DOMContentLoaded', () => { location.hash = '#/queues'; })")
        await page.goto(await shop.login())
        await expect(page.locator("h1")).to_have_text("Queues")


async def test_the_dashboard_works_under_a_base_path(sqlite_url: str, window: OpenWindow) -> None:
    flags = {"database": sqlite_url, "api.port": 0, "api.base_path": "/tools/rowlock"}
    app = Rowlock(settings=load_settings(env={}, flags=flags))

    @app.task("films.export", queue="films")
    async def export() -> None: ...

    async with app, serving(app) as server:
        await export.enqueue()
        link = await app.login_link(base_url="http://{}:{}/tools/rowlock".format(*server.address))
        async with window(link) as shown:
            await live(shown.page)
            await show(shown.page, "queues")
            await expect(shown.page.locator("main tbody")).to_contain_text("films")


@ONE_ENGINE
async def test_hostile_text_in_every_field_runs_nothing(shop: World, window: OpenWindow) -> None:
    assert len(HOSTILE) >= 40
    ids = await shop.hostile(HOSTILE)
    async with window(await shop.login()) as shown:
        page = shown.page
        await page.evaluate("window.ran = 0")
        await live(page)
        views = [view.partition("?")[0].partition("/")[0] for view in VIEWS]
        for view in [*views, "jobs?state=dead", *(f"job/{job_id}" for job_id in ids)]:
            await show(page, view)
            await expect(page.locator("main h1")).to_be_visible()
            await expect(page.locator(".loading")).to_have_count(0)
        for text in HOSTILE[:3]:  # also what somebody types or opens
            await show(page, f"jobs?queue={text}")
            await show(page, f"job/{text}")
            await show(page, text)
        shown.expect("status of (404|422)")
        assert await page.evaluate("window.ran") == 0
        assert await page.locator("main img, main iframe, main script, main object, main embed").count() == 0
