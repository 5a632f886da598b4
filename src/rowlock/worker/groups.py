"""A failure of several tasks at once: which of the exceptions in a group says how the attempt ended.

The gravest of those that say what happens next: Permanent, then Retry, SourceError, Snooze. Else the first failure.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from rowlock.core.errors import LeaseLost, Permanent, Retry, Snooze, SourceError
from rowlock.core.job import Claimed

SPOKEN = (Permanent, Retry, SourceError, Snooze)
MOST = 10_000  # exceptions of one group that are read


class Picked(NamedTuple):
    """The exception that counts, and what was raised beside it."""

    cause: BaseException
    others: tuple[BaseException, ...] = ()


def pick(error: BaseException, job: Claimed) -> Picked:
    """What an attempt of `job` that raised `error` has failed with."""
    if not isinstance(error, BaseExceptionGroup):
        return Picked(error)
    members = _members(error)
    cause = min(members, key=lambda member: _rank(member, job), default=error)
    others = (member for member in members if member is not cause and not isinstance(member, asyncio.CancelledError))
    return Picked(cause, tuple(others))


def speaks_of(error: BaseException, job: Claimed) -> bool:
    """Whether the error is a LeaseLost of this attempt's own lease: a handler may hold leases of other jobs."""
    return isinstance(error, LeaseLost) and (error.job_id, error.token) == (job.id, job.token)


def _members(group: BaseException) -> list[BaseException]:
    """The exceptions in a group and in the groups in it, in their order."""
    found: list[BaseException] = []
    waiting = [group]
    for _ in range(MOST):
        if not waiting:
            break
        member = waiting.pop()
        if isinstance(member, BaseExceptionGroup):
            waiting.extend(reversed(member.exceptions))
        else:
            found.append(member)
    return found


def _rank(member: BaseException, job: Claimed) -> int:
    if speaks_of(member, job):
        return -1
    for rank, kind in enumerate(SPOKEN):
        if isinstance(member, kind):
            return rank
    return len(SPOKEN) + isinstance(member, asyncio.CancelledError)
