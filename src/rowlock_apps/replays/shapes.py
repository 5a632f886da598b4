"""What goes over the wire of the replay and match routes."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

from pydantic import AwareDatetime, Field

from rowlock_apps.replays.export import MP4
from rowlock_apps.replays.records import Export, Head, Match
from rowlock_apps.replays.replay import Frame, Player, Replay, Shape, Text


class ExportShape(Shape):
    """A job that exports a replay. The job API has more about it."""

    job_id: str
    job_type: str = Field(examples=[MP4])
    status: str = Field(examples=["RUNNING"])
    progress: int


class ReplayShape(Shape):
    """A replay without its frames, and its newest export of each kind."""

    replay_id: str
    title: str
    match_id: str | None
    duration_ms: int
    frame_count: int
    created_at: datetime
    exports: list[ExportShape]


class WholeReplay(ReplayShape):
    """A replay with its frames."""

    players: list[Player]
    frames: list[Frame]


class ReplayPage(Shape):
    """Some of an owner's replays, newest first."""

    items: list[ReplayShape]
    page: int
    size: int
    has_more: bool


class NewReplay(Replay):
    """A replay to store."""

    title: Text
    match_id: str | None = Field(default=None, max_length=100)


class MatchShape(Shape):
    """A match."""

    match_id: str
    title: str
    played_at: datetime | None
    created_at: datetime
    replay_count: int


class MatchPage(Shape):
    """Some of an owner's matches, newest first."""

    items: list[MatchShape]
    page: int
    size: int
    has_more: bool


class NewMatch(Shape):
    """A match to store."""

    title: Text
    played_at: AwareDatetime | None = None


class CreatedJob(Shape):
    """The job of an export."""

    job_id: str


def replay_shape(head: Head, exports: list[Export], zone: ZoneInfo) -> ReplayShape:
    return ReplayShape(
        replay_id=head.id,
        title=head.title,
        match_id=head.match_id,
        duration_ms=head.duration_ms,
        frame_count=head.frame_count,
        created_at=head.created_at.astimezone(zone),
        exports=[
            ExportShape(job_id=one.job_id, job_type=one.job_type, status=one.status, progress=one.progress)
            for one in exports
            if one.replay_id == head.id
        ],
    )


def match_shape(match: Match, zone: ZoneInfo) -> MatchShape:
    return MatchShape(
        match_id=match.id,
        title=match.title,
        played_at=None if match.played_at is None else match.played_at.astimezone(zone),
        created_at=match.created_at.astimezone(zone),
        replay_count=match.replays,
    )
