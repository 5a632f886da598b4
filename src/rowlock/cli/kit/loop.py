"""The event loop of every command: uvloop where it is installed."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_async(work: Coroutine[Any, Any, T]) -> T:
    import asyncio  # imported here: --help does not need it

    try:
        import uvloop
    except ImportError:  # not on every platform
        return asyncio.run(work)
    return uvloop.run(work)
