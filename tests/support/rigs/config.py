"""Settings as a process would load them, and the one line by which a mistake is refused."""

from typing import Any

import pytest

from rowlock.core.config import Settings, load_settings
from rowlock.core.errors import ConfigError


def load(file: str | None = None, env: dict[str, str] | None = None, **flags: Any) -> Settings:
    dotted = {key.replace("__", "."): value for key, value in flags.items()}
    return load_settings(file_text=file, file_name="rowlock.yaml", env=env or {}, flags=dotted)


def mistake(file: str | None = None, env: dict[str, str] | None = None, **flags: Any) -> str:
    with pytest.raises(ConfigError) as failure:
        load(file, env, **flags)
    message = str(failure.value)
    assert "\n" not in message
    return message
