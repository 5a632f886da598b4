"""A task's arguments: checked at the enqueue, stored as JSON, and checked again when the job runs. Keys and sources are
derived from them."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from types import NoneType
from typing import Any, NotRequired, get_type_hints

from pydantic import (
    ConfigDict,
    PydanticSchemaGenerationError,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import ErrorDetails, to_jsonable_python
from pydantic_core import to_json as plain_json
from typing_extensions import TypedDict

from rowlock.core.errors import InvalidArguments
from rowlock.core.job import MAX_ARGS_BYTES
from rowlock.core.option_checks import key_text
from rowlock.core.sources.policy import check_name

KINDS = inspect.Parameter
KEPT_BY_JSON = (bool, int, float, str, NoneType)
ENCODE = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


class Arguments:
    """The signature of one task, without its context parameter."""

    def __init__(self, name: str, function: Callable[..., Any], takes_context: bool) -> None:
        self._task = name
        signature = inspect.signature(function)
        parameters = list(signature.parameters.values())[1 if takes_context else 0 :]
        self._signature = signature.replace(parameters=parameters)
        self.names = tuple(p.name for p in parameters if p.kind is not KINDS.VAR_KEYWORD)
        open_ended = any(p.kind is KINDS.VAR_KEYWORD for p in parameters)
        hints = hints_of(function)
        for parameter in parameters:
            if getattr(hints.get(parameter.name, parameter.annotation), "__name__", "") == "Context":
                raise InvalidArguments(f"task {name!r}: the context {parameter.name!r} must be its first parameter")
            if parameter.kind in (KINDS.VAR_POSITIONAL, KINDS.POSITIONAL_ONLY):
                raise InvalidArguments(
                    f"task {name!r}: parameter {parameter} cannot be stored by name; make it a keyword parameter"
                )
        fields = {p.name: _field(p, hints) for p in parameters if p.kind is not KINDS.VAR_KEYWORD}
        shape = TypedDict(name, fields)  # type: ignore[misc]
        shape.__pydantic_config__ = ConfigDict(  # type: ignore[attr-defined]
            extra="allow" if open_ended else "forbid", arbitrary_types_allowed=False
        )
        self._empty = not parameters
        self._defaults = {p.name: p.default for p in parameters if p.default is not KINDS.empty}
        # JSON does not change values of these types, so `pack` can skip the check that they survive it.
        self._kept_by_json = not open_ended and all(hints.get(p.name) in KEPT_BY_JSON for p in parameters)
        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(shape)
        except (PydanticSchemaGenerationError, PydanticUserError) as error:
            raise InvalidArguments(f"task {name!r} has an argument that JSON cannot carry: {error}") from error
        self._validate = self._adapter.validator.validate_python

    def pack(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """Check the arguments of a call and return them as JSON text."""
        return self._pack(args, kwargs)[0]

    def pack_seen(self, kwargs: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """`pack`, and the arguments as the function will see them: enqueue_many derives keys and sources from them."""
        text, checked = self._pack((), kwargs)
        return text, self.with_defaults(text) if checked is None else self._defaults | checked

    def _pack(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[str, dict[str, Any] | None]:
        """The JSON text, and the checked arguments if JSON is known not to change them, else None."""
        if self._empty and not args and not kwargs:
            return "{}", {}
        if args:
            try:
                kwargs = self._signature.bind_partial(*args, **kwargs).arguments
            except TypeError as error:
                raise InvalidArguments(f"task {self._task!r}: {error}") from None
        try:
            checked = self._validate(kwargs if type(kwargs) is dict else dict(kwargs))
        except ValidationError as error:
            raise misfit(f"task {self._task!r}", error) from None
        if self._kept_by_json and all(map(_kept_by_json, checked.values())):
            text = _within(plain_json(checked).decode(), f"arguments of task {self._task!r}", MAX_ARGS_BYTES)
            return text, checked
        text = to_json(checked, f"arguments of task {self._task!r}", MAX_ARGS_BYTES)
        self._check_return(text, checked)
        return text, None

    def _check_return(self, text: str, checked: dict[str, Any]) -> None:
        """Check that the handler will get the values that were given. Without an annotation, JSON turns a set into a
        list and a date into text; a lone surrogate cannot be stored at all."""
        try:
            again = self._adapter.validate_json(text)
        except ValidationError as error:
            raise misfit(f"task {self._task!r}: does not survive JSON", error) from None
        for key, value in checked.items():
            if not _same(value, again.get(key)):
                raise InvalidArguments(
                    f"task {self._task!r}: {key} must be JSON: {value!r:.100} would come back as "
                    f"{again.get(key)!r:.100}; annotate the argument with its type, or pass text"
                )

    def with_defaults(self, text: str) -> dict[str, Any]:
        """The arguments as the function would see them, defaults included."""
        bound = self._signature.bind_partial(**self.unpack(text))
        bound.apply_defaults()
        return dict(bound.arguments)

    def unpack(self, text: str) -> dict[str, Any]:
        """Check stored arguments and return them as keyword arguments."""
        if self._empty and text == "{}":
            return {}
        try:
            return dict(self._adapter.validate_json(text))
        except ValidationError as error:
            raise misfit(f"stored arguments do not fit task {self._task!r}", error) from None

    def schema(self) -> dict[str, Any]:
        return self._adapter.json_schema()


class RawArguments:
    """Arguments of a @handler class, or of a task whose code is elsewhere: one dictionary, not checked."""

    names: tuple[str, ...] = ()

    def __init__(self, name: str) -> None:
        self._task = name

    def pack(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """JSON text of the parameters, given as one dictionary or as keywords."""
        if args and (kwargs or len(args) > 1 or not isinstance(args[0], Mapping)):
            raise InvalidArguments(f"handler {self._task!r} takes one dictionary of parameters, or keywords")
        return to_json(dict(args[0] if args else kwargs), f"parameters of handler {self._task!r}", MAX_ARGS_BYTES)

    def pack_seen(self, kwargs: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        text = self.pack((), kwargs)
        return text, self.with_defaults(text)

    def with_defaults(self, text: str) -> dict[str, Any]:
        return dict(json.loads(text))

    def unpack(self, text: str) -> dict[str, Any]:
        try:
            return {"params": json.loads(text)}
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidArguments(f"stored parameters of handler {self._task!r} cannot be read: {error}") from None

    def schema(self) -> dict[str, Any]:
        return {"type": "object"}


def _kept_by_json(value: Any) -> bool:
    """Whether JSON surely keeps this value. Text only if it is ASCII: other text may contain a lone surrogate."""
    kind = type(value)
    if kind is str:
        return bool(value.isascii())
    return kind is int or kind is bool or value is None or (kind is float and math.isfinite(value))


def _same(given: Any, again: Any) -> bool:
    """Whether two values are equal, counting a tuple and a list with the same items as equal."""
    if isinstance(given, (list, tuple)) and isinstance(again, list):
        return len(given) == len(again) and all(map(_same, given, again))
    if isinstance(given, dict) and isinstance(again, dict):
        return given.keys() == again.keys() and all(_same(value, again[key]) for key, value in given.items())
    try:
        return bool(given == again)
    except Exception:  # values that cannot be compared: serialising and reading them back has worked
        return True


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except Exception:  # a name imported only for type checkers: arguments with it are checked as Any
        hints = {}
        for name, annotation in function.__annotations__.items():
            with suppress(Exception):
                one = type("One", (), {"__annotations__": {name: annotation}})
                known = getattr(function, "__globals__", {})
                hints.update(get_type_hints(one, globalns=known, localns=known, include_extras=True))
        return hints


def _field(parameter: inspect.Parameter, hints: Mapping[str, Any]) -> Any:
    annotation = hints.get(parameter.name, Any)
    return annotation if parameter.default is parameter.empty else NotRequired[annotation]


def to_json(value: Any, what: str, limit: int) -> str:
    """Strict JSON text of at most `limit` bytes, or an error that names what was wrong."""
    try:
        jsonable = value if value is None else to_jsonable_python(value, inf_nan_mode="constants")
        text = ENCODE(jsonable)
    except MemoryError:
        raise
    except Exception as error:  # a model's own serialiser may raise anything
        raise InvalidArguments(f"{what} must be JSON: {error}") from None
    return _within(text, what, limit)


def _within(text: str, what: str, limit: int) -> str:
    if len(text) > limit:
        raise InvalidArguments(
            f"{what} are {len(text):,} bytes of JSON; the limit is {limit:,}. Store the data and pass its name"
        )
    return text


def _why(problem: ErrorDetails) -> str:
    """Pydantic's reason; in plain words where its own ("extra inputs are not permitted") are about models."""
    if problem["type"] == "missing":
        return "missing"
    if problem["type"] == "extra_forbidden":
        return "no such argument" if len(problem["loc"]) == 1 else "no such field"
    return problem["msg"][0].lower() + problem["msg"][1:]


def misfit(what: str, error: ValidationError) -> InvalidArguments:
    """A pydantic error as one line that names the first fields that are wrong."""
    found = []
    for problem in error.errors(include_url=False, include_input=False)[:5]:
        where = ".".join(str(part) for part in problem["loc"]) or "arguments"
        found.append((where, _why(problem)))
    refused = InvalidArguments(f"{what}: {'; '.join(f'{where}: {why}' for where, why in found)}")
    refused.fields = tuple(found)
    return refused


# --- what is derived from arguments


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
