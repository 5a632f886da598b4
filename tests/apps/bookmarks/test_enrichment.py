"""Enrichment on both engines: tries, limits, refusals, what is kept of a page, and what is said of a failure."""

import asyncio
import logging

import pytest

from apps.bookmarks.conftest import Make, Place
from apps.bookmarks.files import bookmarks_file
from apps.engines import ONE_ENGINE
from rowlock import FakeClock, JobHandle
from rowlock_apps.bookmarks import app as real_app
from rowlock_apps.bookmarks.shared import ENRICH
from rowlock_apps.bookmarks.small_web import Behaviour, Send, answer, page, robots

CANARY = "c4n4ry"


async def jobs(it: Place) -> list[JobHandle[str]]:
    return await it.app.jobs(task=ENRICH)


async def test_the_configs_numbers_are_the_documents() -> None:
    """S0.15, S0.21, S0.22, S0.25, S0.26: N, k, the lease, the attempts and the wait."""
    worker = real_app.settings.worker
    assert (worker.pool_size, worker.claim_batch_size, worker.lease_seconds) == (10, 10, 600)
    assert real_app.settings.sources == {"domain": {"concurrency": 2}}
    options = real_app.get_task(ENRICH).options
    assert options.max_attempts == 2
    assert options.backoff is not None
    assert (options.backoff.kind, options.backoff.base) == ("fixed", 300)


async def test_a_failure_waits_five_minutes_and_a_second_one_is_dead(place: Make) -> None:
    """S0.12, S0.25, S0.26: queued, running, failed, running, dead."""
    clock = FakeClock()
    it = await place({"a.example/": answer(status="500 Oh")}, clock=clock)
    await it.bring(bookmarks_file("http://a.example/"))

    @it.app.task
    async def just_due() -> None: ...

    async with it.app.worker(poll_interval_seconds=0.05):
        [job] = await jobs(it)
        await it.until(lambda: _is(job, "retryable"))
        assert (job.attempt, job.error_code) == (1, "HTTP_500")
        assert 300 <= (job.run_after - clock.now()).total_seconds() <= 360
        await just_due.using(queue=job.queue, delay=298).enqueue()
        clock.move(299)
        await it.until(lambda: _all_done(it, just_due.name))  # what is due has been found: it must not start early
        assert (await job.refresh()).state == "retryable"
        clock.move(62)
        await it.until(lambda: _is(job, "dead"))
    assert (job.attempt, job.error_code) == (2, "HTTP_500")
    assert it.web.asked["a.example/"] == 2


async def _is(job: JobHandle[str], state: str) -> bool:
    return (await job.refresh()).state == state


async def _all_done(it: Place, task: str) -> bool:
    return {job.state for job in await it.app.jobs(task=task)} == {"succeeded"}


PERMANENT = {
    "HTTP_403": answer(status="403 Forbidden"),
    "HTTP_451": answer(status="451 Unavailable"),
    "HTTP_404": answer(status="404 Not Found"),
    "HTTP_410": answer(status="410 Gone"),
    "HTTP_401": answer(status="401 Unauthorized"),
    "CAPTCHA": page("Just a moment..."),
}
REFUSALS = {"HTTP_403", "HTTP_451", "CAPTCHA", "ROBOTS"}


async def test_refusals_are_dead_at_once_and_make_block_candidates(place: Make) -> None:
    """S0.27: 403, robots and captcha; what is only gone is dead too, but its domain has refused nothing."""
    hosts = {code: f"{code.lower().replace('_', '-')}.example" for code in [*PERMANENT, "ROBOTS"]}
    pages = {f"{hosts[code]}/": behaviour for code, behaviour in PERMANENT.items()}
    pages |= {f"{hosts['ROBOTS']}/robots.txt": robots("User-agent: *\nDisallow: /")}
    it = await place(pages)
    [one] = await it.work(await it.bring(bookmarks_file(*(f"http://{host}/" for host in hosts.values()))))
    assert one.failed_items == len(hosts)
    found = {job.source: (job.state, job.error_code, job.attempt) for job in await jobs(it)}
    assert found == {f"domain:{host}": ("dead", code, 1) for code, host in hosts.items()}
    candidates = {source.name: source.refusal_code for source in await it.app.sources.list(refused=1)}
    assert candidates == {f"domain:{hosts[code]}": code for code in REFUSALS}
    assert f"{hosts['ROBOTS']}/" not in it.web.asked


