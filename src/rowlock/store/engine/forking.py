"""Hooks for forks: objects whose state a child process must not inherit are called before and after a fork.

A child starts with copies of everything but without the threads. Three things would silently go wrong:

- SQLite keeps in memory which file locks the process holds, but the kernel does not pass locks on to a child. A child
  that opens a file which its parent has open believes that it holds the parent's locks, and loses what it writes when
  another process resets the write-ahead log. So a fork waits for writes to end, and files are closed while it happens.
- Sockets and the event loop's epoll are shared: a child that closes its copies would affect its parent.
- Threads don't exist in the child, and code that waits for one would wait forever.

Programs that are started afresh (`subprocess`, `multiprocessing` with spawn) inherit none of this and are not forks.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from typing import Protocol

log = logging.getLogger("rowlock.store")


class Forkable(Protocol):
    """An object that must act before or after a fork."""

    def before_fork(self) -> None:
        return  # most objects do nothing before the fork

    def after_fork(self, child: bool) -> None: ...


_lock = threading.RLock()  # held during a fork, so that no object is added meanwhile
_watched: weakref.WeakSet[Forkable] = weakref.WeakSet()
_forking: list[Forkable] = []  # the objects called before the current fork, which are called again after it


def watch(one: Forkable) -> None:
    """Call this object's hooks at every fork for as long as it lives."""
    with _lock:
        _watched.add(one)


def _before() -> None:
    _lock.acquire()
    _forking[:] = _watched
    for one in _forking:
        one.before_fork()


def _after(child: bool) -> None:
    watched = _forking[:]
    _forking.clear()
    try:
        for one in watched:
            try:
                one.after_fork(child)
            except Exception:
                log.exception("an object could not be restored after a fork")
    finally:
        _lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=lambda: _after(child=False), after_in_child=lambda: _after(child=True)
    )
