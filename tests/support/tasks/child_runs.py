"""One attempt in a child process, without a worker around it."""

import json
from typing import Any

from rowlock.core.outcome import AttemptEnd, Failed
from rowlock.worker.processes.children import Children
from support.tasks.processes import app, claimed


async def run(children: Children, task: str, report: Any = None, **args: Any) -> AttemptEnd | None:
    """How an attempt of the task ends."""
    running = claimed(task, json.dumps(args))
    return await children.run(running, app.get_task(task), report or (lambda *_: None))


def failed(end: AttemptEnd | None, code: str) -> Failed:
    """The failure that an attempt ended with; its code is checked."""
    assert isinstance(end, Failed)
    assert end.code == code
    return end
