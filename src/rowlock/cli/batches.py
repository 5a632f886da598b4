"""`rowlock batches`: jobs that belong together."""

from __future__ import annotations

from typing import Annotated

import typer

from rowlock.cli.database import ask
from rowlock.cli.loop import run_async
from rowlock.cli.options import AppOption, ConfigOption, DatabaseOption, JsonOption
from rowlock.cli.output import printable, record, show, show_json, up_to, words
from rowlock.cli.target import Target
from rowlock.core.errors import BatchNotFound, InvalidArguments

verbs = typer.Typer(help="Look at batches, cancel them.", no_args_is_help=True, rich_markup_mode=None)

COLUMNS = ("id", "name", "state", "total", "processed", "failed", "owner", "created_at", "finished_at")
STATES = ("queued", "running", "succeeded", "failed", "cancelled")
LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"
BatchId = Annotated[str, typer.Argument(metavar="ID", help="The batch's id")]


@verbs.command("list")
def list_batches(
    state: Annotated[str | None, typer.Option("--state", metavar="STATE", help=f"One of {', '.join(STATES)}")] = None,
    owner: Annotated[str | None, typer.Option("--owner", help="Only this owner")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="At most so many")] = 50,
    app: AppOption = None,
    config: ConfigOption = None,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """List batches, newest first."""
    from rowlock.store import batches

    if state is not None and state not in STATES:
        raise InvalidArguments(f"--state {state!r}: expected one of {', '.join(STATES)}")
    found = ask(Target(app, config, database).open(), batches.newest(limit + 1, LAST_ID, owner, state))
    show(up_to(limit, found), COLUMNS, as_json=as_json, empty="no batches")


@verbs.command("show")
def show_batch(
    batch_id: BatchId,
    app: AppOption = None,
    config: ConfigOption = None,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a batch: its counters, its times, what went wrong last and what it waits for."""
    from rowlock.store import batches
    from rowlock.store.explain import explain

    opened = Target(app, config, database).open()
    found = ask(opened, batches.get(batch_id))
    if found is None:
        raise BatchNotFound(batch_id)
    if as_json:
        show_json(record(found))
        return
    for name, value in record(found).items():
        print(f"{name:12} {words(value)}")
    why = ask(opened, explain(batch_id))
    if why is not None:
        print(printable(why.text))


@verbs.command("cancel")
def cancel_batch(
    batch_id: BatchId,
    app: AppOption = None,
    config: ConfigOption = None,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Cancel what is left of a batch; running jobs are asked to stop."""
    opened = Target(app, config, database).open()

    async def work() -> dict[str, object]:
        async with opened:
            batch = await opened.find_batch(batch_id)
            await batch.cancel()
            return record((await batch.refresh()).record)

    cancelled = run_async(work())
    if as_json:
        show_json(cancelled)
    else:
        print(printable(f"{cancelled['name']} is {cancelled['state']}: {cancelled['processed']}/{cancelled['total']}"))
