"""The routes of this system, served beside the job API and behind its checks."""

from __future__ import annotations

from typing import Annotated
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Depends, HTTPException, Path, Query, Request, Response

from rowlock import Rowlock
from rowlock_apps.replays import service
from rowlock_apps.replays.export import MP4, THUMBNAIL
from rowlock_apps.replays.problems import Forbidden, ProblemRoute, documented
from rowlock_apps.replays.replay import Replay
from rowlock_apps.replays.shapes import (
    CreatedJob,
    MatchPage,
    MatchShape,
    NewMatch,
    NewReplay,
    ReplayPage,
    ReplayShape,
    WholeReplay,
    match_shape,
    replay_shape,
)

Page = Annotated[int, Query(ge=0, le=1000)]
Size = Annotated[int, Query(ge=1, le=100)]
ReplayId = Annotated[str, Path(alias="replayId", max_length=100)]
MatchId = Annotated[str, Path(alias="matchId", max_length=100)]

MATCH_NOT_FOUND, REPLAY_NOT_FOUND = documented("MATCH_NOT_FOUND"), documented("REPLAY_NOT_FOUND")
EXPORT_REFUSED = documented("REPLAY_NOT_FOUND", "NO_FRAMES", "INVALID_DURATION", "EXPORTS_FULL")
NO_NUL = r"^[^\x00]*$"  # PostgreSQL cannot compare text with a NUL character


async def owner_of(request: Request) -> str:
    return str(request.state.owner)


Owner = Annotated[str, Depends(owner_of)]


def routes_of(app: Rowlock) -> APIRouter:
    async def find_owner(request: Request) -> None:
        """Let in the users of the system. An operator is none, nor is the holder of a token that reads a single job."""
        try:
            caller = await app.caller(request)
        except HTTPException as refused:
            raise Forbidden if refused.status_code == 403 else refused from None
        if caller.owner is None or not caller.may_change:
            raise Forbidden
        request.state.owner = caller.owner

    router = APIRouter(route_class=ProblemRoute, dependencies=[Depends(find_owner)])
    add_replays(router, app)
    add_exports(router, app)
    add_matches(router, app)
    return router


def zone_of(app: Rowlock) -> ZoneInfo:
    """The zone of the times that people see; the database has UTC."""
    return ZoneInfo(app.settings.api.zone)


def add_replays(router: APIRouter, app: Rowlock) -> None:
    @router.post(
        "/api/replays",
        status_code=201,
        tags=["replays"],
        responses=documented("MATCH_NOT_FOUND", "TOO_MANY_REPLAYS"),
    )
    async def create_replay(new: NewReplay, owner: Owner, request: Request, response: Response) -> ReplayShape:
        """Store a replay."""
        data = Replay(duration_ms=new.duration_ms, players=new.players, frames=new.frames)
        head = await service.create_replay(app, owner, new.title, new.match_id, data)
        response.headers["Location"] = f"{request.scope.get('root_path', '')}/api/replays/{head.id}"
        return replay_shape(head, [], zone_of(app))

    @router.get("/api/replays", tags=["replays"], responses=documented())
    async def list_replays(
        owner: Owner,
        page: Page = 0,
        size: Size = 20,
        match_id: Annotated[str | None, Query(alias="matchId", pattern=NO_NUL, max_length=100)] = None,
    ) -> ReplayPage:
        """My replays, newest first."""
        found, exports = await service.replays(app, owner, match_id, page, size)
        items = [replay_shape(head, exports, zone_of(app)) for head in found[:size]]
        return ReplayPage(items=items, page=page, size=size, has_more=len(found) > size)

    @router.get("/api/replays/{replayId}", tags=["replays"], responses=REPLAY_NOT_FOUND)
    async def get_replay(replay_id: ReplayId, owner: Owner) -> WholeReplay:
        """One of my replays with its frames."""
        head, data, exports = await service.replay(app, owner, replay_id)
        shown = dict(replay_shape(head, exports, zone_of(app)))
        return WholeReplay(**shown, players=data.players, frames=data.frames)

    @router.delete(
        "/api/replays/{replayId}",
        status_code=204,
        tags=["replays"],
        responses=documented("REPLAY_NOT_FOUND", "REPLAY_IN_USE"),
    )
    async def delete_replay(replay_id: ReplayId, owner: Owner) -> None:
        """Delete one of my replays."""
        await service.delete_replay(app, owner, replay_id)


def add_exports(router: APIRouter, app: Rowlock) -> None:
    """Export a replay: the answer is a job, which the job API shows."""

    async def create(owner: str, replay_id: str, job_type: str, request: Request, response: Response) -> CreatedJob:
        job_id = await service.create_export(app, owner, replay_id, job_type)
        response.headers["Location"] = f"{request.scope.get('root_path', '')}/api/jobs/{job_id}"
        return CreatedJob(job_id=job_id)

    @router.post("/api/replays/{replayId}/exports/mp4", status_code=202, tags=["exports"], responses=EXPORT_REFUSED)
    async def export_mp4(replay_id: ReplayId, owner: Owner, request: Request, response: Response) -> CreatedJob:
        """Export one of my replays as a video."""
        return await create(owner, replay_id, MP4, request, response)

    @router.post(
        "/api/replays/{replayId}/exports/thumbnail", status_code=202, tags=["exports"], responses=EXPORT_REFUSED
    )
    async def export_thumbnail(replay_id: ReplayId, owner: Owner, request: Request, response: Response) -> CreatedJob:
        """Export the middle of one of my replays as a picture."""
        return await create(owner, replay_id, THUMBNAIL, request, response)


def add_matches(router: APIRouter, app: Rowlock) -> None:
    @router.post("/api/matches", status_code=201, tags=["matches"], responses=documented("TOO_MANY_MATCHES"))
    async def create_match(new: NewMatch, owner: Owner, request: Request, response: Response) -> MatchShape:
        """Store a match."""
        match = await service.create_match(app, owner, new.title, new.played_at)
        response.headers["Location"] = f"{request.scope.get('root_path', '')}/api/matches/{match.id}"
        return match_shape(match, zone_of(app))

    @router.get("/api/matches", tags=["matches"], responses=documented())
    async def list_matches(owner: Owner, page: Page = 0, size: Size = 20) -> MatchPage:
        """My matches, newest first."""
        found = await service.matches(app, owner, page, size)
        items = [match_shape(match, zone_of(app)) for match in found[:size]]
        return MatchPage(items=items, page=page, size=size, has_more=len(found) > size)

    @router.get("/api/matches/{matchId}", tags=["matches"], responses=MATCH_NOT_FOUND)
    async def get_match(match_id: MatchId, owner: Owner) -> MatchShape:
        """One of my matches."""
        return match_shape(await service.match(app, owner, match_id), zone_of(app))

    @router.delete(
        "/api/matches/{matchId}",
        status_code=204,
        tags=["matches"],
        responses=documented("MATCH_NOT_FOUND", "MATCH_IN_USE"),
    )
    async def delete_match(match_id: MatchId, owner: Owner) -> None:
        """Delete one of my matches, which must have no replays."""
        await service.delete_match(app, owner, match_id)
