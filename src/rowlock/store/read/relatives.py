"""The relatives of a job or a batch: the job that made it, and the jobs that it made."""

from __future__ import annotations

from typing import NamedTuple

from rowlock.store.engine.ids import valid_id
from rowlock.store.engine.operation import Call, Steps, operation
from rowlock.store.engine.records import record
from rowlock.store.read.search import Counted

SHOWN = 50
MOST_COUNTED = 1_000
MOST_NODES = 200  # a graph of more jobs would be unreadable


class Relative(NamedTuple):
    """A job as a link to it shows it."""

    id: str
    task: str | None  # task and state are None if the job was deleted
    state: str | None
    parent_id: str | None = None


class Family(NamedTuple):
    """The parent and the children of a job."""

    parent: Relative | None
    children: list[Relative]  # the first ones, oldest first
    number: Counted  # of children


@operation(read=True)
def of_job(job_id: str) -> Steps[Family]:
    known = valid_id(job_id)
    if known is None:
        return Family(None, [], Counted(0, True))
    rows = yield Call("relative", job_id=known)
    parent = (yield from link(rows[0].parent_id).start()) if rows and rows[0].parent_id is not None else None
    rows = yield Call("children_of", job_id=known, n=MOST_COUNTED)
    children = [record(Relative, row) for row in rows[:SHOWN]]
    return Family(parent, children, Counted(len(rows), len(rows) < MOST_COUNTED))


@operation(read=True)
def link(job_id: str) -> Steps[Relative]:
    """A link to a job, which may have been deleted."""
    rows = yield Call("relative", job_id=job_id)
    return record(Relative, rows[0]) if rows else Relative(job_id, None, None)


class Relatives(NamedTuple):
    """The jobs of a batch and their children, oldest first."""

    members: list[Relative]
    children: list[Relative]  # children of members that are not members themselves


@operation(read=True)
def of_batch(batch_id: str) -> Steps[Relatives | None]:
    """The jobs of a batch and their children. None if there are MOST_NODES or more."""
    known = valid_id(batch_id)
    rows = (yield Call("batch_members", batch_id=known, n=MOST_NODES)) if known else []
    members = {row.id: record(Relative, row) for row in rows}
    if not members or len(members) >= MOST_NODES:
        return None if members else Relatives([], [])
    made = yield Call("children_of_many", asked=[(job_id,) for job_id in sorted(members)], n=MOST_NODES)
    children = [record(Relative, row) for row in made if row.id not in members]
    if len(made) >= MOST_NODES or len(members) + len(children) >= MOST_NODES:
        return None
    return Relatives(sorted(members.values()), sorted(children))
