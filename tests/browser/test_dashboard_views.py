"""Views of the dashboard that draw something or change something, in a real browser; what the database has a
part in, on each engine."""

import asyncio
import json
import re
import time
import uuid
from pathlib import Path
from urllib.parse import quote

from playwright.async_api import Page, expect

from rowlock.store import workers
from rowlock.store.jobs import tasks
from rowlock.store.jobs.tasks import StoredTask
from support.web.browser import OpenWindow
from support.web.page import ONE_ENGINE, confirm, live, show
from support.web.world import LINKS, World, until

HOSTILE = Path(__file__).with_name("hostile.txt").read_text("utf-8").splitlines()
A_SECOND = 1_150  # milliseconds of the page's clock, with those after which it sets its timer
AN_HOUR = 3_600_000
TIME_MARKS = """() => [...document.querySelectorAll(".chart svg")].map((picture) =>
  [...picture.querySelectorAll(".time-mark")].map((mark) => {
    const text = mark.nextElementSibling.textContent;
    return `${text} at ${Math.round(mark.getAttribute("x1"))}`;
  }).join(", "))"""


@ONE_ENGINE
async def test_a_jobs_state_machine_shows_where_it_was_and_where_it_is(shop: World, window: OpenWindow) -> None:
    async with window(await shop.login()) as shown:
        page = shown.page
        await show(page, f"job/{shop.jobs['retried']}")
        states = page.locator("figure[aria-label='States']")
        await expect(states.locator("[data-state=running]")).to_contain_text("3×")
        await expect(states.locator("[data-state=retryable]")).to_contain_text("2×")
        await expect(states.locator(".here")).to_contain_text("succeeded")
        assert await states.locator(".lit[data-state]").count() == 4
        assert await states.locator(".way.lit").count() == 4
        await states.get_by_text("Show as a table").click()
        await expect(states.locator("tbody tr")).to_have_count(7)

        await show(page, f"job/{shop.jobs['cancelled']}")
        await expect(states.locator(".here")).to_contain_text("cancelled")
        assert await states.locator(".lit[data-state=running]").count() == 0
        await show(page, f"job/{shop.jobs['retryable']}")
        await expect(states.locator(".here")).to_contain_text("due in")


async def test_a_batch_is_drawn_as_a_tree_and_its_dead_jobs_are_retried(shop: World, window: OpenWindow) -> None:
    app = shop.app
    async with app.batch("letters") as batch:
        jobs = [await shop.tasks["mail.send"].using(batch=batch).enqueue(to=f"{n}@example.com") for n in range(5)]
    for job in jobs:
        await until(app, job.id, "dead")
    async with window(await shop.login()) as shown:
        page = shown.page
        await show(page, f"batches/{shop.jobs['batch']}")
        tree = page.get_by_role("region", name="Tree of import 7")
        await expect(tree.get_by_role("link", name=re.compile(r"^links\.enrich .*succeeded"))).to_have_count(LINKS)
        await expect(tree.get_by_role("link", name=re.compile(r"^links\.report .*succeeded"))).to_have_count(LINKS)
        await tree.get_by_role("link", name=re.compile(r"^end: imports\.end ")).click()
        await expect(page.locator("h1")).to_have_text("imports.end")
        await page.get_by_role("link", name="import 7").click()
        await expect(tree).to_be_visible()
        assert await shown.axe() == []

        await show(page, f"batches/{batch.id}")
        await page.get_by_role("button", name="Retry dead jobs").click()
        await confirm(page, "Retry 5")
        await expect(page.get_by_role("status").filter(has_text="5 jobs retried")).to_be_visible()
        for job in jobs:
            async with asyncio.timeout(60):
                while (await app.job(job.id)).attempt < 2:
                    await asyncio.sleep(0.05)
        await show(page, "feed")
        await expect(page.get_by_label("What operators did")).to_contain_text(batch.id)


@ONE_ENGINE
async def test_a_purge_cancels_what_waits_in_one_queue(shop: World, window: OpenWindow) -> None:
    app, queue = shop.app, f"q{uuid.uuid4().hex[:8]}"
    here = [await shop.tasks["mail.send"].using(queue=queue).enqueue(to=f"{n}@example.com") for n in range(3)]
    async with window(await shop.login()) as shown:
        page = shown.page
        await show(page, "queues")
        await page.get_by_role("button", name=f"Purge… {queue}").click()
        await expect(page.get_by_role("dialog")).to_contain_text("Purge: 3 jobs")
        assert [(await app.job(job.id)).state for job in here] == ["queued"] * 3
        await confirm(page, "Purge 3")
        await expect(page.get_by_role("button", name=f"Purge… {queue}")).to_have_count(0)
        assert [(await app.job(job.id)).state for job in here] == ["cancelled"] * 3
        await show(page, "feed")
        await expect(page.get_by_label("What operators did")).to_contain_text(queue)
    assert (await app.job(shop.jobs["queued"])).state == "queued"


