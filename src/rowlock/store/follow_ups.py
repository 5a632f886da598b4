"""Follow-up jobs (`on_success`, `on_dead`; `on_end` of a batch): written in the transaction that writes the end.

The row of the first job carries the options of the follow-up, because a sweeper or an operator's command may write its
end, and neither has imported the task. A program that names a task of another program does not know its options: that
follow-up has none in the row, and gets those that the task's worker has stored.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from rowlock.core.job import Claimed, Finished, NewJob
from rowlock.core.options import from_json
from rowlock.core.policy import Transition
from rowlock.core.states import State
from rowlock.store.engines.operation import Call, Steps
from rowlock.store.ids import new_id

log = logging.getLogger("rowlock.store")


Stored = dict[str, str]  # the options that workers have stored, by task, as far as they were asked for
New = tuple[str, str, NewJob]  # id, arguments, options


def follow_ups(job: Claimed, transition: Transition, known: Stored) -> Steps[list[New]]:
    """The jobs to be written together with this transition. `known` is filled, so that a batch asks once for a task."""
    stored = {State.SUCCEEDED: job.on_success, State.DEAD: job.on_dead}.get(transition.state)
    if stored is None:
        return []
    try:
        options = yield from _options(stored, known)
        return [_follow_up(options, job.owner, {"finished": _finished(job, transition)}, job.id, job.traceparent)]
    except Exception as error:
        # Another program wrote the row. The job must end nevertheless.
        log.error("job %s has a follow-up that cannot be understood, and gets none: %r", job.id, error)
        return []


def on_end(
    stored: str, batch_id: str, owner: str | None, args: dict[str, Any], parent_id: str | None
) -> Steps[list[New]]:
    """The job to be written at the end of a batch, which the job `parent_id` made."""
    try:
        return [_follow_up((yield from _options(stored, {})), owner, args, parent_id)]
    except Exception as error:
        log.error("batch %s has an on_end that cannot be understood, and gets none: %r", batch_id, error)
        return []


def _options(stored: str, known: Stored) -> Steps[dict[str, Any]]:
    """A follow-up as it is stored, with the options of its task."""
    found: dict[str, Any] = json.loads(stored)
    if found.keys() - {"task", "bare"}:
        return found
    if (task := found["task"]) not in known:
        rows = yield Call("find_task", name=task)
        known[task] = rows[0].options if rows else "{}"
    return {**json.loads(known[task]), **found}


def _finished(job: Claimed, transition: Transition) -> Finished:
    return {
        "job_id": job.id,
        "task": job.task,
        "owner": job.owner,
        "state": str(transition.state),
        "attempt": job.attempt,
        "args": json.loads(job.args),
        "result": json.loads(transition.result) if transition.result is not None else None,
        "error_code": transition.error_code,
        "error_message": transition.error_message,
    }


def _follow_up(
    found: dict[str, Any],
    owner: str | None,
    args: dict[str, Any],
    parent_id: str | None,
    traceparent: str | None = None,
) -> New:
    """The follow-up job; it may have follow-ups itself. It is a child of the job that it follows, and belongs to its
    trace."""
    task = found.pop("task")
    if found.pop("bare", False):  # the task takes no argument
        args = {}
    given = {"owner": owner, "traceparent": traceparent} | from_json(found) | {"parent_id": parent_id}
    return new_id(), json.dumps(args), NewJob(task, **given)
