"""`rowlock stats`: how everything stands, in one look."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rowlock.cli import queues
from rowlock.cli.database import ask
from rowlock.cli.options import AppOption, ConfigOption, DatabaseOption, JsonOption
from rowlock.cli.output import record, show, show_json
from rowlock.cli.target import Target

if TYPE_CHECKING:
    from rowlock.store.reads import Stats


def stats(
    app: AppOption = None, config: ConfigOption = None, database: DatabaseOption = None, as_json: JsonOption = False
) -> None:
    """Show workers, queues and what finished in the last minutes."""
    from rowlock.store import reads

    found = ask(Target(app, config, database).open(), reads.stats())
    if as_json:
        show_json(record(found))
    else:
        _show(found, reads.LATELY_SECONDS)


def _show(found: Stats, lately: float) -> None:
    print(f"workers    {found.workers} alive, {found.slots} slots")
    about = "" if found.finished_exact else " (at least)"
    for state, finished in sorted(found.finished.items()):
        mean = f", {finished.mean_run_seconds:.2f} s each" if finished.mean_run_seconds is not None else ""
        print(f"{state:<10} {finished.count} in the last {lately / 60:.0f} minutes{about}{mean}")
    if not found.exact:
        print("There is so much that these numbers are lower bounds.")
    print()
    show(found.queues, queues.COLUMNS, as_json=False, empty="no queues")
