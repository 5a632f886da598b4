"""Follow-up jobs (`on_success`, `on_dead`; `on_end` of a batch): written in the transaction that writes the end.

The row of the first job carries all that is needed, because a sweeper or an operator's command may write its end, and
neither has imported the task.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from rowlock.core.job import Claimed, Finished, NewJob
from rowlock.core.options import from_json
from rowlock.core.policy import Transition
from rowlock.core.states import State
from rowlock.store.ids import new_id

log = logging.getLogger("rowlock.store")


def follow_ups(job: Claimed, transition: Transition) -> tuple[tuple[str, str, NewJob], ...]:
    """The jobs (id, arguments, options) to be written together with this transition."""
    try:
        return _follow_ups(job, transition)
    except Exception as error:
        # Another program wrote the row. The job must end nevertheless.
        log.error("job %s has a follow-up that cannot be understood, and gets none: %r", job.id, error)
        return ()


def _follow_ups(job: Claimed, transition: Transition) -> tuple[tuple[str, str, NewJob], ...]:
    stored = {State.SUCCEEDED: job.on_success, State.DEAD: job.on_dead}.get(transition.state)
    if stored is None:
        return ()
    finished: Finished = {
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
    return (follow_up(stored, job.owner, {"finished": finished}, job.id, job.traceparent),)


def follow_up(
    stored: str, owner: str | None, args: dict[str, Any], parent_id: str | None, traceparent: str | None = None
) -> tuple[str, str, NewJob]:
    """The follow-up job (id, arguments, options) that is stored as JSON; it may have follow-ups itself. It is a child
    of the job that it follows, and belongs to its trace."""
    found: dict[str, Any] = json.loads(stored)
    task = found.pop("task")
    if found.pop("bare", False):  # the task takes no argument
        args = {}
    given = {"owner": owner, "traceparent": traceparent} | from_json(found) | {"parent_id": parent_id}
    return new_id(), json.dumps(args), NewJob(task, **given)
