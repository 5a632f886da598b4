"""Loads the settings: flags over environment variables over a file over defaults, checked once.

Each of these is first flattened to dotted keys with values and origins, so that it can be merged and named in errors.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from rowlock.core.config.sections import KEYS, SECTIONS, Settings, WorkerSettings
from rowlock.core.errors import ConfigError

VARIABLES = {"ROWLOCK_" + key.replace(".", "__").upper(): key for key in KEYS if key != "database"}
VARIABLES["ROWLOCK_DATABASE_URL"] = "database"
# Not settings: the command line reads these itself.
OTHER_VARIABLES = {"ROWLOCK_CONFIG", "ROWLOCK_DEBUG", "ROWLOCK_LOG_FORMAT", "ROWLOCK_LOG_LEVEL"}
# Variables that Kubernetes sets in every pod for each Service: a Service called rowlock must not stop all workers.
_SERVICE = re.compile(r"ROWLOCK_(\w+_)?(SERVICE_(HOST|PORT)(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)")
_VARIABLE = re.compile(r"\$?\$\{(?P<name>[A-Za-z_]\w*)(:-(?P<default>[^}]*))?\}")  # in the file
_PASSWORD = re.compile(r"(?<=://)([^:/@]*):.*@|(?<=[?&]password=)[^&]*")
_SECRET = re.compile("pass|secret|token|key|credential|webhook_url", re.IGNORECASE)


class Given(NamedTuple):
    """A value and its origin for messages, such as `rowlock.yaml:3`. Pass it as a flag if the origin isn't "--name"."""

    value: Any
    origin: str


Flat = dict[str, Given]


def load_settings(
    *,
    file_text: str | None = None,
    file_name: str = "config file",
    env: Mapping[str, str],
    flags: Mapping[str, Any],
) -> Settings:
    """Flags (by dotted key; None counts as absent) over ROWLOCK_… variables over a YAML file over defaults."""
    from_file = {} if file_text is None else dict(values_in(file_text, file_name, env))
    return _settings(from_file | dict(_environment(env)) | dict(_flags(flags)))


def change_worker(settings: WorkerSettings, changes: Mapping[str, Any]) -> WorkerSettings:
    """A worker's settings, some of them replaced by `changes`, the arguments of a call."""
    flat = {f"worker.{key}": Given(value, "settings") for key, value in settings}
    for key, value in changes.items():
        given = Given(value, "argument")
        flat[known_name(f"worker.{key}", KEYS, given)] = given
    return _settings(flat).worker


def _settings(flat: Flat) -> Settings:
    nested: dict[str, Any] = {section: {} for section in SECTIONS}
    for key, given in flat.items():
        section, _, name = key.rpartition(".")
        (nested[section] if section else nested)[name] = given.value
    try:
        return Settings.model_validate(nested)
    except ValidationError as error:
        raise mistake(error, flat) from None


def _flags(flags: Mapping[str, Any]) -> Iterator[tuple[str, Given]]:
    for key, value in flags.items():
        if value is not None:
            flag = "--" + key.rpartition(".")[2].replace("_", "-")
            given = value if isinstance(value, Given) else Given(value, flag)
            yield known_name(key, KEYS, given), given


def _environment(env: Mapping[str, str]) -> Iterator[tuple[str, Given]]:
    for name, value in sorted(env.items()):
        ours = name in VARIABLES  # ROWLOCK_API__PORT looks like a variable of a Service as well
        if not name.startswith("ROWLOCK_") or name in OTHER_VARIABLES or (not ours and _SERVICE.fullmatch(name)):
            continue
        known_name(name, VARIABLES, Given(value, "environment"), "variable")
        if not value.strip():
            # Compose files set empty variables. Using the default would silently open another database.
            raise ConfigError(
                f"{VARIABLES[name]} = {value!r} (environment variable {name}): is empty; give it a value or unset it"
            )
        yield VARIABLES[name], Given(value, f"environment variable {name}")


# --- the file


def values_in(text: str, name: str, env: Mapping[str, str]) -> Iterator[tuple[str, Given]]:
    """The settings in the file: dotted keys, each with its value and `name:line`."""
    data, lines = _parsed(text, name)
    for key, value in _flat(data, name):
        given = Given(value, f"{name}:{lines[key]}" if key in lines else name)
        given = given._replace(value=_filled(key, given, value, env))
        if key in SECTIONS:
            raise ConfigError(f"{_named(key, given)}: must be a mapping with keys such as {keys_of(key)[0]}")
        yield known_name(key, KEYS, given), given


def _flat(data: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The file's dotted keys and their values. A section that isn't a mapping keeps its key, so that it is refused."""
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
                f"{_named(key, given)}: the environment variable {found['name']} is not set or empty;"
                f" set it, or write a default: ${{{found['name']}:-…}}"
            )
        return text

    if (whole := _VARIABLE.fullmatch(value)) is not None and not value.startswith("$$"):
        return _scalar(fill(whole))
    return _VARIABLE.sub(lambda found: found[0][1:] if found[0].startswith("$$") else fill(found), value)


def _scalar(text: str) -> Any:
    """The value of a setting that is a single variable: 3 becomes a number and true a boolean, as in the file."""
    import yaml

    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    return value if isinstance(value, (bool, int, float)) else text


def _parsed(text: str, name: str) -> tuple[Any, dict[str, int]]:
    """The document, and the line of each dotted key."""
    import yaml  # here, because it is slow to import and only needed for a config file

    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        lines: dict[str, int] = {}
        for key, line in _lines(node):
            if key in lines:
                raise ConfigError(f"{key} ({name}:{line}): is already on line {lines[key]}")
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


# --- the mistakes


def known_name(name: str, known: Collection[str], given: Given, what: str = "setting") -> str:
    """Return `name` if it is known; else raise a ConfigError that suggests the nearest known name."""
    if name in known:
        return name
    from difflib import get_close_matches

    # Compare only the last parts: with the section in front, all names of a section look alike.
    section = name.partition(".")[0] if "." in name else ""
    names = [key for key in known if key.startswith(f"{section}.")] or [*known, *SECTIONS]
    last = {_last_part(candidate): candidate for candidate in names}
    close = get_close_matches(_last_part(name), last, n=1)
    hint = f"did you mean {last[close[0]]}?" if close else f"there are {', '.join(keys_of(section))}"
    raise ConfigError(f"{_named(name, given)}: no such {what}; {hint}")


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
        # Nobody set lease_seconds, so the mistake is in heartbeat_seconds.
        key, reason = "worker.heartbeat_seconds", f"must be at most half of lease_seconds ({given.value:g})"
        given = flat[key]
    return ConfigError(f"{_named(key, given)}: {reason}")


def _named(key: str, given: Given) -> str:
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
