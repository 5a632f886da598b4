"""`rowlock deadletters`: messages from workers behind Redis that the bridge refused."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from rowlock.cli.failures import NOT_FOUND, complain
from rowlock.cli.options import LimitOption, grouped_options
from rowlock.cli.output import record, show, show_json
from rowlock.cli.target import DataTarget
from rowlock.core.errors import InvalidArguments

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.bridge.letters import Letter
    from rowlock.bridge.streams import Streams

T = TypeVar("T")

verbs = typer.Typer(
    help="Look at messages from behind Redis that were refused.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
COLUMNS = ("id", "at", "reason", "stream", "job_id", "text")
Entry = Annotated[str, typer.Argument(metavar="ID", help="The dead letter's id, from rowlock deadletters list")]


def on_redis(target: DataTarget, work: Callable[[Rowlock, Streams], Awaitable[T]]) -> T:
    """Open the app and its Redis connection, call `work` with both, and close them."""

    async def opened(app: Rowlock) -> T:
        from rowlock.bridge.streams import opened_streams

        async with opened_streams(app.settings.redis) as streams:
            return await work(app, streams)

    return target.run(opened)


@verbs.command("list")
@grouped_options
def list_letters(target: DataTarget, limit: LimitOption = 100) -> None:
    """List dead letters, newest first. Each one's stream, its job if it names one, and why it was refused."""

    async def read(app: Rowlock, streams: Streams) -> list[Letter]:
        from rowlock.bridge.letters import letters

        return await letters(streams, limit)

    show(on_redis(target, read), COLUMNS, as_json=target.as_json, empty="no dead letters")


@verbs.command("show")
@grouped_options
def show_letter(target: DataTarget, entry: Entry) -> None:
    """Show a dead letter with the original message."""
    _checked(entry)

    async def read(app: Rowlock, streams: Streams) -> Letter | None:
        from rowlock.bridge.letters import letter

        return await letter(streams, entry)

    found = on_redis(target, read)
    if found is None:
        raise _missing(entry)
    if target.as_json:
        show_json(record(found))
        return
    for name in COLUMNS:
        print(f"{name:<8} {getattr(found, name)}")
    for field, value in found.message.items():
        print(f"  {field!s:.60}: {value!r}")


@verbs.command("republish")
@grouped_options
def republish_letter(target: DataTarget, entry: Entry) -> None:
    """Publish the job of a dead letter again. A new attempt with the old jobId; drops the letter. Needs --app."""
    _checked(entry)

    async def again(app: Rowlock, streams: Streams) -> str | None:
        from rowlock.bridge.letters import letter, republish

        found = await letter(streams, entry)
        if found is not None:
            await republish(app, streams, found)
        return None if found is None else found.job_id

    job_id = on_redis(target, again)
    if job_id is None:
        raise _missing(entry)
    if target.as_json:
        show_json({"republished": job_id})
    else:
        print(f"job {job_id} will be published again")


@verbs.command("drop")
@grouped_options
def drop_letter(target: DataTarget, entry: Entry) -> None:
    """Delete a dead letter. Its job is not changed."""
    _checked(entry)

    async def remove(app: Rowlock, streams: Streams) -> bool:
        from rowlock.bridge.letters import drop

        return await drop(streams, entry)

    if not on_redis(target, remove):
        raise _missing(entry)
    if target.as_json:
        show_json({"dropped": entry})
    else:
        print(f"dropped {entry}")


def _checked(entry: str) -> None:
    if not re.fullmatch(r"\d{1,15}-\d{1,15}", entry):
        raise InvalidArguments(f"{entry!r} is not the id of a dead letter; see: rowlock deadletters list")


def _missing(entry: str) -> typer.Exit:
    complain(f"no dead letter has the id {entry}; see rowlock deadletters list")
    return typer.Exit(NOT_FOUND)
