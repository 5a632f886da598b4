"""Live events for clients: the messages, and how they are sent as server-sent events, which strict proxies let through.
sockets.py sends them by WebSocket.

An event is committed with its change (events.py), read by the one reader of this server (reader.py), queued for
each client that may see it, and sent from here. Operators are sent which pages to read again as well (panels.py).
Each message has the position from which a client can resume. A client that was disconnected for too long, or reads too
slowly, gets `resync`: it must reload its jobs.

After `resync` a socket is closed, and comes back without a position. A browser comes back to a stream of server-sent
events by itself, with the position of the `resync`. Where a transaction has kept an id open for longer than events are
kept, no position is good, and it would get nothing but `resync` for ever: so the stream goes on instead.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, nullcontext
from typing import Annotated, Any

from fastapi import Depends, Header
from fastapi.sse import EventSourceResponse, ServerSentEvent

from rowlock.api.access.sender import Asker
from rowlock.api.context import JobId, Service, Serving, Who, api_router
from rowlock.api.problems import Refusal, documented
from rowlock.api.schemas import end_data, event_data

CHECK_SECONDS = 2.0  # between checks whether the token of an open connection is still valid
Messages = AsyncGenerator[dict[str, Any], None]

router = api_router(tags=["live"])


async def messages(
    service: Service,
    asker: Asker,
    job_id: str | None,
    since: str | None,
    *,
    goes_on: bool = False,
    end: Callable[[], Awaitable[dict[str, Any] | None]] | None = None,
) -> Messages:
    """The messages for a client: `ready`, then events while the token is valid; `resync` if events would be missing,
    and after that no more, or with `goes_on` those of a client that comes for the first time. `end` returns how the
    watched job ended, if it ended before the watching began and no missed event shows it. An operator is sent which
    pages to read again as well, with the position of the last event."""
    feed, zone = service.feed, service.zone
    sees_all = asker.is_operator and job_id is None
    async with (
        feed.watching(asker.owner, job_id) as watcher,
        service.panels.watching(watcher) if sees_all else nullcontext(),
    ):
        at = str(feed.position())
        missed = [] if since is None else await feed.missed(watcher, since)
        if missed is None:
            yield {"type": "resync", "eventId": at}
            if not goes_on:
                return
            missed, since = [], None
        at = at if since is None else since
        yield {"type": "ready", "eventId": at}
        for event, position in missed:
            yield {**event_data(event, zone), "eventId": (at := str(position))}
        if end is not None and (ended := await end()) is not None:
            yield {**ended, "eventId": at}
            return
        sent = {event.id for event, _ in missed}
        while not feed.ended and await service.token_is_good(asker):
            for event, position in await watcher.take(CHECK_SECONDS):
                if event.id not in sent and await service.token_is_good(asker):
                    yield {**event_data(event, zone), "eventId": (at := str(position))}
            if watcher.pages:
                changed, watcher.pages = sorted(watcher.pages), set()
                yield {"type": "panels.changed", "panels": changed, "eventId": at}
            if watcher.overrun:
                yield {"type": "resync", "eventId": str(feed.position())}
                return


# --- server-sent events

# Both streams are dependencies. What refuses them must come before the stream has begun. And a client may be cut off
# while a message is sent to it: the messages are then closed here, with all that they hold, and not by Python's garbage
# collection.

LastEventId = Annotated[str | None, Header(max_length=100)]


async def _of_all_jobs(
    service: Serving, asker: Who, last_event_id: LastEventId = None
) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    if asker.job_id is not None:
        raise Refusal("FORBIDDEN", "this token can only read one job")
    with service.connection(asker):
        async with aclosing(messages(service, asker, None, last_event_id, goes_on=True)) as stream:
            yield stream


async def _of_one_job(
    service: Serving,
    asker: Who,
    job_id: JobId,
    last_event_id: LastEventId = None,
) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    job = await service.job_of(asker, job_id)

    async def end() -> dict[str, Any] | None:
        now = await service.job_of(asker, job.id)
        return end_data(now, service.zone) if now.final else None

    with service.connection(asker):
        async with aclosing(messages(service, asker, job.id, last_event_id, goes_on=True, end=end)) as stream:
            yield stream


@router.get(
    "/api/events",
    response_class=EventSourceResponse,
    responses=documented("FORBIDDEN", "TOO_MANY_CONNECTIONS", "INVALID_REQUEST"),
)
async def watch_jobs(stream: Annotated[Messages, Depends(_of_all_jobs)]) -> AsyncIterator[ServerSentEvent]:
    """Events of all jobs of the token's owner."""
    async for message in stream:
        yield _server_sent(message)


@router.get(
    "/api/jobs/{jobId}/events",
    response_class=EventSourceResponse,
    responses=documented("JOB_NOT_FOUND", "TOO_MANY_CONNECTIONS", "INVALID_REQUEST"),
)
async def watch_job(stream: Annotated[Messages, Depends(_of_one_job)]) -> AsyncIterator[ServerSentEvent]:
    """Events of one job; the stream ends with the job. For a job that has already ended, it sends only the end."""
    async for message in stream:
        yield _server_sent(message)
        if message.get("done"):
            return


def _server_sent(message: dict[str, Any]) -> ServerSentEvent:
    return ServerSentEvent(data=message, event=str(message["type"]), id=str(message["eventId"]))
