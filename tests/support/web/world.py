"""A system with something of everything in it, for tests of the dashboard: an app, a worker, and jobs in each state."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from rowlock import Context, Permanent, Retry, Rowlock, fixed
from rowlock.api.server import serving
from rowlock.core.config import load_settings

Task = Any  # each has arguments of its own
QUEUES = ["links", "films", "mail", "coins", "default", "<img src=x onerror=window.ran++>"]
LINKS = 12
PATIENCE = 60.0


@dataclass
class World:
    """The app, where its server is, and the jobs that tests look for."""

    app: Rowlock
    url: str
    jobs: dict[str, str]
    tasks: dict[str, Task]

    @property
    def engine(self) -> str:
        """`sqlite` or `postgresql`."""
        return self.app.settings.database.partition(":")[0]

    async def login(self, **options: Any) -> str:
        """A link that logs one browser in."""
        return await self.app.login_link(base_url=self.url, **options)

    async def hostile(self, texts: list[str]) -> list[str]:
        """Jobs that have a hostile text in each field that takes text; their ids."""
        jobs = []
        async with self.app.batch(texts[0][:100], owner=texts[1]) as batch:
            for number, text in enumerate(texts):
                task = self.tasks["hostile"].using(
                    owner=text, tags=[text], source=f"hostile:{number} {text}", batch=batch if number < 5 else None
                )
                jobs.append(task.enqueue(text=text, fails=number % 2 == 0))
            found = [job.id for job in await asyncio.gather(*jobs)]
        for job_id in found:
            async with asyncio.timeout(PATIENCE):
                while not (await self.app.job(job_id)).final:
                    await asyncio.sleep(0.02)
        return found


def add_tasks(app: Rowlock) -> dict[str, Task]:
    """One task for each way in which a job can go, by name."""

    @app.task(
        "links.enrich", queue="links", source=lambda url: f"domain:{url.split('/')[2]}", on_success="links.report"
    )
    async def enrich(ctx: Context, url: str, depth: int = 1) -> dict[str, Any]:
        """Fetch a page and note its title."""
        ctx.log.info("reading %s", url)
        await asyncio.sleep(0.02)
        return {"title": "a page", "depth": depth}

    @app.task("links.report", queue="links")
    async def report(finished: dict[str, Any]) -> None: ...

    @app.task("films.export", queue="films", timeout=600, keep_logs=True)
    async def export(ctx: Context, frames: int) -> None:
        """Draw a film; it runs until somebody cancels it."""
        ctx.log.info("drawing %d frames", frames)
        await ctx.progress(40, phase="drawing", message="frame 12")
        while not ctx.should_stop:
            await asyncio.sleep(0.05)

    @app.task("mail.send", queue="mail", max_attempts=2, backoff=fixed(seconds=0.1))
    async def send(to: str) -> None:
        raise Permanent("the mail server answered 550: no such mailbox", code="SMTP_550")

    @app.task("coins.fetch", queue="coins", max_attempts=5, backoff=fixed(hours=1))
    async def fetch(market: str) -> None:
        raise Retry(f"{market} hung up", after=3600, code="MARKET_GONE")  # an error without lines of this file

    @app.task("hostile", queue="<img src=x onerror=window.ran++>", keep_logs=True)
    async def hostile(ctx: Context, text: str, fails: bool) -> dict[str, str]:
        ctx.log.warning("%s", text)
        await ctx.progress(10, phase=text, message=text)
        if fails:
            raise Permanent(text, code="HOSTILE")
        return {text: text}

    @app.task("pages.render", queue="default", max_attempts=4, backoff=fixed(seconds=0.1))
    async def render(ctx: Context, page: int) -> dict[str, int]:
        """Succeed in the third attempt."""
        if ctx.attempt < 3:
            raise Retry(f"page {page} is locked", code="LOCKED")
        return {"page": page}

    @app.task("imports.end", queue="default")
    async def imported(batch: dict[str, Any]) -> None: ...

    @app.schedule("0 3 * * *", name="nightly", zone="Asia/Seoul")
    async def nightly() -> None: ...

    return {task.name: task for task in (enrich, export, send, fetch, hostile, render, imported)}


@asynccontextmanager
async def world(url: str, queues: list[str] = QUEUES, **settings: Any) -> AsyncIterator[World]:
    """The system, for as long as the block lasts."""
    flags = {"database": url, "api.port": 0, "worker.poll_interval_seconds": 0.2, **settings}
    app = Rowlock(settings=load_settings(env={}, flags=flags))
    tasks = add_tasks(app)
    await app.migrate()
    async with app, app.worker(queues=queues, pool_size=4, shutdown_timeout_seconds=0.5):
        jobs = await fill(app, tasks)
        async with app.dispatcher(), serving(app) as server:
            yield World(app, "http://{}:{}{}".format(*server.address, app.settings.api.base_path), jobs, tasks)


async def fill(app: Rowlock, task: dict[str, Task]) -> dict[str, str]:
    """Jobs in each state, when this returns."""
    rows = [{"url": f"https://a{number % 3}.example/{number}"} for number in range(LINKS)]
    async with app.batch("import 7", owner="ana", on_end=task["imports.end"]) as batch:
        links = await task["links.enrich"].using(batch=batch).enqueue_many(rows)
    made = {
        "dead": await task["mail.send"].enqueue(to="nobody@example.com"),
        "retryable": await task["coins.fetch"].enqueue(market="north"),
        "running": await task["films.export"].using(owner="ana", tags=["film"]).enqueue(frames=30),
        "queued": await task["links.enrich"].using(delay=3600).enqueue(url="https://later.example/1"),
        "cancelled": await task["mail.send"].using(delay=3600).enqueue(to="late@example.com"),
    }
    retried = await task["pages.render"].enqueue(page=7)
    await app.cancel(made["cancelled"].id)
    made["succeeded"] = links[0]
    for state, job in made.items():
        await until(app, job.id, state)
    for job in (*links, retried):
        await until(app, job.id, "succeeded")
    found = {state: job.id for state, job in made.items()}
    return found | {"retried": retried.id, "batch": batch.id}


async def until(app: Rowlock, job_id: str, state: str) -> None:
    """Wait until a job is in this state."""
    async with asyncio.timeout(PATIENCE):
        while (await app.job(job_id)).state != state:
            await asyncio.sleep(0.05)
