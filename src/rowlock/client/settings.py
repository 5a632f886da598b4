"""Reads the settings of a program from the environment and the config file. And the package's version."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rowlock.core.config import Settings, load_settings
from rowlock.core.errors import ConfigError


def read_settings(
    database: str | None = None,
    config: str | Path | None = None,
    flags: Mapping[str, Any] | None = None,
    folder: str | None = None,
) -> Settings:
    """Settings from flags, the environment and a config file (given, ROWLOCK_CONFIG, or ./rowlock.yaml), whose path
    starts at `folder`, or at the current one."""
    given = config or os.environ.get("ROWLOCK_CONFIG")
    path = Path(given) if given else Path("rowlock.yaml")
    file = Path(folder or ".", path)
    text = None
    if given or file.is_file():
        try:
            text = file.read_text("utf-8")
        except OSError as error:
            raise ConfigError(f"cannot read the config file {path}: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"cannot read the config file {path}: it is not UTF-8 text ({error})") from error
    merged = dict(flags or {})
    if database is not None:
        merged["database"] = database
    return load_settings(file_text=text, file_name=str(path), env=os.environ, flags=merged)


try:
    VERSION = version("rowlock")
except PackageNotFoundError:  # a source tree that was never installed
    VERSION = "0.0.0"

__version__ = VERSION
