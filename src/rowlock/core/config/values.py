"""The kinds of value that a setting can have, and how each is read from a file, a variable or an argument.

A validator raises a ValueError whose text starts with "must": `messages` puts key, value and place before it.
"""

from __future__ import annotations

import json
import re
from typing import Annotated
from zoneinfo import ZoneInfo

from pydantic import AfterValidator as After
from pydantic import BaseModel, ConfigDict, Field
from pydantic import BeforeValidator as Before

from rowlock.core.durations import parse_duration

DAY = 86_400  # seconds


class Section(BaseModel):
    """A record of settings: unknown keys are refused, and values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def seconds(value: object) -> object:
    """30, 0.5, "30s", "5m" or "2h" as seconds."""
    if not isinstance(value, str):
        return number(value)
    found = parse_duration(value)
    if found is None:
        raise ValueError("must be seconds, or a number with ms, s, m, h, d or w, such as 30s or 5m")
    return found


def number(value: object) -> object:
    """Anything but a boolean, which is what YAML makes of yes and no, and which would pass for 1 and 0."""
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


def names(value: object) -> object:
    """A list, also as JSON or with commas: an environment variable has no lists."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except ValueError:
            raise ValueError("must be a JSON list, or names with commas between them") from None
    return [name.strip() for name in value.split(",")]


def distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    if not names or not all(name and name == name.strip() for name in names):
        raise ValueError("must be one name or more, none of them empty")
    if len(set(names)) < len(names):
        raise ValueError("must not have the same name twice")
    return names


def matching(pattern: str, otherwise: str) -> After:
    """A validator that refuses a text which does not match `pattern`, with the message `otherwise`."""

    def check(text: str) -> str:
        if not re.match(pattern, text):
            raise ValueError(otherwise)
        return text

    return After(check)


def time_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (LookupError, OSError, ValueError):
        raise ValueError("must be a time zone such as UTC or Asia/Seoul") from None
    return name


def from_json(value: object, example: str) -> object:
    """`value`, parsed as JSON if it is text: an environment variable cannot hold a mapping in another way."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        raise ValueError(f"must be JSON such as {example}") from None


DOTTED = r"[^\W\d]\w*(\.[^\W\d]\w*)*"
Database = Annotated[
    str, matching("sqlite:///|postgres(ql)?://", "must start with sqlite:/// or postgresql://, as in sqlite:///jobs.db")
]
Server = Annotated[str, matching("postgres(ql)?://", "must start with postgresql://")]
Redis = Annotated[str, matching("(rediss?|unix)://", "must start with redis://, rediss:// (TLS) or unix://")]
AppPath = Annotated[str, matching(rf"{DOTTED}(:{DOTTED})?\Z", "must be module:attribute or a module")]
Port = Annotated[int, Before(number), Field(ge=1, le=65_535)]
Count = Annotated[int, Before(number), Field(ge=1, le=10_000)]
Rate = Annotated[int, Before(number), Field(ge=1, le=10_000_000)]
Seconds = Annotated[float, Before(seconds), Field(gt=0, le=DAY, allow_inf_nan=False)]
SecondsOrZero = Annotated[float, Before(seconds), Field(ge=0, le=DAY, allow_inf_nan=False)]
Days = Annotated[float, Before(number), Field(ge=0, le=36_500, allow_inf_nan=False)]
List = Annotated[tuple[str, ...], Before(names)]
Names = Annotated[List, After(distinct)]
