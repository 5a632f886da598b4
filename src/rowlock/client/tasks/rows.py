"""The rows of new jobs: their arguments as JSON, and a key and a source, which may be derived from the arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from rowlock.client.tasks.arguments import Arguments, RawArguments
from rowlock.core.errors import InvalidArguments
from rowlock.core.option_checks import key_text
from rowlock.core.sources.policy import check_name
from rowlock.store.jobs.insert import NewRow


def rows_of_many(
    task: str, given: Sequence[Mapping[str, Any]], arguments: Arguments | RawArguments, key: Any, source: Any
) -> list[NewRow]:
    """The rows of many jobs, one for each mapping of arguments; `key` and `source` may be functions of these."""
    if key is not None and not callable(key):
        key_text(key)
        raise InvalidArguments(
            "enqueue_many needs key= as a function of the arguments:"
            " one fixed key would make all jobs but the first duplicates"
        )
    derives = callable(source) or key is not None
    rows: list[NewRow] = []
    for number, kwargs in enumerate(given):
        try:
            if not isinstance(kwargs, Mapping) or not _has_names(kwargs):
                raise InvalidArguments(f"must be a mapping of argument names, not {kwargs!r:.100}")
            if not derives:
                rows.append(NewRow("", arguments.pack((), kwargs), None, source))
                continue
            text, seen = arguments.pack_seen(kwargs)
            own = None if key is None else derived_key(task, key, seen)
            rows.append(NewRow("", text, own, derived_source(task, source, seen) if callable(source) else source))
        except InvalidArguments as error:
            raise InvalidArguments(f"item {number}: {error}") from None
    return rows


def _has_names(arguments: Mapping[Any, Any]) -> bool:
    return {str}.issuperset(map(type, arguments)) or all(isinstance(name, str) for name in arguments)


def derived_key(task: str, function: Any, arguments: dict[str, Any]) -> str:
    """The key that a function derives from a job's arguments."""
    return key_text(_derived(task, "key", function, arguments))


def derived_source(task: str, function: Any, arguments: dict[str, Any]) -> str | None:
    """The source that a function derives from a job's arguments."""
    found = _derived(task, "source", function, arguments)
    return None if found is None else check_name(found)


def _derived(task: str, what: str, function: Any, arguments: dict[str, Any]) -> Any:
    """What the function answers; it gets the arguments that it names."""
    try:
        names = _parameter_names(function)
    except (TypeError, ValueError):  # `str` has no signature; an object that cannot be hashed
        must = "must be a function whose arguments have names"
        raise InvalidArguments(f"task {task!r}: its {what} {must}, not {function!r:.100}") from None
    if names is not None:
        arguments = {name: arguments[name] for name in names if name in arguments}
    try:
        return function(**arguments)
    except Exception as error:
        raise InvalidArguments(f"task {task!r}: its {what} cannot be derived from the arguments: {error!r}") from error


@lru_cache(maxsize=1000)
def _parameter_names(function: Callable[..., Any]) -> tuple[str, ...] | None:
    """The parameter names of a function; None if it has **kwargs. Cached, because enqueue_many asks for every job."""
    parameters = inspect.signature(function).parameters.values()
    return None if any(p.kind is p.VAR_KEYWORD for p in parameters) else tuple(p.name for p in parameters)
