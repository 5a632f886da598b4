"""Follow-up jobs (`on_success`, `on_dead`; `on_end` of a batch): enqueued in the transaction that ends the first job.

The first job's row carries the options of its follow-up, because a sweeper or an operator's command may end the job
without having imported the task. A program that names another program's task doesn't know its options: it stores none
in the row, and the follow-up gets the options that the task's worker has stored.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from rowlock.core.job import Claimed, NewJob
from rowlock.core.options import of_follow_up
from rowlock.core.policy import Transition
from rowlock.core.states import State
from rowlock.store.engine.ids import new_id
from rowlock.store.engine.operation import Call, Steps

log = logging.getLogger("rowlock.store")


Stored = dict[str, str]  # the options that workers have stored, by task; only tasks that were looked up
New = tuple[str, str, NewJob]  # id, arguments, options


def follow_ups(job: Claimed, transition: Transition, known: Stored) -> Steps[list[New]]:
    """The jobs to write together with this transition. Fills `known`, so that a batch looks up each task only once."""
    stored = {State.SUCCEEDED: job.on_success, State.DEAD: job.on_dead}.get(transition.state)
    if stored is None:
        return []
    inherited = {"owner": job.owner, "traceparent": job.traceparent, "parent_id": job.id}
    found = yield from _with_task_options(stored, known)
    try:
        return [_follow_up(found, inherited, _finished(job, transition))]
    except Exception as error:
        log.error("job %s has a follow-up that cannot be read, so none is enqueued: %r", job.id, error)
        return []


def on_end(
    stored: str, batch_id: str, owner: str | None, args: dict[str, Any], parent_id: str | None
) -> Steps[list[New]]:
    """The job to write when a batch ends. `parent_id` is the job that made the batch."""
    found = yield from _with_task_options(stored, {})
    try:
        return [_follow_up(found, {"owner": owner, "parent_id": parent_id}, json.dumps(args))]
    except Exception as error:
        log.error("batch %s has an on_end that cannot be read, so no job is enqueued: %r", batch_id, error)
        return []


# Another program may have written the row, and the job or batch must end all the same, so a text that can't be read is
# only logged. But if a statement fails (the look-up below, or the insert), the whole settlement fails and is repeated:
# leaving out the follow-up would lose work.


def _with_task_options(stored: str, known: Stored) -> Steps[Any]:
    """Parse a stored follow-up, and add its task's options if it has none. None if it isn't JSON."""
    try:
        found = json.loads(stored)
    except (ValueError, RecursionError):
        return None
    task = found.get("task") if isinstance(found, dict) else None
    if not isinstance(task, str) or "\0" in task or found.keys() - {"task", "bare"}:
        return found
    if task not in known:
        rows = yield Call("find_task", name=task)
        known[task] = rows[0].options if rows else "{}"
    return {**json.loads(known[task]), **found}


def _finished(job: Claimed, transition: Transition) -> str:
    """The argument of a follow-up, a core.job.Finished, as JSON. The job's arguments and result are inserted as stored,
    because Python would change some numbers."""
    json.loads(job.args)  # raises for a text that no worker could read
    known = {
        "job_id": job.id,
        "task": job.task,
        "owner": job.owner,
        "state": str(transition.state),
        "attempt": job.attempt,
        "error_code": transition.error_code,
        "error_message": transition.error_message,
    }
    texts = {name: json.dumps(value) for name, value in known.items()}
    texts |= {"args": job.args, "result": "null" if transition.result is None else transition.result}
    return f'{{"finished": {{{", ".join(f"{json.dumps(name)}: {text}" for name, text in texts.items())}}}}}'


def _follow_up(found: Any, inherited: dict[str, Any], args: str) -> New:
    """The follow-up job, which may have follow-ups itself. It is a child of the job that it follows, in its trace."""
    given = of_follow_up(found)
    # `bare`: the task takes no argument.
    return new_id(), "{}" if found.get("bare") is True else args, NewJob(found["task"], **inherited | given)
