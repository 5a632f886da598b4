"""Settings from all places: flags over environment variables over a file over defaults, checked once.

Each place is first laid flat (dotted key -> value and origin), so that the merge and the messages know one shape only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from rowlock.core.config.file import values_in
from rowlock.core.config.messages import Flat, Given, known_name, mistake
from rowlock.core.config.sections import KEYS, SECTIONS, Settings, WorkerSettings
from rowlock.core.errors import ConfigError

VARIABLES = {"ROWLOCK_" + key.replace(".", "__").upper(): key for key in KEYS if key != "database"}
VARIABLES["ROWLOCK_DATABASE_URL"] = "database"
OTHER_VARIABLES = {
    "ROWLOCK_CONFIG",
    "ROWLOCK_DEBUG",
    "ROWLOCK_LOG_FORMAT",
    "ROWLOCK_LOG_LEVEL",
}  # no settings: the command line reads these itself
# Kubernetes sets such variables in every pod for each Service; a Service called rowlock must not stop all workers.
_SERVICE = re.compile(r"ROWLOCK_(\w+_)?(SERVICE_(HOST|PORT)(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)")


def load_settings(
    *,
    file_text: str | None = None,
    file_name: str | None = None,
    env: Mapping[str, str],
    flags: Mapping[str, Any],
) -> Settings:
    """Flags (by dotted key; None counts as absent) over ROWLOCK_… variables over a YAML file over defaults."""
    from_file = {} if file_text is None else dict(values_in(file_text, file_name or "config file", env))
    return _settings(from_file | dict(_environment(env)) | dict(_flags(flags)))


def change_worker(settings: WorkerSettings, changes: Mapping[str, Any]) -> WorkerSettings:
    """A worker's settings with `changes`, the arguments of a call, in place of some of them."""
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
        ours = name in VARIABLES  # ROWLOCK_API__PORT also looks like a variable of a Service
        if not name.startswith("ROWLOCK_") or name in OTHER_VARIABLES or (not ours and _SERVICE.fullmatch(name)):
            continue
        known_name(name, VARIABLES, Given(value, "environment"), "variable")
        if not value.strip():
            # Compose files set empty variables. Using the default would silently open another database.
            raise ConfigError(
                f"{VARIABLES[name]} = {value!r} (environment variable {name}): is empty; fill or unset it"
            )
        yield VARIABLES[name], Given(value, f"environment variable {name}")