@ONE_ENGINE
async def test_a_worker_is_drained_after_a_question(shop: World, window: OpenWindow) -> None:
    # It hears of a drain with its next heartbeat, ends, and is gone from the page: not while this test looks at it.
    silent = {"heartbeat_seconds": 600, "lease_seconds": 2400}
    async with (
        shop.app.worker(queues=["spare"], pool_size=1, **silent) as worker,
        window(await shop.login()) as shown,
    ):
        page = shown.page
        await show(page, "workers")
        card = page.locator(".worker").filter(has_text="queues: spare")
        await card.get_by_role("button", name="Drain").click()
        await expect(page.get_by_role("dialog")).to_contain_text("claims no more jobs")
        await page.get_by_role("button", name="Leave it").click()
        await expect(card.locator(".badge")).to_have_text("alive")
        await card.get_by_role("button", name="Drain").click()
        await confirm(page, "Drain")
        await expect(card.locator(".badge")).to_have_text("draining")
        await show(page, "feed")
        await expect(page.get_by_label("What operators did")).to_contain_text(worker.id)
        rows = {row.id: row for row in await (await shop.app.store()).run(workers.workers())}
        assert rows[worker.id].stop_requested == "drain"


@ONE_ENGINE
async def test_a_schedule_is_added_changed_and_removed(shop: World, window: OpenWindow) -> None:
    name = f"s{uuid.uuid4().hex[:8]}"
    async with window(await shop.login()) as shown:
        page = shown.page
        await show(page, "schedules")
        await page.get_by_role("button", name="New schedule").click()
        await page.get_by_label("Name").fill(name)
        await page.get_by_role("combobox", name="Task").select_option("pages.render")
        await page.get_by_label("Rule").fill("61 3 * * *")
        await page.get_by_label("Arguments").fill('{"page": 3}')
        shown.expect("status of 422")
        await page.get_by_role("button", name="Add").click()
        await expect(page.get_by_role("alert")).to_contain_text("61")
        assert await shown.axe() == []
        await page.get_by_label("Rule").fill("every 6h")
        await page.get_by_role("button", name="Add").click()
        row = page.locator("tbody tr").filter(has_text=name)
        await expect(row).to_contain_text("6 hours")

        await row.get_by_role("button", name="Change").click()
        await page.get_by_label("Rule").fill("0 4 * * *")
        await page.get_by_label("Arguments").fill('{"page": 4}')
        await page.get_by_role("dialog").get_by_role("button", name="Change").click()
        await expect(row).to_contain_text("04:00")
        changed = await shop.app.schedules.get(name)
        assert (changed.rule, changed.args) == ("0 4 * * *", {"page": 4})

        await row.get_by_role("button", name="Remove").click()
        await confirm(page, "Remove")
        await expect(row).to_have_count(0)
        nightly = page.locator("tbody tr").filter(has_text="nightly")
        assert await nightly.get_by_role("button", name=re.compile("Change|Remove")).count() == 0  # code has it
        await show(page, "feed")
        told = page.get_by_label("What operators did")
        for action in ("schedules.add", "schedules.edit", "schedules.remove"):
            await expect(told.locator("tr").filter(has_text=name).filter(has_text=action)).to_have_count(1)


@ONE_ENGINE
async def test_names_with_slashes_are_reached_in_every_view(shop: World, window: OpenWindow) -> None:
    app, name = shop.app, f"a/{uuid.uuid4().hex[:8]}/pause%2F?#"
    queue, source = f"{name}q", f"domain:{name}s"
    await app.sources.set(source, concurrency=1)
    await app.schedules.add(name, "mail.send", rule="0 3 * * *", args={"to": "a@example.com"})
    task = StoredTask(f"{name}t", {"queue": queue}, source_derived=False)
    await (await app.store()).run(tasks.declare([task]))
    async with app.batch(name) as batch:
        job = await shop.tasks["mail.send"].using(batch=batch, queue=queue).enqueue(to="a@example.com")
    async with window(await shop.login()) as shown:
        page = shown.page
        for view, named in (("queues", queue), ("sources", source), ("schedules", name)):
            await show(page, view)
            for verb in ("Pause", "Resume"):
                await page.get_by_role("button", name=f"{verb} {named}").click()
                await confirm(page, verb)
            await expect(page.get_by_role("button", name=f"Pause {named}")).to_be_visible()
        await page.get_by_role("button", name=f"Run now {name}").click()
        await confirm(page, "Run now")
        await expect(page.locator("h1")).to_have_text("mail.send")
        await show(page, "batches")
        await page.get_by_role("link", name=name).click()
        await page.get_by_role("button", name="Cancel").click()
        await confirm(page, "Cancel")
        await until(app, job.id, "cancelled")
        await show(page, f"new/{quote(task.name, safe='')}")
        await page.get_by_role("button", name="Enqueue").click()
        await expect(page.locator("h1")).to_have_text(task.name)
        await show(page, f"jobs?queue={quote(queue, safe='')}&task={quote(task.name, safe='')}")
        await expect(page.locator("table.jobs tbody tr")).to_have_count(1)


