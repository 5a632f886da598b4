"""`rowlock batches`: list, show and cancel batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rowlock.cli.acting import audited
from rowlock.cli.options import LimitOption, grouped_options
from rowlock.cli.output import printable, record, show, show_json, up_to, words
from rowlock.cli.target import DataTarget
from rowlock.core.errors import BatchNotFound, InvalidArguments

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.store.batches import BatchRow
    from rowlock.store.explain import Explanation

verbs = typer.Typer(help="Look at batches, cancel them.", no_args_is_help=True, rich_markup_mode=None)

COLUMNS = ("id", "name", "state", "total", "processed", "failed", "owner", "created_at", "finished_at")
STATES = ("queued", "running", "succeeded", "failed", "cancelled")
LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"
BatchId = Annotated[str, typer.Argument(metavar="ID", help="The batch's id")]


@verbs.command("list")
@grouped_options
def list_batches(
    target: DataTarget,
    state: Annotated[
        str | None, typer.Option("--state", metavar="STATE", help=f"Only batches in this state: {', '.join(STATES)}")
    ] = None,
    owner: Annotated[str | None, typer.Option("--owner", help="Only batches of this owner")] = None,
    limit: LimitOption = 50,
) -> None:
    """List batches, newest first."""
    from rowlock.store import batches

    if state is not None and state not in STATES:
        raise InvalidArguments(f"--state {state!r}: expected one of {', '.join(STATES)}")
    found = target.ask(batches.newest(limit + 1, LAST_ID, owner, state))
    show(up_to(limit, found), COLUMNS, as_json=target.as_json, empty="no batches")


@verbs.command("show")
@grouped_options
def show_batch(
    target: DataTarget,
    batch_id: BatchId,
) -> None:
    """Show a batch. Its counters, its times, its last error and what it waits for."""
    from rowlock.store import batches
    from rowlock.store.explain import explain

    async def read(app: Rowlock) -> tuple[BatchRow | None, Explanation | None]:
        store = await app.store()
        return await store.run(batches.get(batch_id)), await store.run(explain(batch_id))

    found, why = target.run(read)
    if found is None:
        raise BatchNotFound(batch_id)
    if target.as_json:
        show_json(record(found))
        return
    for name, value in record(found).items():
        print(f"{name:12} {words(value)}")
    if why is not None:
        print(printable(why.text))


@verbs.command("cancel")
@grouped_options
def cancel_batch(
    target: DataTarget,
    batch_id: BatchId,
) -> None:
    """Cancel the unfinished jobs of a batch. Waiting ones end at once, running ones are asked to stop."""

    async def cancel(app: Rowlock) -> dict[str, object]:
        batch = await app.find_batch(batch_id)
        await audited(app, batch.cancel(), "batches.cancel", batch.id, name=batch.name)
        return record((await batch.refresh()).record)

    cancelled = target.run(cancel)
    if target.as_json:
        show_json(cancelled)
    else:
        print(printable(f"{cancelled['name']} is {cancelled['state']}: {cancelled['processed']}/{cancelled['total']}"))
