"""What a worker's claimer can do next. claiming.py decides which of these it is, worker/claim/claimer.py does it.

`began` is the time of the decision.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from rowlock.core.claiming.candidates import Head, Range
from rowlock.core.claiming.ranges import Lane

Tasks = Literal["every", "prefetchable", "in_process"]  # which tasks a claim is for: see the fields of Plan


class Fill(NamedTuple):
    """How full the worker is: the properties of its `Slots`."""

    free: int  # slots for which no job is claimed yet
    waiting: int  # jobs claimed beyond the free slots
    unsettled: int  # attempts that have returned, and whose outcome is not written yet


class Claim(NamedTuple):
    """Claim jobs without a source."""

    tasks: Tasks
    ranges: list[Lane]
    n: int  # how many jobs at most
    front: bool  # from the front of the index, not from the low-water marks
    began: float


class Look(NamedTuple):
    """Look which sources have ready jobs."""

    ranges: list[Range]
    began: float


class ClaimSourced(NamedTuple):
    """Claim jobs with a source, and jobs without one in their turn. Several parts are claimed side by side."""

    parts: list[tuple[list[Head], int]]  # sources, and for how many slots
    order: list[str]  # the sources in turn; "" where the jobs without a source have theirs
    plain: list[Lane]  # where to ask for jobs without a source; empty if they have no turn now
    rest: int  # jobs without a source of a worse priority than this are not next yet
    began: float


class Promote(NamedTuple):
    """Make due jobs claimable."""


class SetIdle(NamedTuple):
    """Announce that this worker wants to be woken, or no longer wants to be."""

    idle: bool


class Sleep(NamedTuple):
    """Sleep until then, unless something is reported before."""

    until: float


Action = Claim | Look | ClaimSourced | Promote | SetIdle | Sleep
