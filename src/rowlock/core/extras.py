"""Libraries that only some users need, and that an extra of the package installs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rowlock.core.errors import ConfigError

API = ("api", "the job API needs more packages")


@contextmanager
def needs(extra: str, what: str) -> Iterator[None]:
    """A block of imports. If a library is missing, it raises a ConfigError that names the extra to install."""
    try:
        yield
    except ImportError as error:
        raise ConfigError(f'{what}: pip install "rowlock[{extra}]"') from error
