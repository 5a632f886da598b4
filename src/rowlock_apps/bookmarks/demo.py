"""`rowlock demo bookmarks`: two people import one file, and a worker finds out what its links are.

The web that it fetches from is in this process: fine, slow, broken, forbidding and hostile servers.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from html import escape
from typing import NamedTuple

from rowlock import JobHandle, Rowlock, fixed

from ..stage import Stage, stage
from .app import make_app
from .imports import Import, import_file, read_import
from .shared import ENRICH
from .small_web import (
    PUBLIC,
    Behaviour,
    Pages,
    Send,
    SmallWeb,
    answer,
    bomb,
    endless,
    page,
    redirect,
    robots,
    small_web,
)
from .web.fetch import Limits

LONGEST_SECONDS = 45.0
LOOK_SECONDS = 0.2
K = 2  # concurrency of a domain, as in the config
NOT_PUBLIC = "10.0.0.5"
Jobs = list[JobHandle[str]]


async def play(database: str, live: bool) -> list[str]:
    """Run the demo on a database; returns its mistakes."""
    around = sites(await _earlier_imports(database))
    async with small_web(pages_of(around), addresses_of(around)) as web:
        limits = Limits(total=5.0, headers=3.0, idle=3.0)
        app = make_app(database, resolve=web.resolve, dial=web.dial, limits=limits, backoff=fixed(seconds=1))
        async with app:
            with stage(live) as on:
                imports = await _run(app, on, bookmarks_file(around))
            jobs = await _jobs(app, imports)
            refused = [source.name for source in await app.sources.list(refused=1)]
    _show(jobs, imports, refused, web)
    return [*_wrong_ends(around, jobs), *_wrong_counts(around, jobs, imports), *_wrong_calls(web)]


async def _earlier_imports(database: str) -> int:
    app = make_app(database)
    await app.migrate()
    async with app, app.transaction() as tx:
        return int((await tx.fetch("SELECT count(*) FROM bookmarks_imports"))[0][0])


async def _run(app: Rowlock, on: Stage, file: bytes) -> list[Import]:
    """Both imports, from their beginning to their end."""
    users = ("ana", "ben")
    ids = await asyncio.gather(*(import_file(app, user, file) for user in users))
    on.say(f"ana and ben have imported one file of {len(file):,} bytes at the same time")
    async with app.worker(poll_interval_seconds=0.5, shutdown_timeout_seconds=5) as worker:
        on.say(f"worker {worker.id} begins: at most 10 links at a time, at most {K} of each domain")
        deadline = time.monotonic() + LONGEST_SECONDS
        while True:
            imports = [await read_import(app, *one) for one in zip(users, ids, strict=True)]
            _draw(on, imports, await _jobs(app, imports))
            if all(one.over for one in imports) or time.monotonic() > deadline:
                return imports
            await asyncio.sleep(LOOK_SECONDS)


async def _jobs(app: Rowlock, imports: list[Import]) -> Jobs:
    ours = {one.id for one in imports}
    return [job for job in await app.jobs(task=ENRICH, limit=200) if job.batch_id in ours]


def _draw(on: Stage, imports: list[Import], jobs: Jobs) -> None:
    on.numbers("links", Counter(str(job.state) for job in jobs))
    on.numbers("domains at work", Counter(_domain(job) for job in jobs if job.state == "running"))
    for one in imports:
        on.bar(f"import of {one.user_id}", one.processed_items, one.total_items)


def _show(jobs: Jobs, imports: list[Import], refused: list[str], web: SmallWeb) -> None:
    """What a reader of the terminal wants to know."""
    jobs = sorted(jobs, key=lambda job: str(job.source))
    print("\nWhat the links are:")
    for job in jobs:
        if job.state == "succeeded":
            print(f"  {_domain(job):22}{job.result}" + ("" if job.attempt == 1 else f"   (attempt {job.attempt})"))
    print("\nWhich are dead, and why:")
    for job in jobs:
        if job.state == "dead":
            print(f"  {_domain(job):22}{job.error_code}: {(job.error_message or '').splitlines()[0]}")
    print()
    for one in imports:
        print(
            f"import of {one.user_id}: {one.status}, {one.processed_items} of {one.total_items} bookmarks processed, "
            f"{one.failed_items} links dead"
        )
    print(f"{len(jobs)} links had one job each, though both users have them and some are in two folders:")
    print("the import that came first has made the job, and the other one has waited for it")
    print(f"most requests to one domain at the same time: {max(web.most.values())}, allowed {K}")
    print(f"connections: {len(web.dialled)}, to addresses that are not public: {_not_public(web)}")
    print(f"block candidates: {', '.join(name.removeprefix('domain:') for name in refused)}")


def _wrong_ends(around: list[Site], jobs: Jobs) -> list[str]:
    found = Counter((job.result, job.error_code if job.state == "dead" else None) for job in jobs)
    wanted = Counter((site.title, site.code) for site in around)
    missing = [f"no link ended with {title or code}" for (title, code) in wanted - found]
    return missing + [f"a link ended with {title or code}, unexpectedly" for (title, code) in found - wanted]


def _wrong_counts(around: list[Site], jobs: Jobs, imports: list[Import]) -> list[str]:
    dead = sum(site.code is not None for site in around)
    wrong = [f"the import of {one.user_id} is not over" for one in imports if not one.over]
    if any(one.processed_items != one.total_items for one in imports):
        wrong.append("an import has not processed all of its bookmarks")
    if any(one.failed_items != dead for one in imports):
        wrong.append(f"an import has not counted {dead} dead links")
    if len(jobs) != len(around):
        wrong.append(f"{len(jobs)} jobs for {len(around)} links")
    return wrong


def _wrong_calls(web: SmallWeb) -> list[str]:
    wrong = [f"{host} had {most} requests at the same time" for host, most in web.most.items() if most > K]
    return wrong + ([f"{_not_public(web)} connections to addresses that are not public"] if _not_public(web) else [])


def _not_public(web: SmallWeb) -> int:
    return sum(address != PUBLIC for address in web.dialled)


def _domain(job: JobHandle[str]) -> str:
    return str(job.source).removeprefix("domain:")


# --- the demo's web, and the file of bookmarks that leads there


class Site(NamedTuple):
    """A page of the demo, and how its link must end: with a title, or dead with an error code."""

    link: str
    behaviour: Behaviour | None  # None: it must never be requested
    title: str | None = None
    code: str | None = None


def sites(run: int) -> list[Site]:
    """The web. A database that has seen a demo before gets one with other names."""
    n = run or ""
    news = [Site(f"news{n}.example/{i}", page(f"News {i}", wait=0.4), f"News {i}") for i in range(1, 9)]
    return [
        *news,
        *(Site(f"slow{n}.example/{i}", page(f"Slow {i}", wait=1.2), f"Slow {i}") for i in range(1, 4)),
        Site(f"moved{n}.example/old", redirect(f"http://blog{n}.example/new"), "A post that moved"),
        Site(f"blog{n}.example/new", page("A post that moved"), "A post that moved"),
        Site(f"shaky{n}.example/", _fails_once(page("Back after a failure")), "Back after a failure"),
        Site(f"endless{n}.example/", endless(b"<title>Endless</title>" + b"<meta name=a content=b>" * 99), "Endless"),
        Site(f"broken{n}.example/", answer(status="500 Internal Server Error"), code="HTTP_500"),
        Site(f"gone{n}.example/", answer(status="410 Gone"), code="HTTP_410"),
        Site(f"members{n}.example/", answer(status="403 Forbidden"), code="HTTP_403"),
        Site(f"quiet{n}.example/private", page("never seen"), code="ROBOTS"),
        Site(f"wall{n}.example/", page("Just a moment..."), code="CAPTCHA"),
        Site(f"bomb{n}.example/", bomb(200_000), code="BOMB"),
        Site(f"trap{n}.example/", redirect("http://169.254.169.254/latest/meta-data/"), code="ADDRESS_REFUSED"),
        Site(f"inside{n}.example/", None, code="ADDRESS_REFUSED"),
        Site(f"news{n}.example:8080/", None, code="PORT_REFUSED"),
    ]


def _fails_once(then: Behaviour) -> Behaviour:
    seen: list[bool] = []

    async def send_it(send: Send) -> None:
        first = not seen
        seen.append(True)
        await (answer(status="503 Service Unavailable") if first else then)(send)

    return send_it


def bookmarks_file(web: list[Site]) -> bytes:
    """What Ana exported: every link, some of them in a second folder and another spelling, and a bookmarklet."""
    rows = [f'<DT><A HREF="http://{escape(site.link)}">my {escape(site.link)}</A>' for site in web]
    again = [f'<DT><A HREF="HTTP://{escape(site.link)}?utm_source=mail#top">again</A>' for site in web[:4]]
    return "\n".join(
        [
            "<!DOCTYPE NETSCAPE-Bookmark-file-1>",
            "<TITLE>Bookmarks</TITLE><H1>Bookmarks</H1><DL><p>",
            *("<DT><H3>To read</H3><DL><p>", *rows, "</DL><p>"),
            *("<DT><H3>Later</H3><DL><p>", *again, '<DT><A HREF="javascript:alert(1)">A bookmarklet</A>', "</DL><p>"),
            "</DL><p>",
        ]
    ).encode()


def pages_of(web: list[Site]) -> Pages:
    """What the servers answer."""
    quiet = next(site.link.partition("/")[0] for site in web if site.code == "ROBOTS")
    pages = {site.link: site.behaviour for site in web if site.behaviour is not None}
    return pages | {f"{quiet}/robots.txt": robots("User-agent: *\nDisallow: /private")}


def addresses_of(web: list[Site]) -> dict[str, list[str]]:
    """Names whose address is inside of our own network."""
    return {site.link.partition("/")[0]: [NOT_PUBLIC] for site in web if site.link.startswith("inside")}
