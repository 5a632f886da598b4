"""Mistakes in settings, each as one line: key = value (where it was set): what is wrong and what to do."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, NamedTuple

from pydantic import ValidationError

from rowlock.core.config.sections import KEYS, SECTIONS, Settings
from rowlock.core.errors import ConfigError

_PASSWORD = re.compile(r"(?<=://)([^:/@]*):.*@|(?<=[?&]password=)[^&]*")
_SECRET = re.compile("pass|secret|token|key|credential|webhook_url", re.IGNORECASE)


class Given(NamedTuple):
    """A value and its origin, for messages: `rowlock.yaml:3`. Pass one as a flag if the origin is not "--name"."""

    value: Any
    origin: str


Flat = dict[str, Given]


def known_name(name: str, known: Collection[str], given: Given, what: str = "setting") -> str:
    """`name`, or an error with the nearest name that exists."""
    if name in known:
        return name
    from difflib import get_close_matches

    # Only last parts are compared: with the section before them all names of a section look alike.
    section = name.partition(".")[0] if "." in name else ""
    names = [key for key in known if key.startswith(f"{section}.")] or [*known, *SECTIONS]
    last = {_last_part(candidate): candidate for candidate in names}
    close = get_close_matches(_last_part(name), last, n=1)
    hint = f"did you mean {last[close[0]]}?" if close else f"there are {', '.join(keys_of(section))}"
    raise ConfigError(f"{said(name, given)}: no such {what}; {hint}")


def _last_part(name: str) -> str:
    return name.removeprefix("ROWLOCK_").rpartition("__")[2].rpartition(".")[2]


def keys_of(section: str) -> list[str]:
    return list(SECTIONS.get(section, Settings).model_fields)


def mistake(error: ValidationError, flat: Flat) -> ConfigError:
    """The first mistake, as one line."""
    first = error.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"]))
    key = next(key for key in KEYS if f"{place}.".startswith(f"{key}."))
    given = flat.get(key, Given(first["input"], "default"))
    reason = first["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    if first["type"] == "lease" and given.origin in ("default", "settings"):
        # The lease is a default, so the mistake is in heartbeat_seconds.
        key, reason = "worker.heartbeat_seconds", f"must be at most half of lease_seconds ({given.value:g})"
        given = flat[key]
    return ConfigError(f"{said(key, given)}: {reason}")


def said(key: str, given: Given) -> str:
    return f"{key} = {_shown(key, given.value)} ({given.origin})"


def _shown(key: str, value: Any) -> str:
    """A value for a message: short, and without passwords."""
    if isinstance(value, dict):
        return "{…}"
    if _SECRET.search(key):
        return "***"
    if isinstance(value, str):
        value = _PASSWORD.sub(lambda found: f"{found[1]}:***@" if found[1] is not None else "***", value)
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:99]}…"