async def test_a_server_that_asks_for_time_is_left_alone_by_all(place: Make) -> None:
    """S0.26: Retry-After holds for the job and for its domain."""
    it = await place({"a.example": answer(status="429 Too Many", Retry_After="3600")})
    await it.bring(bookmarks_file("http://a.example/1"))
    async with it.app.worker(poll_interval_seconds=0.1):
        [job] = await jobs(it)
        await it.until(lambda: _is(job, "retryable"))
    assert job.error_code == "HTTP_429"
    assert (job.run_after - job.updated_at).total_seconds() >= 3599
    assert (await it.app.sources.get("domain:a.example")).paused_until is not None


class Crowd:
    """Servers that answer once `enough` requests are under way, or when they are let go one by one."""

    def __init__(self, enough: int) -> None:
        self._enough = enough
        self.running: set[str] = set()
        self.most, self.most_of_busy = 0, 0
        self.there, self.everybody = asyncio.Event(), asyncio.Event()
        self.one: dict[str, asyncio.Event] = {}

    def server(self, name: str) -> Behaviour:
        self.one[name] = asyncio.Event()

        async def send_it(send: Send) -> None:
            self.running.add(name)
            self.most = max(self.most, len(self.running))
            self.most_of_busy = max(self.most_of_busy, sum("busy.example" in one for one in self.running))
            if len(self.running) >= self._enough:
                self.there.set()
            go = [asyncio.ensure_future(event.wait()) for event in (self.one[name], self.everybody)]
            await asyncio.wait(go, return_when=asyncio.FIRST_COMPLETED)
            for waiting in go:
                waiting.cancel()
            self.running.discard(name)
            await page(name)(send)

        return send_it

    async def is_there(self) -> None:
        await asyncio.wait_for(self.there.wait(), 40)


@pytest.mark.parametrize(("settings", "n"), [({}, 10), ({"pool_size": 3, "claim_batch_size": 3}, 3)])
@ONE_ENGINE
async def test_a_worker_fetches_n_links_at_a_time_and_settles_each_by_itself(
    place: Make, settings: dict[str, int], n: int
) -> None:
    """S0.20, S0.21: N is ten unless somebody sets it; a link that is done does not wait for the others."""
    hosts = [f"h{number}.example" for number in range(n + 4)]
    crowd = Crowd(n)
    it = await place({f"{host}/": crowd.server(host) for host in hosts})
    import_id = await it.bring(bookmarks_file(*(f"http://{host}/" for host in hosts)))
    async with it.app.worker(poll_interval_seconds=0.05, **settings):
        await crowd.is_there()
        assert len(await it.app.jobs(task=ENRICH, state="running")) == n
        quick = next(iter(crowd.running))
        crowd.one[quick].set()
        await it.until(lambda: _one_is_done(it, f"domain:{quick}"))
        await it.until(lambda: _are_at_work(crowd, n))  # its slot is taken by the next, the others are still held
        assert {job.state for job in await jobs(it) if job.source != f"domain:{quick}"} == {"running", "queued"}
        crowd.everybody.set()
        one = await (await it.app.find_batch(import_id)).wait(20)
    assert (one.processed, one.failed) == (n + 4, 0)
    assert crowd.most == n


async def _one_is_done(it: Place, source: str) -> bool:
    return [job.source for job in await it.app.jobs(task=ENRICH, state="succeeded")] == [source]


async def _are_at_work(crowd: Crowd, number: int) -> bool:
    return len(crowd.running) == number


