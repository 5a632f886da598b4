"""The stored form of a follow-up. A job carries it, because the process that ends the job may have the code of neither
task."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Protocol

from rowlock.core.errors import InvalidArguments
from rowlock.core.option_checks import task_name
from rowlock.core.options import FOLLOW_UPS, NOT_OF_FOLLOW_UPS, OPTIONS, JobOptions, TaskOptions, to_json

MAX_BYTES = 16 * 1024  # stored with every job


class FollowUp(Protocol):
    """What must be known of a task that is a follow-up."""

    name: str
    options: TaskOptions

    @property
    def argument_names(self) -> tuple[str, ...]: ...
    def chosen(self, what: str) -> dict[str, Any]: ...


Find = Callable[[str], FollowUp | None]


def packed(find: Find, task: FollowUp | str, argument: str) -> str:
    """A follow-up that gets what has ended as `argument`, and the follow-ups that it has itself, as JSON."""
    text = json.dumps(_packed(find, task, argument, ()))
    if len(text) > MAX_BYTES:
        name = task if isinstance(task, str) else task.name
        raise InvalidArguments(
            f"the follow-ups from {name!r} on take {len(text)} bytes in each job; at most {MAX_BYTES} are stored"
        )
    return text


def _packed(find: Find, task: FollowUp | str, argument: str, before: tuple[str, ...]) -> dict[str, Any]:
    known = find(task) if isinstance(task, str) else task
    task_name(task if isinstance(task, str) else task.name, "the task of a follow-up")
    if known is None:  # a task of another program
        return {"task": task}
    path = (*before, known.name)
    if known.name in before:  # each job's arguments contain those of the job before it: they would grow for ever
        raise InvalidArguments(
            f"follow-ups must not form a cycle: {' → '.join(path)}; enqueue it in the handler instead"
        )
    if known.argument_names not in ((), (argument,)):
        raise InvalidArguments(f"task {known.name!r} is a follow-up: it must take one argument named `{argument}`")
    values = known.chosen(f"task {known.name!r} is a follow-up")
    if callable(values["source"]):
        raise InvalidArguments(
            f"task {known.name!r} is a follow-up: its source must be a name, because a function of its arguments"
            " cannot be stored with the job before it"
        )
    for option in NOT_OF_FOLLOW_UPS:
        if values[option] != OPTIONS[option].default:
            raise InvalidArguments(f"task {known.name!r} is a follow-up, which cannot have {OPTIONS[option].given}=")
    after = {option: values.pop(option) for option in FOLLOW_UPS}
    return {
        "task": known.name,
        **({} if known.argument_names else {"bare": True}),
        **to_json(JobOptions(**values)),
        **{option: _packed(find, next_, "finished", path) for option, next_ in after.items() if next_ is not None},
    }
