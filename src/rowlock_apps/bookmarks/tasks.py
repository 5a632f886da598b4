"""What workers do: fetch a link, and keep what became of links and imports."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

from rowlock import Context, EndedBatch, Finished, Permanent, Retry, Rowlock, Snooze, SourceError

from . import tables
from .imports import REOPENED, fetch_for_others
from .scrub import scrub
from .web.fetch import Fetcher

LOOK_AGAIN = timedelta(seconds=30)


async def enrich(ctx: Context, link_id: str, host: str) -> str | None:
    """Fetch a link's page, and keep what its head says; the job's result is the title."""
    app: Rowlock = ctx.resources["app"]
    fetcher: Fetcher = ctx.resources["fetcher"]
    async with app.transaction() as tx:
        url = await tables.url_of(tx, link_id)
        if ctx.batch_id is not None and await tables.has_ended(tx, ctx.batch_id):  # an operator has retried this job
            again = app.get_task(REOPENED).using(key=ctx.batch_id, unique="while_queued")
            await again.enqueue(import_id=ctx.batch_id)
    if url is None:
        raise Permanent(f"link {link_id} of {host} is not in bookmarks_links", code="NO_SUCH_LINK")
    page = await fetcher.page(url)
    async with ctx.transaction() as tx:
        await tables.store_page(tx, link_id, page)
    return page.head.title


async def link_dead(ctx: Context, finished: Finished) -> None:
    """Keep why a link is dead; its job is forgotten after a while."""
    message = (finished["error_message"] or "").partition("\n")[0]
    async with ctx.transaction() as tx:
        await tables.mark_dead(tx, finished["args"]["link_id"], finished["error_code"], message)


async def import_ended(ctx: Context, batch: EndedBatch) -> None:
    """Keep what an import has come to; its batch is forgotten after a while."""
    await import_reopened(ctx, batch["batch_id"])


async def import_reopened(ctx: Context, import_id: str) -> None:
    """The same once more, when an operator has retried jobs of an import that was over: a batch tells its first end
    only."""
    app: Rowlock = ctx.resources["app"]
    batch = await app.find_batch(import_id)
    if not batch.record.over:
        raise Snooze(LOOK_AGAIN, "some of its jobs were retried")
    if batch.state == "cancelled":
        await fetch_for_others(app, import_id)
    async with ctx.transaction() as tx:
        await tables.end_import(tx, batch)


class Unexpected(Exception):
    """A failure that nobody has foreseen, in words that may be stored."""


async def scrubbed(ctx: Context, call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Around every attempt: what it raises is stored and logged, so it must not carry anybody's data."""
    try:
        return await call()
    except (Permanent, Retry, Snooze, SourceError) as error:
        error.args = (scrub(str(error)),)  # made by us, of hosts and numbers; should one have more, it ends here
        raise
    except Exception as error:
        told = scrub(str(error))
        if told == str(error):
            raise
        raise Unexpected(f"{type(error).__name__}: {told}") from None
