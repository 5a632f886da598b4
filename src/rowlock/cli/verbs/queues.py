"""`rowlock queues`: list, pause, resume and purge queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rowlock.cli.kit.failures import complain
from rowlock.cli.kit.options import Verbs
from rowlock.cli.kit.target import DataTarget, audited
from rowlock.cli.verbs.bulk import Caution, carry_out
from rowlock.core.errors import InvalidArguments

if TYPE_CHECKING:
    from rowlock.app import Rowlock

verbs = Verbs(name="queues", help="List, pause, resume and purge queues.")

COLUMNS = ("name", "queued", "retryable", "running", "waiting", "oldest_ready_seconds", "paused")
QueueName = Annotated[str, typer.Argument(metavar="NAME", help="The queue's name")]


@verbs.verb("list")
def list_queues(target: DataTarget) -> None:
    """List queues that have unfinished jobs, are served by a worker, or are paused."""
    from rowlock.store.read.counts import read_stats

    target.show(target.ask(read_stats()).queues, COLUMNS, "no queues")


@verbs.verb("pause")
def pause_queue(name: QueueName, target: DataTarget) -> None:
    """Stop starting jobs from a queue. Running jobs go on."""
    from rowlock.store import queues

    async def pause(app: Rowlock) -> bool:
        known = await _is_known(app, name)
        await audited(app, app.perform(queues.pause(_checked(name))), "queues.pause", name)
        return known

    known = target.run(pause)
    target.report({"name": name, "paused": True}, f"{name} is paused")
    if not known:
        complain(f"no job, task or worker uses a queue {name!r}: if the name is wrong, see rowlock queues list")


@verbs.verb("resume")
def resume_queue(name: QueueName, target: DataTarget) -> None:
    """Start jobs of a paused queue again."""
    from rowlock.store import queues

    resumed = queues.resume(_checked(name))
    was_paused = target.change(lambda app: app.perform(resumed), "queues.resume", name)
    target.report({"name": name, "paused": False}, f"{name} {'is resumed' if was_paused else 'was not paused'}")


@verbs.verb("purge")
def purge_queue(name: QueueName, caution: Caution, target: DataTarget) -> None:
    """Cancel all jobs that wait in a queue. Running jobs go on. To undo it: `jobs retry --state cancelled`."""
    from rowlock.store.jobs.bulk import WAITING
    from rowlock.store.read.filter import JobFilter

    carry_out(target, "cancel", JobFilter(queue=_checked(name), states=WAITING), caution)


async def _is_known(app: Rowlock, name: str) -> bool:
    """Whether a job, a worker or a task (in this app's code, or as a worker registered it) uses this queue."""
    from rowlock.core.options import JobOptions
    from rowlock.store import workers
    from rowlock.store.jobs import tasks
    from rowlock.store.read import search
    from rowlock.store.read.filter import JobFilter

    here = {task.options.queue for task in app.registry.all().values()}
    stored = {task.options.get("queue", JobOptions().queue) for task in await app.perform(tasks.listed())}
    served = {queue for worker in await app.perform(workers.workers()) for queue in worker.queues}
    if name in here | stored | served:
        return True
    jobs = await app.perform(search.newest_ids(JobFilter(queue=name), 1))
    return bool(jobs)


def _checked(name: str) -> str:
    if not name.strip() or not name.isprintable():
        raise InvalidArguments(f"queue name {name!r} is empty or has control characters")
    return name
