"""How a child process finds a task: it imports the module that holds the task in the parent, and reads the global."""

from __future__ import annotations

import importlib
import operator
import sys
from contextlib import suppress
from typing import Any

from rowlock.client.client import Client
from rowlock.client.tasks import registry
from rowlock.client.tasks.arguments import RawArguments
from rowlock.client.tasks.task import Task
from rowlock.core.error_text import clean, kind, said

PLACES = 10


class NotImportable(Exception):
    """A child process cannot find the task."""


def places(task: Task[..., Any, Any]) -> list[tuple[str, str]]:
    """(module, attribute) pairs where a child may find the task or its app; empty if there are none."""
    is_class = isinstance(task.arguments, RawArguments)
    owner: Any = registry._registry[task.name][0] if is_class else task.function
    module, path = owner.__module__, owner.__qualname__
    own = [] if "<locals>" in path else [(module, path)]
    with suppress(KeyError, AttributeError):
        if own and operator.attrgetter(path)(sys.modules[module]) is task:
            return own
    found = [
        (name, attribute)
        for name, holder in list(sys.modules.items())
        for attribute, value in list(getattr(holder, "__dict__", {}).items())
        if (value is task or value is task.app) and name != "__mp_main__"
    ]
    return found and own + sorted(found, key=lambda place: place[0] != module)[:PLACES]


def find(name: str, where: list[list[str]]) -> Task[..., Any, Any]:
    """The task, from the first place that has it. The places come from the parent's code, never from a job's row."""
    problems = []
    for module, attribute in where:
        try:
            value = operator.attrgetter(attribute)(importlib.import_module(module))
        except BaseException as error:  # an import may raise anything, and this process must survive it
            problems.append(f"{module}.{attribute}: {kind(error)}: {said(error)}")
            continue
        if isinstance(value, Task) and value.name == name:
            return value
        if isinstance(value, Client):
            if (task := value.registry.all().get(name)) is not None:
                return task
            problems.append(f"{module}.{attribute} has no such task after its module was imported")
    raise NotImportable(clean("; ".join(problems) or "another task has this name in the child process", 1000))
