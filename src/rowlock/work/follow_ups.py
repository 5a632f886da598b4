"""What a job carries to enqueue its follow-up: whoever ends it may not have the code of either."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rowlock.core.errors import InvalidArguments
from rowlock.work.options import source_name
from rowlock.work.tasks import Task

if TYPE_CHECKING:
    from rowlock.work.tasks import Registry

MAX_BYTES = 16 * 1024  # stored with every job


def packed(registry: Registry, task: Task[..., Any, Any] | str, argument: str) -> str:
    """A follow-up that gets what there is to say as `argument`, and those that come after it, as JSON."""
    text = json.dumps(_options(registry, task, argument, ()))
    if len(text) > MAX_BYTES:
        raise InvalidArguments(
            f"the follow-ups from {_name(task)!r} on take {len(text)} bytes in each job; at most {MAX_BYTES} are stored"
        )
    return text


def _options(
    registry: Registry, task: Task[..., Any, Any] | str, argument: str, before: tuple[str, ...]
) -> dict[str, Any]:
    """The options of a `NewJob` as a direct enqueue would have them, without those that are not set."""
    known = task if isinstance(task, Task) else registry.all().get(task)
    if known is None:  # a task of another program
        return {"task": task}
    path = (*before, known.name)
    if known.name in before:  # each gets the arguments of the one before within its own: they would grow for ever
        raise InvalidArguments(f"follow-ups may not go round: {' → '.join(path)}; enqueue it in the handler instead")
    if known.arguments.names not in ((), (argument,)):
        raise InvalidArguments(f"task {known.name!r} is a follow-up: it must take one argument named `{argument}`")
    options = known.options
    if callable(options.source):
        raise InvalidArguments(
            f"task {known.name!r} is a follow-up: its source must be a name, because a function of its arguments"
            " cannot be stored with the job before it"
        )
    after = {key: getattr(options, key) for key in ("on_success", "on_dead")}
    given = {
        "task": known.name,
        "queue": options.queue,
        "max_attempts": options.max_attempts,
        "priority": options.priority,
        "bare": None if known.arguments.names else True,
        "backoff": options.backoff.to_json() if options.backoff else None,
        "timeout_seconds": options.timeout,
        "source": source_name(options.source),
        "on_lost": "dead" if options.on_lost == "dead" else None,
        "keep_seconds": options.keep,
        **{key: _options(registry, next_, "finished", path) for key, next_ in after.items() if next_ is not None},
    }
    return {key: value for key, value in given.items() if value is not None}


def _name(task: Task[..., Any, Any] | str) -> str:
    return task.name if isinstance(task, Task) else task