async def test_settings_tell_the_versions_and_keep_what_this_browser_likes(shop: World, window: OpenWindow) -> None:
    async with window(await shop.login(), color_scheme="light") as shown:
        page = shown.page
        await page.evaluate("localStorage.setItem('rowlock.filters', JSON.stringify(['queue:links state:dead']))")
        await show(page, "settings")
        system = page.get_by_role("region", name="System")
        await expect(system).to_contain_text("SQLite" if shop.engine == "sqlite" else "PostgreSQL")
        await expect(page.get_by_role("region", name="Retention")).to_contain_text(re.compile(r"Succeeded\s*7 days"))
        await page.get_by_label("dark", exact=True).check()
        dark = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        await page.reload()
        await expect(page.get_by_label("dark", exact=True)).to_be_checked()
        assert await page.evaluate("getComputedStyle(document.body).backgroundColor") == dark
        await page.get_by_role("button", name="Forget").click()
        await page.reload()
        await expect(page.get_by_role("region", name="Saved filters")).to_contain_text("None.")


@ONE_ENGINE
async def test_all_charts_of_the_page_have_one_time_axis(shop: World, window: OpenWindow) -> None:
    async with window(await shop.login()) as shown:
        page = shown.page
        for minutes in (60, 1440):
            await show(page, f"charts?minutes={minutes}")
            await expect(page.get_by_label("within")).to_have_value(str(minutes))
            await expect(page.locator(".figure svg.heat-map")).to_have_count(2)
            await expect(page.locator(".loading")).to_have_count(0)
            marks = await page.evaluate(TIME_MARKS)
            assert len(marks) >= 3
            assert set(marks) == {marks[0]}, json.dumps(marks, indent=2)


@ONE_ENGINE
async def test_a_delete_can_be_undone_until_it_begins(shop: World, window: OpenWindow) -> None:
    job = await shop.tasks["mail.send"].enqueue(to="gone@example.com")
    await until(shop.app, job.id, "dead")
    async with window(await shop.login()) as shown:
        page = shown.page
        await show(page, f"job/{job.id}")
        await expect(page.locator("h1")).to_have_text("mail.send")
        await page.clock.install()
        await page.clock.pause_at(time.time() * 1000 + AN_HOUR)  # it must be in the page's future when it arrives there
        await _ask_to_delete(page)
        await page.get_by_role("button", name="Undo").click()  # in the last second, too, nothing has begun
        await page.clock.run_for(20_000)
        assert (await shop.app.job(job.id)).state == "dead"
        await _ask_to_delete(page)
        shown.expect("status of 404")
        await page.clock.run_for(A_SECOND)
        await expect(page.get_by_role("status").filter(has_text="1 job deleted")).to_be_visible()
        await expect(page.locator("main")).to_contain_text("no such record")


async def _ask_to_delete(page: Page) -> None:
    """Up to the last of the five seconds."""
    await page.get_by_role("button", name="Delete", exact=True).click()
    await page.clock.run_for(200)  # the dialog asks for its preview after it was drawn
    await page.get_by_role("button", name="Delete 1").click()
    for left in (5, 4, 3, 2, 1):
        await expect(page.get_by_role("dialog")).to_contain_text(f"Begins in {left} s")
        if left > 1:
            await page.clock.run_for(A_SECOND)


@ONE_ENGINE
async def test_hostile_text_in_the_form_of_a_schedule_runs_nothing(shop: World, window: OpenWindow) -> None:
    async with window(await shop.login()) as shown:
        page = shown.page
        await page.evaluate("window.ran = 0")
        await live(page)
        await show(page, "schedules")
        shown.expect("status of 422")
        await page.get_by_role("button", name="New schedule").click()
        await page.get_by_role("combobox", name="Task").select_option("pages.render")
        for text in HOSTILE[:3]:
            for field in ("Name", "Rule", "Time zone"):
                await page.get_by_label(field).fill(text)
            await page.get_by_role("button", name="Add").click()
            await expect(page.get_by_role("alert")).to_be_visible()
        await page.get_by_label("Name").fill(HOSTILE[1])
        await page.get_by_label("Rule").fill("every 1d")
        await page.get_by_label("Time zone").fill("UTC")
        await page.get_by_label("Arguments").fill(json.dumps({"page": 1}))
        await page.get_by_role("button", name="Add").click()
        row = page.locator("tbody tr").filter(has_text=HOSTILE[1])
        await expect(row).to_be_visible()
        await row.get_by_role("button", name="Change").click()
        await expect(page.get_by_role("dialog")).to_contain_text(HOSTILE[1])
        await page.get_by_role("button", name="Leave it").click()
        await row.get_by_role("button", name="Remove").click()
        await confirm(page, "Remove")
        assert await page.evaluate("window.ran") == 0
        assert await page.locator("main img, main iframe, main script").count() == 0
