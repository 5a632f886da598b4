"""Hooks for forks: every object that holds something that a child process must not inherit is told of a fork.

A child starts with copies of everything and with none of the threads. Three things would go wrong unseen:

- SQLite keeps in memory which file locks the process holds, and the kernel does not pass locks on to a child. A child
  that opens a file which its parent has open believes that it holds the parent's locks, and loses what it writes when
  another process resets the write-ahead log. So a fork waits for writes to end, and files are closed while it happens.
- Sockets and the event loop's epoll are shared: a child that closes its copies would affect its parent, too.
- Threads do not exist in the child, and whatever waits for one would wait for ever.

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
    """An object that is told of forks."""

    def before_fork(self) -> None:
        return  # most have nothing to do in the parent

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
