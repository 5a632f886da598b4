"""The options of tasks as their workers registered them, for enqueues without the task's code."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from rowlock.store.engines.operation import Call, Steps, operation


class StoredTask(NamedTuple):
    """A task, as a worker registered it."""

    name: str
    options: dict[str, Any]  # those that differ from the defaults, in the JSON form of core/options.py
    source_derived: bool  # a function derives the source from the arguments, which only the code can do


@operation(single=True, repeatable=True)
def declare(tasks: Sequence[StoredTask]) -> Steps[None]:
    """Write down the options of tasks. Where two workers have different ones, those of the last that started count."""
    rows = [(task.name, json.dumps(task.options), int(task.source_derived)) for task in tasks]
    yield Call("declare_tasks", declared=sorted(rows))


@operation(read=True)
def find(name: str) -> Steps[StoredTask | None]:
    """The task of that name; None when no worker has registered one."""
    for row in (yield Call("find_task", name=name)):
        return StoredTask(row.name, json.loads(row.options), bool(row.source_derived))
    return None


@operation(read=True)
def names() -> Steps[list[str]]:
    """The tasks that workers have registered."""
    return [row.name for row in (yield Call("task_names"))]
