"""Live events for clients: by WebSocket, and by server-sent events, which also pass through strict proxies.

Both send the same messages, each with the position from which a client can resume. A client that was disconnected for
too long, or reads too slowly, gets `resync`: it must reload its jobs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import Depends, Header, Path, WebSocket
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.websockets import WebSocketDisconnect

from rowlock.api.asker import Asker
from rowlock.api.changes import View
from rowlock.api.feed import Position, Watcher
from rowlock.api.problems import UNUSABLE, Refusal, documented, unauthorized, unavailable
from rowlock.api.routers import api_router
from rowlock.api.service import Service, Serving, Who
from rowlock.api.shapes import Shape, end_data, event_data
from rowlock.store import tokens
from rowlock.store.events import Event
from rowlock.store.owned import EVERYONE
from rowlock.store.tokens import Ticket

TICKET_SECONDS = 30.0
HELLO_SECONDS = 10.0  # for the first message of a socket without a ticket
CHECK_SECONDS = 2.0  # between checks whether the token of an open connection is still valid
SEND_SECONDS = 20.0  # for a client to take one message
FAREWELL_SECONDS = 1.0  # for a client to take the message that it is closed with
HELLO_BYTES = 16_384
REFUSED, RESYNC, OVERLOADED, RESTART, TRY_LATER = 4401, 4409, 4429, 1012, 1013  # close codes of sockets

router = api_router(tags=["live"])
Messages = AsyncGenerator[dict[str, Any], None]


class TicketShape(Shape):
    """A ticket for one WebSocket."""

    ticket: str
    expires_in: int


@router.post("/api/tickets", status_code=201, response_model=TicketShape, responses=documented())
async def create_ticket(service: Serving, asker: Who) -> TicketShape:
    """A one-time ticket for the URL of a WebSocket, because browsers cannot send a header when opening one."""
    secret = tokens.new_secret()
    owner = None if asker.owner is EVERYONE else str(asker.owner)
    ticket = Ticket(owner, asker.scope, asker.token_id, asker.job_id, asker.good_until)
    await service.run(tokens.create_ticket(secret, ticket, TICKET_SECONDS))
    return TicketShape(ticket=secret, expires_in=int(TICKET_SECONDS))


# --- server-sent events


# Both streams are dependencies. What refuses them must come before the stream has begun. And a client may be cut off
# while a message is sent to it: the messages are then closed here, with all that they hold, and not by Python's garbage
# collection.

LastEventId = Annotated[str | None, Header(max_length=100)]


async def _of_all_jobs(
    service: Serving, asker: Who, last_event_id: LastEventId = None
) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """The messages about all jobs of the sender."""
    if asker.job_id is not None:
        raise Refusal("FORBIDDEN", "this token can only read one job")
    with service.connection(asker):
        async with aclosing(messages(service, asker, None, last_event_id)) as stream:
            yield stream


async def _of_one_job(
    service: Serving,
    asker: Who,
    job_id: Annotated[str, Path(alias="jobId", max_length=100)],
    last_event_id: LastEventId = None,
) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """The messages about one job."""
    job = await service.job_of(asker, job_id)

    async def end() -> dict[str, Any] | None:
        now = await service.job_of(asker, job.id)
        return end_data(now, service.zone) if now.final else None

    with service.connection(asker):
        async with aclosing(messages(service, asker, job.id, last_event_id, end)) as stream:
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


# --- the WebSocket


@router.websocket("/api/ws")
async def watch_by_socket(socket: WebSocket, service: Serving) -> None:
    """Serve one WebSocket: authenticate it, then send events until it disconnects or its token becomes invalid."""
    await socket.accept()
    try:
        asker, since = await _hello(socket, service)
        with service.connection(asker):
            await _serve(socket, service, asker, since)
    except Refusal as refusal:
        await _farewell(socket, REFUSED if refusal.status == 401 else OVERLOADED, {"type": "error", **refusal.body()})
    except (WebSocketDisconnect, TimeoutError):
        await _farewell(socket, REFUSED)
    except UNUSABLE:
        await _farewell(socket, TRY_LATER, {"type": "error", **unavailable().body()})


async def _serve(socket: WebSocket, service: Service, asker: Asker, since: str | None) -> None:
    sending = asyncio.ensure_future(_send(socket, service, asker, since))
    others = {asyncio.ensure_future(_left(socket)), asyncio.ensure_future(_barred(socket, service, asker))}
    try:
        await asyncio.wait({sending, *others}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (sending, *others):
            task.cancel()
        await asyncio.gather(sending, *others, return_exceptions=True)


async def _hello(socket: WebSocket, service: Service) -> tuple[Asker, str | None]:
    """Who opened this socket, and the event to resume after: from the ticket in its URL, a header, or its first
    message `{"token": …, "lastEventId": …}`."""
    since = socket.query_params.get("lastEventId")
    if (secret := socket.query_params.get("ticket")) is not None:
        ticket = await service.run(tokens.use_ticket(secret))
        if ticket is None:
            raise unauthorized()
        owner = EVERYONE if ticket.owner is None else ticket.owner
        return Asker(owner, ticket.scope, ticket.token_id, ticket.job_id, ticket.good_until), since
    if (known := await service.authenticator.asker_of(socket)) is not None:
        return known, since
    async with asyncio.timeout(HELLO_SECONDS):
        hello = _read_hello(await socket.receive_text())
    token, since = hello.get("token"), hello.get("lastEventId")
    asker = await service.authenticator.asker_of_token(token) if isinstance(token, str) else None
    if asker is None:
        raise unauthorized()
    return asker, since if isinstance(since, str) else None


def _read_hello(text: str) -> dict[str, Any]:
    try:
        hello = json.loads(text) if len(text) <= HELLO_BYTES else None
    except (ValueError, RecursionError):
        hello = None
    return hello if isinstance(hello, dict) else {}


async def _send(socket: WebSocket, service: Service, asker: Asker, since: str | None) -> None:
    code = REFUSED  # the messages end when the token is no longer valid
    try:
        async with aclosing(messages(service, asker, asker.job_id, since)) as stream:
            async for message in stream:
                async with asyncio.timeout(SEND_SECONDS):
                    await socket.send_json(message)
                code = RESYNC if message["type"] == "resync" else REFUSED
    except UNUSABLE:
        code = TRY_LATER
    await _farewell(socket, RESTART if service.feed.ended else code)


async def _barred(socket: WebSocket, service: Service, asker: Asker) -> None:
    """Wait until the token of a socket is no longer valid, and close the socket, even while the sender waits for a slow
    client."""
    while await service.token_is_good(asker):
        await asyncio.sleep(CHECK_SECONDS)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(FAREWELL_SECONDS):
            await _farewell(socket, REFUSED)


async def _left(socket: WebSocket) -> None:
    """Wait until the client disconnects. Messages that it sends are ignored."""
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):
        while True:
            await socket.receive_text()


async def _farewell(socket: WebSocket, code: int, message: dict[str, Any] | None = None) -> None:
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # it may have left already
        if message is not None:
            await socket.send_json(message)
        await socket.close(code)


# --- what both send


async def messages(
    service: Service,
    asker: Asker,
    job_id: str | None,
    since: str | None,
    end: Callable[[], Awaitable[dict[str, Any] | None]] | None = None,
) -> Messages:
    """The messages for a client: `ready`, then events while the token is valid; `resync` if events would be missing.
    `end` returns how the watched job ended, if it ended before the watching began and no missed event shows it. An
    operator also gets the state of all queues and jobs, and its changes, with the position of the last event."""
    feed, zone = service.feed, service.zone
    async with feed.watching(asker.owner, job_id) as watcher, _view(service, asker, job_id, watcher) as view:
        at = str(feed.position())
        missed = await _missed(service, watcher, since)
        if missed is None:
            yield {"type": "resync", "eventId": at}
            return
        at = at if since is None else since
        yield {"type": "ready", "eventId": at}
        for event, position in missed:
            yield {**event_data(event, zone), "eventId": (at := str(position))}
        if end is not None and (told := await end()) is not None:
            yield {**told, "eventId": at}
            return
        sent = {event.id for event, _ in missed}
        while not feed.ended and await service.token_is_good(asker):
            for event, position in await _soon(watcher):
                if event.id not in sent and await service.token_is_good(asker):
                    yield {**event_data(event, zone), "eventId": (at := str(position))}
            for message in view.take(zone) if view is not None else ():
                yield {**message, "eventId": at}
            if watcher.overrun:
                yield {"type": "resync", "eventId": str(feed.position())}
                return


@contextlib.asynccontextmanager
async def _view(service: Service, asker: Asker, job_id: str | None, watcher: Watcher) -> AsyncIterator[View | None]:
    """The changes of all queues, for an operator who watches all jobs; None for other clients."""
    if not asker.is_operator or job_id is not None:
        yield None
        return
    async with service.changes.watching(watcher.wake) as view:
        yield view


async def _missed(service: Service, watcher: Watcher, since: str | None) -> list[tuple[Event, Position]] | None:
    """The events after the last one that the client has; None if it must reload its jobs instead."""
    if since is None:
        return []
    position = Position.read(since)
    return None if position is None else await service.feed.missed(watcher, position)


async def _soon(watcher: Watcher) -> list[tuple[Event, Position]]:
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            return await watcher.take()
    except TimeoutError:
        return []
