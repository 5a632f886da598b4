"""`rowlock deadletters`: messages from workers behind Redis that the bridge refused."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from rowlock.cli.kit.failures import NotFound
from rowlock.cli.kit.options import LimitOption, Verbs
from rowlock.cli.kit.output import record
from rowlock.cli.kit.target import DataTarget, actor
from rowlock.core.errors import InvalidArguments

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.bridge.dead_letters import Letter
    from rowlock.bridge.streams import Streams
    from rowlock.store.audit import Actor

T = TypeVar("T")

verbs = Verbs(help="Look at messages from behind Redis that were refused.")
COLUMNS = ("id", "at", "reason", "stream", "job_id", "type", "size", "text")
Entry = Annotated[str, typer.Argument(metavar="ID", help="The dead letter's id, from rowlock deadletters list")]


@verbs.verb("list")
def list_letters(target: DataTarget, limit: LimitOption = 100) -> None:
    """List dead letters, newest first. Each one's stream, its job if it names one, and why it was refused."""
    from rowlock.bridge import dead_letters

    found = target.look(_on_redis(lambda app, streams: dead_letters.letters(streams, limit + 1)))
    target.show(found, COLUMNS, "no dead letters", limit)


@verbs.verb("show")
def show_letter(target: DataTarget, entry: Entry) -> None:
    """Show a dead letter with the original message."""
    found = target.look(_on_letter(entry))
    lines = [f"{name:<8} {getattr(found, name)}" for name in COLUMNS]
    lines += [f"  {field!s:.60}: {value!r}" for field, value in found.message.items()]
    target.say(record(found), *lines)


@verbs.verb("republish")
def republish_letter(target: DataTarget, entry: Entry) -> None:
    """Publish the job of a dead letter again. A new attempt with the old jobId; drops the letter. Needs --app."""
    from rowlock.bridge import dead_letters

    job_id = target.run(_on_letter(entry, dead_letters.republish)).job_id
    target.say({"republished": job_id}, f"job {job_id} will be published again")


@verbs.verb("drop")
def drop_letter(target: DataTarget, entry: Entry) -> None:
    """Delete a dead letter. Its job is not changed."""
    from rowlock.bridge import dead_letters

    target.run(_on_letter(entry, dead_letters.drop))
    target.say({"dropped": entry}, f"dropped {entry}")


def _on_redis(work: Callable[[Rowlock, Streams], Awaitable[T]]) -> Callable[[Rowlock], Awaitable[T]]:
    """Open the Redis connection of the app around the work."""

    async def opened(app: Rowlock) -> T:
        from rowlock.bridge.streams import opened_streams

        async with opened_streams(app.settings.redis) as streams:
            return await work(app, streams)

    return opened


def _on_letter(
    entry: str, change: Callable[[Rowlock, Streams, Letter, Actor], Awaitable[None]] | None = None
) -> Callable[[Rowlock], Awaitable[Letter]]:
    """Find a dead letter, change it if asked to, and return it as it was found."""
    if not re.fullmatch(r"\d{1,15}-\d{1,15}", entry):
        raise InvalidArguments(f"{entry!r} is not the id of a dead letter; see: rowlock deadletters list")

    async def work(app: Rowlock, streams: Streams) -> Letter:
        from rowlock.bridge import dead_letters

        found = await dead_letters.letter(streams, entry)
        if found is None:
            raise NotFound(f"no dead letter has the id {entry}; see rowlock deadletters list")
        if change is not None:
            await change(app, streams, found, actor())
        return found

    return _on_redis(work)
