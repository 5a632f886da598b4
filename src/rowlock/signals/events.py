"""The events of a worker (`Watcher`), for the log, metrics and Sentry to listen to.

A worker calls the methods of `Watcher` and does not know the listeners, which are chosen when it starts. An event that
no listener implements costs one empty call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from rowlock.core.job import Claimed
from rowlock.core.policy import Transition
from rowlock.core.states import Outcome

log = logging.getLogger("rowlock.worker")


class Watcher:
    """Base class of listeners: one method for each event of a worker. The methods here do nothing."""

    def claimed(self, jobs: Sequence[Claimed], sent: float) -> None:
        """A claim, sent at this `boottime`, returned these jobs."""

    def written(self, count: int, began: float) -> None:
        """A batch of this many outcomes, begun at this `time.monotonic`, is written."""

    def succeeded(self, done: Sequence[tuple[Claimed, float]]) -> None:
        """These attempts succeeded, each after its seconds, and their outcomes are written."""

    def ended(self, job: Claimed, transition: Transition, seconds: float) -> None:
        """An attempt ended in another way, and its outcome is written."""

    def refused(self, job: Claimed, outcome: Outcome) -> None:
        """An outcome came after the lease was lost, and changed nothing."""

    def lost(self, job: Claimed) -> None:
        """A running attempt has lost its lease."""

    def reclaimed(self, lost: Sequence[tuple[Claimed, Transition]]) -> None:
        """Leases of other workers ran out, and this one has ended them."""

    def rested(self) -> None:
        """There is nothing to claim for the moment."""

    def stopped(self) -> None:
        """The worker has stopped: flush."""


class Watchers(Watcher):
    """Several listeners as one."""

    def __init__(self, *watchers: Watcher) -> None:
        for event, nothing in vars(Watcher).items():
            heard = [getattr(each, event) for each in watchers if getattr(type(each), event) is not nothing]
            if heard and not event.startswith("_"):
                setattr(self, event, _to_each(heard))


def _to_each(heard: list[Callable[..., None]]) -> Callable[..., None]:
    """Call the method of each listener; one that raises is logged, and the others are still called."""

    def notify(*about: Any) -> None:
        for each in heard:
            try:
                each(*about)
            except Exception:
                with suppress(Exception):  # a logging filter is user code
                    log.exception("a listener failed: %r", each)

    return notify
