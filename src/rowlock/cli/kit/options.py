"""How verbs are declared (`Verbs`), the options that several verbs share, and the parsing of times.

Options come in groups: a verb's parameter whose type is a dataclass, such as `Target`, becomes one command-line option
per field.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, overload

import typer

from rowlock.core.errors import InvalidArguments
from rowlock.core.jsonable import fields_of
from rowlock.core.times import parse_duration, parse_moment

AppOption = Annotated[
    str | None,
    typer.Option("--app", metavar="MODULE:ATTRIBUTE", help="Your app, e.g. shop.jobs:app [env: ROWLOCK_APP]"),
]
ConfigOption = Annotated[
    str | None,
    typer.Option("--config", metavar="FILE", help="YAML file of settings [env: ROWLOCK_CONFIG; default: rowlock.yaml]"),
]
DatabaseOption = Annotated[
    str | None,
    typer.Option("--database", metavar="URL", help="sqlite:///file.db or postgresql://… [env: ROWLOCK_DATABASE_URL]"),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text")]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=100_000, help="Print at most this many rows")]


def examples(*lines: str) -> str:
    """Example command lines below a verb's help. \\b keeps them from being joined into one paragraph."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


class Verbs(typer.Typer):
    """A group of verbs, such as `rowlock jobs`."""

    def __init__(self, **options: Any) -> None:
        # Help is plain: importing rich and drawing boxes would take most of the time of --help.
        plain: dict[str, Any] = {"rich_markup_mode": None, "pretty_exceptions_enable": False, "add_completion": False}
        super().__init__(**{"no_args_is_help": True} | plain | options)

    def verb(self, name: str, *lines: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Decorate a verb. `lines` are command lines that its help shows as examples."""
        add = self.command(name, epilog=examples(*lines) if lines else None)
        return lambda function: add(grouped_options(function))


def grouped_options(verb: Callable[..., None]) -> Callable[..., None]:
    """Decorate a verb: turn each parameter whose type is a dataclass into one option per field."""
    parameters = inspect.signature(verb, eval_str=True).parameters.values()
    groups: dict[str, Any] = {
        each.name: each.annotation for each in parameters if dataclasses.is_dataclass(each.annotation)
    }
    fields = {name: inspect.signature(group, eval_str=True).parameters for name, group in groups.items()}

    @functools.wraps(verb)
    def called(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field: given.pop(field) for field in fields[name]})
        verb(**given)

    shown = [each for each in parameters if each.name not in groups]
    for group_fields in fields.values():
        shown += group_fields.values()
    shown = [each.replace(kind=each.KEYWORD_ONLY) for each in shown]
    # Typer builds the command line from these two attributes, which `wraps` has copied from the undecorated verb.
    called.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in shown}
    return called


def given(options: Any) -> dict[str, Any]:
    """Only the options of a group that were given. Environment, file and defaults supply the rest."""
    return {name: value for name, value in fields_of(options).items() if value is not None}


@overload
def read_duration(text: str, option: str) -> float: ...
@overload
def read_duration(text: None, option: str) -> None: ...
def read_duration(text: str | None, option: str) -> float | None:
    """The seconds in `90`, `30s`, `5m`, `2h` or `1d`; None if the option was not given."""
    found = None if text is None else parse_duration(text)
    if found is None and text is not None:
        raise InvalidArguments(f"{option} {text!r}: expected seconds or a time such as 30s, 5m, 2h or 1d")
    return found


def read_moment(text: str | None, option: str) -> datetime | None:
    """An ISO 8601 time with its zone; None if the option was not given."""
    try:
        return None if text is None else parse_moment(text)
    except InvalidArguments as error:
        raise InvalidArguments(f"{option} {error}") from None
