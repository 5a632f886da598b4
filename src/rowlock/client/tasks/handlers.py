"""The class form of a task: `@handler("name") class X(BaseHandler)`, registered at module level."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

from rowlock.client.context import Context
from rowlock.core.errors import HandlerNotFoundError, InvalidArguments, NotAllowed
from rowlock.core.options import task_options


class BaseHandler(ABC):
    """Base class of handlers. Each attempt gets a new instance; `self.context` has its progress and its transaction."""

    _context: Context | None = None

    @property
    def context(self) -> Context:
        """The context of the running attempt; NotAllowed outside of a worker."""
        if self._context is None:
            raise NotAllowed(f"{type(self).__name__}.context is available only while a worker runs the job")
        return self._context

    @abstractmethod
    async def execute(self, params: dict[str, Any]) -> Any:
        """Do the work of one job. The return value is its result; an exception fails the attempt."""


H = TypeVar("H", bound=type[BaseHandler])

_registry: dict[str, tuple[type[BaseHandler], dict[str, Any]]] = {}


def handler(name: str, **options: Any) -> Callable[[H], H]:
    """Register a handler class as the task `name`, with the options of `@app.task`."""
    if task_options(**options).runs_in == "thread":
        raise InvalidArguments(f"handler {name!r} is async; use runs_in='async' or 'process'")

    def register(cls: H) -> H:
        if not (isinstance(cls, type) and issubclass(cls, BaseHandler)):
            raise InvalidArguments(f"@handler({name!r}) needs a subclass of BaseHandler, not {cls!r}")
        known = _registry.get(name)
        if known and not reloaded(known[0], cls):
            raise InvalidArguments(f"two handlers are named {name!r}: {known[0]!r} and {cls!r}")
        _registry[name] = (cls, options)
        return cls

    return register


def reloaded(before: Any, after: Any) -> bool:
    """Whether `after` is `before`, or its new version from a reloaded module, and not another object of that name."""
    same = (before.__module__, before.__qualname__) == (after.__module__, after.__qualname__)
    return before is after or (same and "<locals>" not in after.__qualname__)


def get_handler(name: str) -> BaseHandler:
    """A new instance of the handler registered under `name`."""
    if name not in _registry:
        raise HandlerNotFoundError(name)
    return _registry[name][0]()


def registered() -> dict[str, dict[str, Any]]:
    """Every registered name with its task options."""
    return {name: options for name, (_, options) in _registry.items()}
