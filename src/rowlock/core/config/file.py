"""A config file in YAML: its dotted keys with the line of each, and environment variables filled in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rowlock.core.config.messages import Given, keys_of, known_name, said
from rowlock.core.config.sections import KEYS, SECTIONS
from rowlock.core.errors import ConfigError

_VARIABLE = re.compile(r"\$?\$\{(?P<name>[A-Za-z_]\w*)(:-(?P<default>[^}]*))?\}")


def values_in(text: str, name: str, env: Mapping[str, str]) -> Iterator[tuple[str, Given]]:
    """The content of the file: dotted keys, each with its value and `name:line`."""
    data, lines = _parsed(text, name)
    for key, value in _flat(data, name):
        given = Given(value, f"{name}:{lines[key]}" if key in lines else name)
        given = given._replace(value=_filled(key, given, value, env))
        if key in SECTIONS:
            raise ConfigError(f"{said(key, given)}: must be a mapping with keys such as {keys_of(key)[0]}")
        yield known_name(key, KEYS, given), given


def _flat(data: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The file's dotted keys with their values. A section that is not a mapping keeps its key, to be refused."""
    if not isinstance(data, dict | None):
        raise ConfigError(f"{name}: must be a mapping with keys such as worker, not {data!r:.60}")
    for key, value in (data or {}).items():
        if key in SECTIONS and isinstance(value, dict | None):
            yield from ((f"{key}.{inner}", deep) for inner, deep in (value or {}).items())
        else:
            yield str(key), value


def _filled(key: str, given: Given, value: Any, env: Mapping[str, str]) -> Any:
    """`value` with each ${VARIABLE} and ${VARIABLE:-default} in its strings replaced. This happens after the YAML is
    parsed, so that a variable cannot add keys to the file."""
    if isinstance(value, dict):
        return {name: _filled(key, given, inner, env) for name, inner in value.items()}
    if isinstance(value, list):
        return [_filled(key, given, inner, env) for inner in value]
    if not isinstance(value, str):
        return value

    def fill(found: re.Match[str]) -> str:
        text = env.get(found["name"]) or found["default"]
        if text is None:
            raise ConfigError(
                f"{said(key, given)}: the environment variable {found['name']} is not set or empty;"
                f" set it, or write a default: ${{{found['name']}:-…}}"
            )
        return text

    if (whole := _VARIABLE.fullmatch(value)) is not None and not value.startswith("$$"):
        return _scalar(fill(whole))
    return _VARIABLE.sub(lambda found: found[0][1:] if found[0].startswith("$$") else fill(found), value)


def _scalar(text: str) -> Any:
    """A variable that is a whole value: 3 becomes a number and true a boolean, as if written in the file."""
    import yaml

    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    return value if isinstance(value, (bool, int, float)) else text


def _parsed(text: str, name: str) -> tuple[Any, dict[str, int]]:
    """The document, and the line of each dotted key."""
    import yaml  # here, because it is slow to import and only needed with a config file

    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        lines: dict[str, int] = {}
        for key, line in _lines(node):
            if key in lines:
                raise ConfigError(f"{key} ({name}:{line}): stands on line {lines[key]} already")
            lines[key] = line
        return (None if node is None else loader.construct_document(node)), lines
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        parts = [getattr(error, "context", None), getattr(error, "problem", None)]
        reason = ": ".join(filter(None, parts)) or str(error).partition("\n")[0]
        raise ConfigError(f"{name}{where}: not valid YAML: {reason}") from None


def _lines(node: Any, prefix: str = "") -> Iterator[tuple[str, int]]:
    for key, value in node.value if getattr(node, "id", None) == "mapping" else ():
        if key.id == "scalar" and key.value != "<<":
            yield prefix + key.value, key.start_mark.line + 1
            if not prefix and key.value in (*SECTIONS, "sources", "schedules"):
                yield from _lines(value, f"{key.value}.")
