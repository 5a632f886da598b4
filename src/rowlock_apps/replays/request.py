"""A request of the stream `job.requests`, as the worker behind Redis reads it. No I/O but looking up paths.

The worker trusts nothing in it: any program that can write to the stream could name any path.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rowlock_apps.replays.replay import ExportFailed


class Request(NamedTuple):
    """What a job asks for."""

    job_type: str
    source: Path
    target: Path
    duration_ms: int


def about(fields: Mapping[str, str]) -> dict[str, str] | None:
    """The fields that go back with every message; None if the entry is no request."""
    if not fields.get("jobId"):
        return None
    return {name: fields[name] for name in ("jobId", "attempt") if fields.get(name)}


def read(fields: Mapping[str, str], folder: Path) -> Request:
    """The request, checked; raises ExportFailed. Both of its paths must lie in the folder."""
    try:
        options: dict[str, Any] = json.loads(fields.get("options", ""))
        source, target, duration = options["inputPath"], options["outputPath"], options.get("durationMs") or 0
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ExportFailed("BAD_REQUEST", "options must be JSON with inputPath and outputPath") from None
    if not isinstance(source, str) or not isinstance(target, str) or not isinstance(duration, int):
        raise ExportFailed("BAD_REQUEST", "inputPath and outputPath must be text, durationMs a whole number")
    return Request(
        fields.get("jobType", ""),
        _inside(folder, source, "INVALID_INPUT_PATH"),
        _inside(folder, target, "INVALID_OUTPUT_PATH"),
        duration,
    )


def _inside(folder: Path, given: str, code: str) -> Path:
    """A path in the folder, with every symbolic link on the way followed before it is judged."""
    try:
        found = Path(os.path.realpath(given))
    except (OSError, ValueError) as error:  # a NUL, a loop of links
        raise ExportFailed(code, f"{given!r:.200} is no path: {error}") from None
    if not os.path.isabs(given) or folder not in found.parents:
        raise ExportFailed(code, f"{given!r:.200} is not below {folder}")
    return found
