"""`rowlock deadletters`: messages from workers behind Redis that the bridge refused."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from rowlock.cli.kit.failures import NotFound
from rowlock.cli.kit.options import LimitOption, Verbs
from rowlock.cli.kit.output import record
from rowlock.cli.kit.target import DataTarget, actor
from rowlock.core.errors import InvalidArguments

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.bridge.dead_letters import Letter
    from rowlock.store.audit import Actor

verbs = Verbs(name="deadletters", help="Handle messages from workers behind Redis that were refused.")
COLUMNS = ("id", "at", "reason", "stream", "job_id", "type", "size", "text")
Entry = Annotated[str, typer.Argument(metavar="ID", help="The dead letter's id, from rowlock deadletters list")]


@verbs.verb("list")
def list_letters(target: DataTarget, limit: LimitOption = 100) -> None:
    """List dead letters, newest first. Shows each one's stream, its job if known, and why it was refused."""
    from rowlock.bridge import dead_letters

    found = target.look(lambda app: dead_letters.letters(app, limit + 1))
    target.show(found, COLUMNS, "no dead letters", limit)


@verbs.verb("show")
def show_letter(target: DataTarget, entry: Entry) -> None:
    """Show a dead letter with the original message."""
    found = target.look(lambda app: _letter(app, entry))
    lines = [f"{name:<8} {getattr(found, name)}" for name in COLUMNS]
    lines += [f"  {field!s:.60}: {value!r}" for field, value in found.message.items()]
    target.report(record(found), *lines)


@verbs.verb("republish")
def republish_letter(target: DataTarget, entry: Entry) -> None:
    """Publish the job of a dead letter again. Makes a new attempt with the old jobId; drops the letter. Needs --app."""
    from rowlock.bridge.dead_letters import republish

    job_id = target.run(lambda app: _change(app, entry, republish)).job_id
    target.report({"republished": job_id}, f"job {job_id} will be published again")


@verbs.verb("drop")
def drop_letter(target: DataTarget, entry: Entry) -> None:
    """Delete a dead letter. Its job is not changed."""
    from rowlock.bridge.dead_letters import drop

    target.run(lambda app: _change(app, entry, drop))
    target.report({"dropped": entry}, f"dropped {entry}")


async def _letter(app: Rowlock, entry: str) -> Letter:
    from rowlock.bridge import dead_letters

    if not re.fullmatch(r"\d{1,15}-\d{1,15}", entry):
        raise InvalidArguments(f"{entry!r} is not the id of a dead letter; see: rowlock deadletters list")
    found = await dead_letters.letters(app, 1, newest=entry)
    if not found or found[0].id != entry:
        raise NotFound(f"no dead letter has the id {entry}; see rowlock deadletters list")
    return found[0]


async def _change(app: Rowlock, entry: str, change: Callable[[Rowlock, Letter, Actor], Awaitable[None]]) -> Letter:
    """Change a dead letter; returns it as it was found."""
    found = await _letter(app, entry)
    await change(app, found, actor())
    return found
