"""What a worker's claimer can do next, and the result of a claim. `Plan` chooses the action, `Claimer` carries it out.

`began` is the time of the decision.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple

from rowlock.core.claiming.ranges import Position, QueueTask, Range, Sighting, SourceRange
from rowlock.core.job import Claimed
from rowlock.core.sources.admission import Gate

Tasks = Literal["every", "prefetchable", "in_process"]  # the tasks of a claim: see the fields of Plan


class Fill(NamedTuple):
    """How full the worker is."""

    free: int  # slots for which no job is claimed yet
    waiting: int  # prefetched jobs that wait for a slot
    unsettled: int  # attempts that have returned and whose outcome is not written yet


class Claim(NamedTuple):
    """Claim plain jobs."""

    tasks: Tasks
    ranges: list[Range]
    n: int  # most jobs to claim
    front: bool  # start from the front of the index, not from the low-water marks
    began: float


class Look(NamedTuple):
    """Find sources that have ready jobs."""

    ranges: list[SourceRange]
    began: float


class ClaimSourced(NamedTuple):
    """Claim jobs with a source, and plain jobs in their turn. Several parts are claimed in parallel."""

    parts: list[tuple[list[Sighting], int]]  # sources, and the number of slots for their jobs
    order: list[str]  # the sources in the order of their turns, with PLAIN where plain jobs have theirs
    plain: list[Range]  # where to ask for plain jobs; empty if they have no turn now
    rest: int  # worst priority that plain jobs may have in this claim
    began: float


class ClaimResult(NamedTuple):
    """The result of a claim of jobs with a source."""

    jobs: list[Claimed]
    plain: bool = False  # plain jobs were found
    left: Collection[Position] = ()  # positions that may have more jobs
    gates: Mapping[str, Gate] = {}  # of the sources, after the claim
    locked: Collection[str] = ()  # sources from which another worker was claiming


class Peek(NamedTuple):
    """Ask in one statement whether there is anything to claim or promote: most polls of an idle worker find nothing."""

    served: list[QueueTask]


class Promote(NamedTuple):
    """Make due jobs claimable."""


class SetIdle(NamedTuple):
    """Announce whether enqueues should wake this worker."""

    idle: bool


class Sleep(NamedTuple):
    """Sleep until a time, or until an event."""

    until: float


Action = Claim | Look | ClaimSourced | Peek | Promote | SetIdle | Sleep
