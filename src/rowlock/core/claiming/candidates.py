"""Heads: what a look at the sources asks for and shows, and what a claim of their jobs brought."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from rowlock.core.job import MIN_PRIORITY, Claimed
from rowlock.core.sources.admission import Gate

LaneName = tuple[str, str]  # queue and task
HeadName = tuple[str, str, int, str]  # queue, task, priority and source
Position = tuple[int, str]  # of a source in a lane: by priority, then by name
FRONT: Position = (MIN_PRIORITY - 1, "")
LOOK = 256  # sources in one look while jobs can start


class Range(NamedTuple):
    """What a look reads in one lane: the next `most` sources after (low_priority, low_source), by priority and name."""

    queue: str
    task: str
    low_priority: int = FRONT[0]
    low_source: str = FRONT[1]
    most: int = LOOK  # sources


class Head(NamedTuple):
    """A source with ready jobs in one lane and priority, and its gate when it was looked at."""

    queue: str
    task: str
    priority: int
    source: str
    end: bool  # the look stopped here in this lane because it had read `Range.most` sources; there may be more
    gate: Gate


class ClaimResult(NamedTuple):
    """What a claim of jobs with a source brought."""

    jobs: list[Claimed]
    plain: bool = False  # there were jobs without a source
    left: Collection[HeadName] = ()  # heads that may have more jobs
    gates: Mapping[str, Gate] = {}  # of the sources, after the claim
    locked: Collection[str] = ()  # sources from which another worker was claiming
