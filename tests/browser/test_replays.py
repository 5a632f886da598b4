"""The replays page in a real browser: log in, export, watch the progress, play, download, cancel; and what strangers
and broken connections do to it. Server and worker are processes of their own."""

import asyncio
import itertools
import re
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.async_api import Locator, Page, Route, expect

from browser.replays_place import Place, add_replay, checksum_of, sha256
from rowlock import NotAllowed
from rowlock_apps.replays import samples, service
from support.servers.postgres import PostgresDatabases
from support.web.browser import HIDE, OpenWindow

LONG_MS = 9 * 60 * 1000  # its export takes about a minute: long enough to be watched, and to be cancelled
HOSTILE = [line for line in Path(__file__).with_name("hostile.txt").read_text("utf-8").splitlines() if len(line) <= 200]
OWNERS = itertools.count(1)
# What a browser says of a server that is killed: before, while or after it answers.
BROKEN = (
    "ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|ERR_INCOMPLETE|ERR_CONTENT_LENGTH_MISMATCH"
    "|WebSocket connection to"
)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The running system, for all tests of this file; each has users of its own."""
    folder = tmp_path_factory.mktemp("replays")
    name = f"pages_{uuid.uuid4().hex[:12]}"
    server: PostgresDatabases | None = None
    if request.param == "postgres":
        server = request.getfixturevalue("postgres_server")
    database = f"sqlite:///{folder}/replays.db" if server is None else server.create_database(name)
    place = Place(folder, database)
    asyncio.run(place.open().migrate())
    try:
        place.start()
        yield place
    finally:
        place.close()
        if server is not None:
            server.drop_database(name)


# For what concerns the page alone: the engine behind the server makes no difference to it.
one_engine = pytest.mark.parametrize("place", ["sqlite"], indirect=True)


@pytest.fixture
def owner() -> str:
    """A user that no other test has."""
    return f"ana-{next(OWNERS)}"


def card(page: Page, title: str) -> Locator:
    """What the page shows of one replay."""
    return page.get_by_role("listitem").filter(has=page.get_by_role("heading", name=title, exact=True))


async def job_id_in(locator: Locator) -> str:
    """The job whose file a link downloads."""
    found = re.search("/api/jobs/([0-9a-f-]+)/result", str(await locator.get_attribute("href")))
    assert found is not None
    return found[1]


async def test_an_export_is_asked_for_played_and_downloaded(
    place: Place, window: OpenWindow, owner: str, tmp_path: Path
) -> None:
    async with place.open() as app:
        await add_replay(app, owner, "Set 1", 20_000)
        async with window(await app.login_link(owner, base_url=place.url), accept_downloads=True) as shown:
            page = shown.page
            first = card(page, "Set 1")
            await first.get_by_text("20 s · 201 frames").wait_for()
            assert re.search(r"\d\d:\d\d:\d\d Asia/Seoul", await first.inner_text())
            await first.get_by_role("button", name="Make the video").click()
            await first.get_by_role("button", name="Play").click(timeout=60_000)
            await page.wait_for_function("() => document.querySelector('video')?.currentTime > 0.2")
            assert 19.5 < await page.evaluate("document.querySelector('video').duration") < 20.5
            link = first.get_by_role("link", name="Download the video")
            async with page.expect_download() as download:
                await link.click()
            await (await download.value).save_as(tmp_path / "got.mp4")
            content = (tmp_path / "got.mp4").read_bytes()
            assert (await download.value).suggested_filename == "replay.mp4"
            assert sha256(content) == await checksum_of(app, await job_id_in(link))
            await first.get_by_role("button", name="Make the picture").click()
            await first.get_by_role("link", name="Download the picture").wait_for()
            await first.get_by_role("button", name="Close").click()
            await page.wait_for_function("() => document.querySelector('img')?.naturalWidth > 100")


WATCH_PROGRESS = """() => {
  window.seen = [];
  new MutationObserver(() => {
    const bar = document.querySelector("progress");
    if (bar && bar.value !== seen.at(-1)) seen.push(bar.value);
  }).observe(document.body, {subtree: true, childList: true, attributes: true, characterData: true});
}"""


@one_engine
async def test_a_running_export_is_seen_moving_and_is_cancelled(place: Place, window: OpenWindow, owner: str) -> None:
    async with place.open() as app:
        await add_replay(app, owner, "The whole match", LONG_MS)
        async with window(await app.login_link(owner, base_url=place.url)) as shown:
            page, whole = shown.page, card(shown.page, "The whole match")
            await whole.wait_for()
            await page.evaluate(WATCH_PROGRESS)
            await whole.get_by_role("button", name="Make the video").click()
            await page.wait_for_function("() => seen.length >= 4")
            values = await page.evaluate("seen")
            assert values == sorted(values)
            await whole.get_by_role("button", name="Cancel the video").click()
            await whole.get_by_text("cancelled", exact=True).wait_for()
            await whole.get_by_role("button", name="Make again the video").wait_for()
            assert [job.state for job in await app.jobs(owner=owner)] == ["cancelled"]


@one_engine
async def test_the_page_goes_on_without_a_reload_when_the_server_is_killed_and_comes_back(
    place: Place, window: OpenWindow, owner: str
) -> None:
    async with place.open() as app:
        await add_replay(app, owner, "The whole match", LONG_MS)
        await add_replay(app, owner, "Set 2", 12_000)
        async with window(await app.login_link(owner, base_url=place.url)) as shown:
            page = shown.page
            shown.expect(BROKEN)
            await page.get_by_text("Live", exact=True).wait_for()
            await page.evaluate("window.untouched = true")
            short, whole = card(page, "Set 2"), card(page, "The whole match")
            await short.get_by_role("button", name="Make the video").click()
            # On a machine that is busy with the page the video, which takes a second, may have been made meanwhile.
            await short.get_by_role("button", name=re.compile("Cancel the video|Make again the video")).wait_for()
            await asyncio.to_thread(place.kill_server)
            await page.get_by_text("Connection lost, trying again").wait_for()
            (video,) = await app.jobs(owner=owner)
            await video.wait(timeout=60)  # it ends while nobody can tell the page
            await asyncio.to_thread(place.serve)
            # After a long outage the page waits for up to 22 s before it tries again.
            await short.get_by_role("link", name="Download the video").wait_for(timeout=60_000)
            await page.get_by_text("Live", exact=True).wait_for()
            await whole.get_by_role("button", name="Make the video").click()  # the session goes on, too
            await whole.get_by_text("encoding").wait_for()
            await whole.get_by_role("button", name="Cancel the video").click()
            await whole.get_by_text("cancelled", exact=True).wait_for()
            assert await page.evaluate("window.untouched")


@one_engine
async def test_a_page_that_missed_events_for_good_reads_everything_anew(
    place: Place, window: OpenWindow, owner: str
) -> None:
    async with place.open() as app:
        await add_replay(app, owner, "Set 1", 400)
        async with window(await app.login_link(owner, base_url=place.url)) as shown:
            page, first = shown.page, card(shown.page, "Set 1")
            await first.get_by_role("button", name="Make the picture").click()
            await first.get_by_role("link", name="Download the picture").wait_for()
            await page.evaluate(HIDE, True)
            await page.get_by_text("Paused", exact=True).wait_for()
            replay_id = (await page.evaluate("fetch('api/replays').then((answer) => answer.json())"))["items"][0][
                "replayId"
            ]
            await (await app.job(await service.create_export(app, owner, replay_id, "REPLAY_MP4"))).wait(timeout=60)
            async with app.transaction() as transaction:  # as retention does with old events
                await transaction.execute("DELETE FROM rowlock_events")
            await (await app.job(await service.create_export(app, owner, replay_id, "REPLAY_THUMBNAIL"))).wait(
                timeout=60
            )
            await page.evaluate(HIDE, False)
            await first.get_by_role("link", name="Download the video").wait_for()


@one_engine
async def test_links_and_files_of_others_open_nothing(place: Place, window: OpenWindow, owner: str) -> None:
    async with place.open() as app:
        mine = await add_replay(app, owner, "Mine alone")
        link = await app.login_link(owner, base_url=place.url)
        async with window(link) as shown:
            await card(shown.page, "Mine alone").wait_for()
            await card(shown.page, "Mine alone").get_by_role("button", name="Make the picture").click()
            download = shown.page.get_by_role("link", name="Download the picture")
            await download.wait_for()
            result = f"{place.url}/api/jobs/{await job_id_in(download)}/result"
        async with window(link) as used:  # by somebody who has found it in a history
            used.expect("status of 401")
            await used.page.get_by_text("unknown, used or too old").wait_for()
        async with window(await app.login_link(f"{owner}-other", base_url=place.url)) as other:
            await other.page.get_by_text("No replays yet").wait_for()
            other.expect("status of 404")
            for address in (result, f"{place.url}/api/replays/{mine}"):
                assert await other.page.evaluate("(url) => fetch(url).then((answer) => answer.status)", address) == 404


@one_engine
async def test_text_of_users_is_shown_as_text_and_never_run(place: Place, window: OpenWindow, owner: str) -> None:
    async with place.open() as app:
        for title in HOSTILE:
            await add_replay(app, owner, title, 200)
        async with window(await app.login_link(owner, base_url=place.url)) as shown:
            page = shown.page
            dialogs: list[str] = []
            page.on("dialog", lambda dialog: dialogs.append(dialog.message))
            titles = page.get_by_role("heading", level=2)
            for number in range(20, len(HOSTILE), 20):  # a page of the list
                await titles.nth(number - 1).wait_for()
                await page.get_by_role("button", name="Show older replays").click()
            await titles.nth(len(HOSTILE) - 1).wait_for()
            found = await titles.all_text_contents()
            assert sorted(found) == sorted(HOSTILE)
            assert await page.evaluate("window.ran") is None
            assert dialogs == []
            assert await page.locator("main script, main iframe, main a[href^=javascript]").count() == 0


@one_engine
async def test_an_export_that_is_refused_or_fails_says_why(place: Place, window: OpenWindow, owner: str) -> None:
    async with place.open() as app:
        broken = samples.broken_off(3000)
        await service.create_replay(app, owner, "Broken off", None, broken)
        path = service.input_path(app, await add_replay(app, owner, "Damaged", 400))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{")  # as after a disk that was full
        async with window(await app.login_link(owner, base_url=place.url)) as shown:
            page = shown.page
            await card(page, "Damaged").get_by_role("button", name="Make the video").click()
            await card(page, "Damaged").get_by_text("INVALID_REPLAY").wait_for()
            assert str(place.folder) not in await page.content()  # users learn nothing of the server's folders
            shown.expect("status of 422")
            await card(page, "Broken off").get_by_role("button", name="Make the picture").click()
            await page.get_by_role("alert").get_by_text("frames").wait_for()
            assert await shown.axe() == []
            await shown.picture("replays-failed")


@one_engine
async def test_after_logging_out_the_page_shows_nothing(place: Place, window: OpenWindow, owner: str) -> None:
    async with place.open() as app:
        await add_replay(app, owner, "Set 1")
        async with window(await app.login_link(owner, base_url=place.url)) as shown:
            await card(shown.page, "Set 1").wait_for()
            await shown.page.get_by_role("button", name="Log out").click()
            await shown.page.get_by_text("You are logged out").wait_for()
            shown.expect("status of 401")
            await shown.page.reload()
            await shown.page.get_by_text("Open your login link").wait_for()


LOOKS = [("light", 1280, 860), ("dark", 1280, 860), ("light", 390, 844), ("dark", 390, 844)]


@one_engine
async def test_the_page_is_readable_by_everybody_in_every_look(place: Place, window: OpenWindow, owner: str) -> None:
    async with place.open() as app:
        await add_replay(
            app, owner, "Set 3: a title that is far too long for one line of a small card, as people write", 400
        )
        await add_replay(app, owner, "Set 2", LONG_MS)
        await add_replay(app, owner, "Set 1", 4000)
        async with window(await app.login_link(owner, base_url=place.url)) as shown:
            page = shown.page
            for title, kind in (("Set 1", "video"), ("Set 1", "picture"), ("Set 2", "video")):
                await card(page, title).get_by_role("button", name=f"Make the {kind}").click()
            await card(page, "Set 1").get_by_role("link", name="Download the video").wait_for(timeout=60_000)
            await card(page, "Set 2").get_by_text("encoding").wait_for()
            for scheme, width, height in LOOKS:
                await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
                await page.set_viewport_size({"width": width, "height": height})
                assert await shown.axe() == []
                assert await shown.overflowing() == []
                assert await shown.cut_off() == []
                await shown.picture(f"replays-{scheme}-{width}")
            with suppress(NotAllowed):  # it may have ended meanwhile
                await app.cancel((await app.jobs(owner=owner, limit=1))[0].id)
        async with window(place.url) as stranger:
            stranger.expect("status of 401")
            await stranger.page.get_by_text("Open your login link").wait_for()
            assert await stranger.axe() == []
            await stranger.picture("replays-login")


@one_engine
async def test_the_page_is_used_with_the_keyboard_alone(place: Place, window: OpenWindow, owner: str) -> None:
    async with place.open() as app:
        await add_replay(app, owner, "Set 1", 400)
        async with window(await app.login_link(owner, base_url=place.url)) as shown:
            page = shown.page
            await card(page, "Set 1").wait_for()
            for name in ("Log out", "Make the video of Set 1"):
                await page.keyboard.press("Tab")
                assert (
                    await page.evaluate("document.activeElement.ariaLabel ?? document.activeElement.textContent")
                    == name
                )
            await page.keyboard.press("Enter")
            await card(page, "Set 1").get_by_role("link", name="Download the video").wait_for()
            assert await page.evaluate("document.activeElement.ariaLabel") == "Make again the video of Set 1"
            assert await page.get_by_role("status").last.text_content() == "Video of Set 1: succeeded"


@one_engine
async def test_a_double_click_asks_once(place: Place, window: OpenWindow, owner: str) -> None:
    async with place.open() as app:
        await add_replay(app, owner, "Set 1", 400)
        async with window(await app.login_link(owner, base_url=place.url)) as shown:
            page, asked = shown.page, list[str]()
            page.on("request", lambda request: asked.append(request.url) if "/exports/" in request.url else None)
            button = card(page, "Set 1").get_by_role("button", name="Make the picture")
            await button.evaluate("(button) => { button.click(); button.click(); }")
            await card(page, "Set 1").get_by_role("link", name="Download the picture").wait_for()
            assert len(asked) == 1


@one_engine
async def test_an_export_that_ends_before_its_request_is_answered_is_told(
    place: Place, window: OpenWindow, owner: str
) -> None:
    async with place.open() as app:
        await add_replay(app, owner, "Set 1", 400)
        async with window(await app.login_link(owner, base_url=place.url)) as shown:
            page, download = shown.page, shown.page.get_by_role("link", name="Download the picture")

            async def answer_late(route: Route) -> None:
                answer = await route.fetch()
                await download.wait_for()
                await route.fulfill(response=answer)

            await page.route("**/exports/*", answer_late)
            await card(page, "Set 1").get_by_role("button", name="Make the picture").click()
            await expect(page.get_by_role("status").last).to_have_text("Picture of Set 1: succeeded")


@one_engine
async def test_an_export_that_ends_while_the_list_is_read_is_told(place: Place, window: OpenWindow, owner: str) -> None:
    asked, ended = asyncio.Event(), asyncio.Event()

    async def answer_late(route: Route) -> None:
        asked.set()
        await ended.wait()
        await route.continue_()

    async with place.open() as app:
        await add_replay(app, owner, "Set 1", 400)
        other = await add_replay(app, owner, "Set 2", 400)
        async with window(await app.login_link(owner, base_url=place.url)) as shown:
            page = shown.page
            await page.get_by_text("Live", exact=True).wait_for()
            await card(page, "Set 1").wait_for()
            await page.route("**/api/replays?*", answer_late)
            await service.create_export(app, owner, other, "REPLAY_THUMBNAIL")  # the page reads its list for it
            await asyncio.wait_for(asked.wait(), 60)
            await card(page, "Set 1").get_by_role("button", name="Make the picture").click()
            said = page.get_by_role("status").last
            await expect(said).to_have_text("Picture of Set 1 was asked for")
            for job in await app.jobs(owner=owner):
                await job.wait(timeout=60)
            ended.set()
            await expect(said).to_have_text("Picture of Set 1: succeeded")
