"""A limit of the memory of this process, for the time of one job."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

log = logging.getLogger("rowlock.worker")


@contextmanager
def memory_limit(megabytes: int | None) -> Iterator[None]:
    """Limit the address space to what is used now plus `megabytes`: a job that wants more gets a MemoryError."""
    if megabytes is None:
        yield
        return
    try:
        import resource

        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        before = resource.getrlimit(resource.RLIMIT_AS)
        limit = now + megabytes * 2**20
        if before[1] != resource.RLIM_INFINITY:
            limit = min(limit, before[1])
        resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
    except (ImportError, AttributeError, OSError, ValueError) as error:
        _warn_once(f"memory_mb has no effect on this system: {error}")
        yield
        return
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@cache
def _warn_once(text: str) -> None:
    log.warning(text)
