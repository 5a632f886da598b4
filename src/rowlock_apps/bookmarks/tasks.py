"""The tasks: fetch a link, and store how links and imports ended."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

from rowlock import Context, EndedBatch, Finished, Permanent, Retry, Rowlock, Snooze, SourceError

from . import shared, tables
from .imports import OVER, REOPENED
from .tables import Session
from .web.fetch import Fetcher

LOOK_AGAIN = timedelta(seconds=30)
_URL = re.compile(r"\b([a-z][a-z0-9+.\-]{0,20})://(\S+)", re.IGNORECASE)  # a secret may have quotes and brackets in it
_CLOSING = "\"'<>()[]{},.;:"
_NO_PORT = re.compile(r":(?!\d{1,5}$)[^\]]*$")
_MAIL = re.compile(r"[\w.+\-%]{1,64}@[\w\-]{1,63}(?:\.[\w\-]{1,63}){1,8}")
_LOOSE_QUERY = re.compile(r"\?(?!…)[^\s\"'<>]+")
_CREDENTIAL = re.compile(
    r"\b([\w\-]{0,40}(?:bearer|basic|token|password|passwd|secret|api[_-]?key|session|cookie))"
    r"(\s*[:=]\s*|\s+(?=\S{3}))[^\s\"',;]+",
    re.IGNORECASE,
)
HIDDEN = "…"


async def enrich(ctx: Context, link_id: str, host: str) -> str | None:
    """Fetch a link's page, and store its head; the job's result is the title."""
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
    """Store why a link is dead, because its job is pruned later, and count it in the imports that wait for it."""
    link_id, code = finished["args"]["link_id"], finished["error_code"]
    message = (finished["error_message"] or "").partition("\n")[0]
    async with ctx.transaction() as tx:
        await tables.mark_dead(tx, link_id, code, message)
        await shared.died(tx, link_id, finished["job_id"], f"{code}: {message}", shared.now(ctx.resources["app"]))


async def import_ended(ctx: Context, batch: EndedBatch) -> None:
    """Store how an import ended, because its batch is pruned later."""
    await import_reopened(ctx, batch["batch_id"])


async def import_reopened(ctx: Context, import_id: str) -> None:
    """The jobs of an import have ended, for the first time or again: wait until its shared links have ended."""
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


# --- errors without personal data


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
        text = scrub(str(error))
        if text == str(error):
            raise
        raise Unexpected(f"{type(error).__name__}: {text}") from None


def scrub(text: str) -> str:
    """The text without personal data. A URL keeps its scheme, host and path. Its query, its fragment and its user name
    may identify a person or give access; so may an e-mail address, and a token after `Bearer`."""
    text = _URL.sub(_bare, text)
    text = _MAIL.sub(HIDDEN, text)
    text = _LOOSE_QUERY.sub(f"?{HIDDEN}", text)
    return _CREDENTIAL.sub(rf"\1\2{HIDDEN}", text)


def _bare(found: re.Match[str]) -> str:
    url = found[2].rstrip(_CLOSING)
    rest = re.split(r"[?#]", url, maxsplit=1)
    authority, slash, path = rest[0].partition("/")
    host = _NO_PORT.sub(f":{HIDDEN}", authority.rpartition("@")[2])
    return f"{found[1]}://{host}{slash}{path}" + (f"?{HIDDEN}" if len(rest) > 1 else "") + found[2][len(url) :]
