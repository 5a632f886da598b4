"""`rowlock batches`: list, show and cancel batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rowlock.cli.kit.options import LimitOption, Verbs
from rowlock.cli.kit.output import record, words
from rowlock.cli.kit.target import DataTarget, actor
from rowlock.core.errors import BatchNotFound, InvalidArguments

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.store.batches import BatchRow
    from rowlock.store.read.explain import Explanation

verbs = Verbs(name="batches", help="List, show and cancel batches.")

COLUMNS = ("id", "name", "state", "total", "processed", "failed", "owner", "created_at", "finished_at")
STATES = ("queued", "running", "succeeded", "failed", "cancelled")
BatchId = Annotated[str, typer.Argument(metavar="ID", help="The batch's id")]


@verbs.verb("list")
def list_batches(
    target: DataTarget,
    state: Annotated[
        str | None, typer.Option(metavar="STATE", help=f"Only batches in this state: {', '.join(STATES)}")
    ] = None,
    owner: Annotated[str | None, typer.Option(help="Only batches of this owner")] = None,
    limit: LimitOption = 50,
) -> None:
    """List batches, newest first."""
    from rowlock.store import batches
    from rowlock.store.read.filter import LAST_ID

    if state is not None and state not in STATES:
        raise InvalidArguments(f"--state {state!r}: expected one of {', '.join(STATES)}")
    found = target.ask(batches.newest(limit + 1, LAST_ID, owner, state))
    target.show(found, COLUMNS, "no batches", limit)


@verbs.verb("show")
def show_batch(target: DataTarget, batch_id: BatchId) -> None:
    """Show one batch. Its counters, times and last error, and what it waits for."""
    from rowlock.store import batches
    from rowlock.store.read.explain import explain

    async def read(app: Rowlock) -> tuple[BatchRow | None, Explanation | None]:
        store = await app.store()
        return await store.run(batches.get(batch_id)), await store.run(explain(batch_id))

    found, why = target.look(read)
    if found is None:
        raise BatchNotFound(batch_id)
    lines = [f"{name:12} {words(value)}" for name, value in record(found).items()]
    target.report(record(found), *lines, *([] if why is None else [why.text]))


@verbs.verb("cancel")
def cancel_batch(target: DataTarget, batch_id: BatchId) -> None:
    """Cancel the unfinished jobs of a batch. Waiting jobs end at once, running ones are asked to stop."""
    from rowlock.client.handles.batch import cancel_audited

    async def cancel(app: Rowlock) -> BatchRow:
        return await cancel_audited(await app.find_batch(batch_id), actor())

    batch = target.run(cancel)
    target.report(record(batch), f"{batch.name} is {batch.state}: {batch.processed}/{batch.total}")
