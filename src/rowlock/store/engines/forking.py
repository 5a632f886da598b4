"""What happens when the process forks: each object that holds what a child must not inherit is called.

A child starts with copies of everything and with none of the threads. Three things would go wrong unseen:

- SQLite keeps its file locks per process, in memory, and the system does not pass them on. A child that opens a file
  which its parent has open believes that it holds the parent's locks: what it writes is lost when somebody else clears
  the log away. So a fork waits until no write is under way, and files are closed while it happens.
- Sockets and the event loop's epoll are shared: a child that tidies up would do so for its parent, too.
- Threads that somebody waits for do not exist in the child.

Programs that are started (`subprocess`, `multiprocessing` with spawn) inherit nothing of this and are no forks.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from typing import Protocol

log = logging.getLogger("rowlock.store")


class Forkable(Protocol):
    """Something with a say in a fork."""

    def before_fork(self) -> None: ...
    def after_fork(self, child: bool) -> None: ...


_lock = threading.RLock()  # held during a fork, so that none is added meanwhile
_watched: weakref.WeakSet[Forkable] = weakref.WeakSet()
_told: list[Forkable] = []  # before the fork that happens now


def watch(one: Forkable) -> None:
    """Tell it about forks for as long as it lives."""
    with _lock:
        _watched.add(one)


def _before() -> None:
    _lock.acquire()
    _told[:] = _watched
    for one in _told:
        one.before_fork()


def _after(child: bool) -> None:
    told = _told[:]
    _told.clear()
    try:
        for one in told:
            try:
                one.after_fork(child)
            except Exception:
                log.exception("after a fork")
    finally:
        _lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=lambda: _after(child=False), after_in_child=lambda: _after(child=True)
    )
