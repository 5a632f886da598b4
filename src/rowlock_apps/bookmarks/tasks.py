"""The tasks: fetch a link, and store how links and imports ended."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

from rowlock import Context, EndedBatch, Finished, Permanent, Retry, Rowlock, Snooze, SourceError

from . import shared, tables
from .imports import OVER, REOPENED
from .scrub import scrub
from .tables import Session
from .web.fetch import Fetcher

LOOK_AGAIN = timedelta(seconds=30)


async def enrich(ctx: Context, link_id: str, host: str) -> str | None:
    """Fetch a link's page, and keep what its head says; the job's result is the title."""
    app: Rowlock = ctx.resources["app"]
    fetcher: Fetcher = ctx.resources["fetcher"]
    async with app.transaction() as tx:
        url = await tables.url_of(tx, link_id)
        await _reopen_imports(ctx, app, tx, link_id)
    if url is None:
        raise Permanent(f"link {link_id} of {host} is not in bookmarks_links", code="NO_SUCH_LINK")
    page = await fetcher.page(url)
    async with ctx.transaction() as tx:
        await tables.store_page(tx, link_id, page)
        await shared.succeeded(tx, link_id, shared.now(app))
    return page.head.title


async def _reopen_imports(ctx: Context, app: Rowlock, tx: Session, link_id: str) -> None:
    """Imports that had ended before an operator retried this job end again. Their batches do not report that, because
    `on_end` runs once; nor do shared links."""
    reopened = set(await shared.reopen(tx, link_id, ctx.job_id))
    if ctx.batch_id is not None and await tables.has_ended(tx, ctx.batch_id):
        reopened.add(ctx.batch_id)
    for import_id in sorted(reopened):
        await app.get_task(REOPENED).using(key=import_id, unique="while_queued").enqueue(import_id=import_id)


async def link_dead(ctx: Context, finished: Finished) -> None:
    """Store why a link is dead, because its job is pruned later, and tell the imports that wait for it."""
    link_id, code = finished["args"]["link_id"], finished["error_code"]
    message = (finished["error_message"] or "").partition("\n")[0]
    async with ctx.transaction() as tx:
        await tables.mark_dead(tx, link_id, code, message)
        await shared.died(tx, link_id, finished["job_id"], f"{code}: {message}", shared.now(ctx.resources["app"]))


async def import_ended(ctx: Context, batch: EndedBatch) -> None:
    """Store how an import ended, because its batch is pruned later."""
    await import_reopened(ctx, batch["batch_id"])


async def import_reopened(ctx: Context, import_id: str) -> None:
    """The jobs of an import have ended, for the first time or again: wait until its shared links have ended, too."""
    app: Rowlock = ctx.resources["app"]
    await shared.settle(app, import_id)
    found = await tables.find_import(app, import_id)
    if found is None:
        return
    if found["status"] not in OVER:
        raise Snooze(LOOK_AGAIN, "some of its links have not ended")
    if found["status"] == "canceled":
        await shared.settle_for_others(app, import_id)
    async with ctx.transaction() as tx:
        if found["status"] == "canceled":
            await shared.stop_waiting(tx, import_id)
        await tables.end_import(tx, import_id)


class Unexpected(Exception):
    """An unexpected failure, as a text that may be stored."""


async def scrubbed(ctx: Context, call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Around every attempt: its error is stored and logged, so it must not contain personal data."""
    try:
        return await call()
    except (Permanent, Retry, Snooze, SourceError) as error:
        error.args = (scrub(str(error)),)  # our own messages have hosts and numbers only; anything else is removed here
        raise
    except Exception as error:
        told = scrub(str(error))
        if told == str(error):
            raise
        raise Unexpected(f"{type(error).__name__}: {told}") from None
