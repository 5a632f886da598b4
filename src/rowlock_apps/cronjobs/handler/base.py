"""What a handler is: `@handler("name")` above a `BaseHandler`, which is Rowlock's own; here with checked params.

A `CheckedHandler` declares its params in a pydantic model. Params that do not fit are found when a cron job is added
(`cron_jobs.add`), when a worker starts (those of the YAML), and at the latest when they are about to be used: then the
execution is FAILED at once, because no retry would help.
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import suppress
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError

from rowlock import (
    BaseHandler,
    HandlerNotFoundError,
    InvalidArguments,
    Permanent,
    fixed,
    get_handler,
    handler,
)

__all__ = ["BaseHandler", "CheckedHandler", "HandlerNotFoundError", "Params", "get_handler", "handler"]

# Defaults of a cron job: those of the document's example, and its poll interval before a retry.
MAX_RETRY = 3
RETRY_PAUSE = fixed(seconds=5)


class Params(BaseModel):
    """Base of the params of handlers: no unknown key, no value of a wrong type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class CheckedHandler(BaseHandler):
    """A handler whose params have a shape."""

    shape: ClassVar[type[Params]]

    @property
    def attempt(self) -> int:
        """The number of this attempt; 1 when a handler is called directly."""
        return self._context.attempt if self._context is not None else 1

    async def execute(self, params: dict[str, Any]) -> Any:
        """Check the params, then `run`."""
        try:
            checked = self.check(params)
        except InvalidArguments as error:
            raise Permanent(str(error), code="INVALID_PARAMS") from None
        return await self.run(checked)

    @classmethod
    def check(cls, params: Any) -> Params:
        """The params as the handler gets them; InvalidArguments names each that does not fit."""
        try:
            return cls.shape.model_validate(params)
        except ValidationError as error:
            raise InvalidArguments(_said(error, cls.shape)) from None

    @abstractmethod
    async def run(self, params: Any) -> Any:
        """Do the work with params that fit."""


def check_params(handler_name: str, params: Any) -> None:
    """Raise InvalidArguments if a handler of that name declares its params, and these do not fit."""
    with suppress(HandlerNotFoundError):  # a plain task may have that name; else Rowlock reports that there is none
        found = get_handler(handler_name)
        if isinstance(found, CheckedHandler):
            try:
                found.check(params)
            except InvalidArguments as error:
                raise InvalidArguments(f"handler {handler_name!r}: {error}") from None


def _said(error: ValidationError, shape: type[Params]) -> str:
    """Each param that does not fit, with its value and what is wrong with it."""
    known = ", ".join(shape.model_fields)
    parts = []
    for problem in error.errors(include_url=False):
        name = ".".join(map(str, problem["loc"])) or "handler_params"
        words = f"{problem['msg'][0].lower()}{problem['msg'][1:]}"
        if problem["type"] == "extra_forbidden":
            words = f"no such parameter; there are {known}"
        parts.append(f"{name} = {problem['input']!r:.80}: {words}")
    return "params do not fit: " + "; ".join(parts)
