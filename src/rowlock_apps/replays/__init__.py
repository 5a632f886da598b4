"""Replays: users upload replays of matches and export them as MP4 or thumbnail (the system of document S3).

`rowlock up --app rowlock_apps.replays:app` runs it. `app` is made when it is first asked for: the worker behind Redis
(`python -m rowlock_apps.replays.worker`) is in this package too, and must know neither Rowlock nor its database.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rowlock_apps.replays.app import Replays, app

__all__ = ["Replays", "app"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = import_module("rowlock_apps.replays.app")
    return getattr(found, name)
