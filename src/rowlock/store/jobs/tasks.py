"""The options of tasks as their workers registered them, for programs that enqueue without the task's code."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from rowlock.store.engine.operation import Call, Row, Steps, operation
from rowlock.store.engine.records import record

MOST_LISTED = 1_000


class StoredTask(NamedTuple):
    """A task as a worker registered it."""

    name: str
    options: dict[str, Any]  # those that differ from the defaults, in the JSON form of core/options.py
    source_derived: bool  # a function of the task's code computes the source from the arguments
    arguments: dict[str, Any] | None = None  # JSON Schema of its arguments
    description: str | None = None
    updated_at: datetime | None = None


@operation(single=True, repeatable=True)
def declare(tasks: Sequence[StoredTask]) -> Steps[None]:
    """Store the options of tasks. If workers disagree, the one that started last wins."""
    rows = [
        (
            task.name,
            json.dumps(task.options),
            int(task.source_derived),
            None if task.arguments is None else json.dumps(task.arguments),
            task.description,
        )
        for task in sorted(tasks, key=lambda task: task.name)
    ]
    yield Call("declare_tasks", declared=rows)


@operation(read=True)
def find(name: str) -> Steps[StoredTask | None]:
    """The task of that name. None if no worker has registered it."""
    rows = yield Call("find_task", name=name)
    return _task(rows[0]) if rows else None


@operation(read=True)
def listed() -> Steps[list[StoredTask]]:
    return [_task(row) for row in (yield Call("list_tasks", n=MOST_LISTED))]


def _task(row: Row) -> StoredTask:
    arguments = None if row.arguments is None else json.loads(row.arguments)
    return record(StoredTask, row, options=json.loads(row.options), arguments=arguments)


@operation(read=True)
def names() -> Steps[list[str]]:
    return [row.name for row in (yield Call("task_names"))]