async def test_ten_at_a_time_and_two_of_one_domain_over_two_workers(place: Make) -> None:
    """S0.20, S0.21, S0.22, S0.24: N holds for each worker, k for all of them together."""
    hosts = [f"h{n}.example" for n in range(14)]
    paths = [f"{'www.' if n % 2 else ''}busy.example/{n}" for n in range(6)] + [f"{host}/" for host in hosts]
    crowd = Crowd(16)  # two of the busy domain, and one of each other
    it = await place({path: crowd.server(path) for path in paths})
    import_id = await it.bring(bookmarks_file(*(f"http://{path}" for path in paths)))
    async with it.app.worker(poll_interval_seconds=0.05), it.app.worker(poll_interval_seconds=0.05):
        await crowd.is_there()
        crowd.everybody.set()
        one = await (await it.app.find_batch(import_id)).wait(30)
    assert (one.processed, one.failed) == (20, 0)
    assert {it.web.asked[path] for path in paths} == {1}
    assert (crowd.most, crowd.most_of_busy) == (16, 2)


async def test_a_page_is_kept_as_far_as_its_head_goes_and_no_further(place: Make) -> None:
    """S0.31: title, description, Open Graph, canonical link and icon; no text, no picture of the page."""
    head = (
        '<meta name=description content="plain"><meta property="og:description" content="What it is about">'
        '<meta property="og:site_name" content="A site"><meta property="og:image" content="/big.png">'
        '<link rel="canonical" href="http://a.example/1?utm_source=x"><link rel="shortcut icon" href="i.ico">'
    )
    secret = b"<p>the whole story, which is nobody's business</p>" * 50
    html = b"<html><head><title>A  title\n</title>" + head.encode() + b"</head><body>" + secret + b"</body></html>"
    it = await place({"a.example/1": answer(html, Content_Type="text/html")})
    await it.work(await it.bring(bookmarks_file("http://a.example/1")))
    [row] = await it.rows(
        "SELECT final_url, content_type, title, description, site_name, image_url, canonical_url, icon_url "
        "FROM bookmarks_pages"
    )
    assert row == (
        *("http://a.example/1", "text/html", "A title", "What it is about", "A site"),
        *("http://a.example/big.png", "http://a.example/1", "http://a.example/i.ico"),
    )
    everything = [await it.rows(f"SELECT * FROM bookmarks_{name}") for name in ("pages", "links", "placements")]
    assert "nobody's business" not in str(everything) + str([job.result for job in await jobs(it)])


@ONE_ENGINE
async def test_a_file_that_is_no_page_is_known_by_its_type(place: Make) -> None:
    it = await place({"a.example/x.pdf": answer(b"%PDF" + bytes(1000), Content_Type="application/pdf")})
    [one] = await it.work(await it.bring(bookmarks_file("http://a.example/x.pdf")))
    assert one.status == "succeeded"
    assert await it.rows("SELECT content_type, title FROM bookmarks_pages") == [("application/pdf", None)]


@ONE_ENGINE
async def test_a_worker_logs_what_the_document_asks_for(place: Make, caplog: pytest.LogCaptureFixture) -> None:
    """S0.28: batch_claimed_count, job_duration_ms, success_count, fail_count and the domains that fail most, of links:
    not of the jobs that keep what became of them."""
    wait = 0.3
    slow = {f"good{n}.example/": page("G", wait=wait) for n in range(3)}
    gone = answer(status="410 Gone", wait=wait)
    it = await place(slow | {"bad.example": gone, "www.bad.example": gone})
    file = bookmarks_file(*(f"http://{path}" for path in slow), "http://bad.example/1", "http://www.bad.example/2")
    with caplog.at_level(logging.INFO, "rowlock.worker"):
        await it.work(await it.bring(file))
    assert len(await it.app.jobs(state="succeeded")) == 3 + 2 + 1  # links, follow-ups of the dead, the import's end
    summaries = [record for record in caplog.records if hasattr(record, "batch_claimed_count")]
    for name, value in (("batch_claimed_count", 5), ("success_count", 3), ("fail_count", 2)):
        assert sum(getattr(record, name) for record in summaries) == value, name
        assert all(f"{name}={getattr(record, name)}" in record.getMessage() for record in summaries)
    failures = [name for record in summaries for name in record.top_failures.split(", ") if name]
    assert sum(int(name.removeprefix("domain:bad.example=")) for name in failures) == 2
    milliseconds = [record.job_duration_ms * (record.success_count + record.fail_count) for record in summaries]
    assert sum(milliseconds) >= 5 * wait * 1000  # of the five links; quick follow-ups among them would lower the mean


