"""What a worker's claimer can do next, and what a claim brought. `Plan` chooses the action, `Claimer` carries it out.

`began` is the time of the decision.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple

from rowlock.core.claiming.ranges import Position, QueueTask, Range, Sighting, SourceRange
from rowlock.core.job import Claimed
from rowlock.core.sources.admission import Gate

Tasks = Literal["every", "prefetchable", "in_process"]  # which tasks a claim is for: see the fields of Plan


class Fill(NamedTuple):
    """How full the worker is."""

    free: int  # slots for which no job is claimed yet
    waiting: int  # jobs claimed beyond the free slots
    unsettled: int  # attempts that have returned, and whose outcome is not written yet


class Claim(NamedTuple):
    """Claim plain jobs."""

    tasks: Tasks
    ranges: list[Range]
    n: int  # how many jobs at most
    front: bool  # from the front of the index, not from the low-water marks
    began: float


class Look(NamedTuple):
    """Look which sources have ready jobs."""

    ranges: list[SourceRange]
    began: float


class ClaimSourced(NamedTuple):
    """Claim jobs with a source, and plain jobs in their turn. Several parts are claimed side by side."""

    parts: list[tuple[list[Sighting], int]]  # sources, and for how many slots
    order: list[str]  # the sources in turn; PLAIN where the plain jobs have theirs
    plain: list[Range]  # where to ask for plain jobs; empty if they have no turn now
    rest: int  # lowest priority that plain jobs may have in this claim
    began: float


class ClaimResult(NamedTuple):
    """What a claim of jobs with a source brought."""

    jobs: list[Claimed]
    plain: bool = False  # there were plain jobs
    left: Collection[Position] = ()  # positions that may have more jobs
    gates: Mapping[str, Gate] = {}  # of the sources, after the claim
    locked: Collection[str] = ()  # sources from which another worker was claiming


class Peek(NamedTuple):
    """Ask whether there is anything to claim or to promote, in one statement: most polls of an idle worker find
    nothing."""

    served: list[QueueTask]


class Promote(NamedTuple):
    """Make due jobs claimable."""


class SetIdle(NamedTuple):
    """Announce that this worker wants to be woken, or no longer wants to be."""

    idle: bool


class Sleep(NamedTuple):
    """Sleep until then, unless something is reported before."""

    until: float


Action = Claim | Look | ClaimSourced | Peek | Promote | SetIdle | Sleep
