"""What a function says about itself: whether it takes the context, where it can run, what it returns."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import NoneType
from typing import Any

from pydantic import TypeAdapter

from rowlock.client.context import Context
from rowlock.client.tasks.arguments import hints_of
from rowlock.core.errors import InvalidArguments
from rowlock.core.options import RunsIn


def takes_context(function: Callable[..., Any]) -> bool:
    """Whether the first parameter is the job's context."""
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters:
        return False
    annotation = parameters[0].annotation
    is_context = annotation is Context or (isinstance(annotation, str) and annotation.split(".")[-1] == "Context")
    return is_context or (parameters[0].name == "ctx" and annotation is inspect.Parameter.empty)


def place_to_run(name: str, function: Callable[..., Any], wanted: RunsIn | None) -> RunsIn:
    """Where the function of task `name` runs: where its options want it, else by its kind."""
    is_async = inspect.iscoroutinefunction(function)
    place: RunsIn = wanted or ("async" if is_async else "thread")
    if place == "async" and not is_async:
        raise InvalidArguments(f"task {name!r} is a plain function; use runs_in='thread' or 'process'")
    if place == "thread" and is_async:
        raise InvalidArguments(f"task {name!r} is async; use runs_in='async' or 'process'")
    return place


def result_type(function: Callable[..., Any]) -> TypeAdapter[Any] | None:
    """Converts a stored JSON result to the annotated return type; None if JSON values need no conversion."""
    annotation = hints_of(function).get("return", Any)
    if annotation in (Any, None, NoneType, dict, list, str, int, float, bool):
        return None
    try:
        return TypeAdapter(annotation)
    except Exception:  # not a type that pydantic knows: the JSON value is returned as it is
        return None