@ONE_ENGINE
async def test_what_is_stored_and_logged_of_a_failure_has_nobodys_data_in_it(
    place: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """S0.29: URL queries and personal data are scrubbed from errors and logs, whoever raises them."""

    async def resolve(host: str) -> list[str]:
        if host == "odd.example":
            raise RuntimeError(f"cannot ask https://me:{CANARY}@dns.example/x?mail={CANARY} for {CANARY}@mail.example")
        return ["93.184.215.14"]

    pages = {
        "a.example": answer(status="500 Oh"),
        "b.example": answer(status="302 Found", Location=f"http://127.0.0.1/?t={CANARY}"),
        "c.example": answer(status="302 Found", Location=f"http://u:{CANARY}@c.example/"),
        "d.example": answer(status=f"403 {CANARY}", Set_Cookie=CANARY),
        "e.example": answer(b"x", Content_Type="text/html", Content_Encoding="br", X_Token=CANARY),
        "f.example": answer(status="302 Found", Location=f"http://f.example:99999/cb?code={CANARY}#{CANARY}"),
        "g.example": answer(status="302 Found", Location=f"ftp://u:{CANARY}@g.example/?q={CANARY}"),
        "h.example": answer(status="302 Found", Location=f"http://u:{CANARY}@exa℀mple.com/"),
        "i.example": answer(status="302 Found", Location=f"http://[{CANARY}]/"),
    }
    it = await place(pages)
    hosts = [*pages, "odd.example"]
    it.app.lifespans.clear()

    @it.app.lifespan
    async def resources():  # type: ignore[no-untyped-def]
        from rowlock_apps.bookmarks.web.fetch import open_fetcher

        async with open_fetcher(resolve, it.web.dial) as fetcher:
            yield {"app": it.app, "fetcher": fetcher}

    caplog.set_level(logging.DEBUG)
    await it.bring(bookmarks_file(*(f"http://{host}/p?token={CANARY}#{CANARY}" for host in hosts)))
    async with it.app.worker(poll_interval_seconds=0.1):
        await it.until(lambda: _all_tried(it))
        await asyncio.sleep(0)
    assert len(await jobs(it)) == len(hosts)
    said = [(job.error_code, job.error_message, job.args) for job in await jobs(it)]
    odd = next(job for job in await jobs(it) if job.source == "domain:odd.example")
    assert odd.error_message is not None
    assert odd.error_message.startswith("RuntimeError: cannot ask https://dns.example/x?… for …")
    stored = await it.rows("SELECT dead_code, dead_message FROM bookmarks_links")
    sources = [source.last_error for source in await it.app.sources.list()]
    assert CANARY not in str(said) + str(stored) + str(sources) + caplog.text


async def _all_tried(it: Place) -> bool:
    return all(job.attempt >= 1 and job.state != "running" for job in await jobs(it))


async def test_a_job_whose_link_is_gone_is_dead_with_a_reason(place: Make) -> None:
    it = await place({})
    await it.bring(bookmarks_file("http://a.example/"))
    await it.rows("DELETE FROM bookmarks_placements")
    await it.rows("DELETE FROM bookmarks_links")
    async with it.app.worker(poll_interval_seconds=0.1):
        [job] = await jobs(it)
        await it.until(lambda: _is(job, "dead"))
    assert job.error_code == "NO_SUCH_LINK"
