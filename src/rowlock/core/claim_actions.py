"""What a worker's claimer can do next. claiming.py decides which of these it is, worker/claimer.py does it."""

from __future__ import annotations

from typing import Literal, NamedTuple

from rowlock.core.heads import Head, Range
from rowlock.core.lanes import Lane

Tasks = Literal["every", "prompt", "slow"]  # which tasks a claim is for: see the fields of Plan


class Fill(NamedTuple):
    """How full the worker is."""

    free: int  # slots without an attempt
    waiting: int  # jobs claimed and waiting for a slot
    unsettled: int  # outcomes on their way to the database


class Claim(NamedTuple):
    """Claim jobs without a source."""

    tasks: Tasks
    ranges: list[Lane]
    n: int
    front: bool  # from the front of the index, not from the low-water marks
    began: float


class Look(NamedTuple):
    """Look which sources have ready jobs."""

    ranges: list[Range]
    began: float


class ClaimSourced(NamedTuple):
    """Claim jobs with a source, and jobs without one in their turn. Several parts are claimed side by side."""

    parts: list[tuple[list[Head], int]]  # sources, and for how many slots
    order: list[str]
    plain: list[Lane]
    rest: int
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
