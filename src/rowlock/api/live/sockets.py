"""Live events by WebSocket, and the tickets with which browsers open one."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

from fastapi import WebSocket
from starlette.websockets import WebSocketDisconnect

from rowlock.api.access import tokens
from rowlock.api.access.own_jobs import EVERYONE
from rowlock.api.access.sender import Asker
from rowlock.api.context import Service, Serving, Who, api_router
from rowlock.api.live.messages import CHECK_SECONDS, messages
from rowlock.api.problems import UNUSABLE, Refusal, documented, unauthorized, unavailable
from rowlock.api.schemas import Shape

TICKET_SECONDS = 30.0
HELLO_SECONDS = 10.0  # for the first message of a socket without a ticket
SEND_SECONDS = 20.0  # for a client to take one message
FAREWELL_SECONDS = 1.0  # for a client to take the message that it is closed with
HELLO_BYTES = 16_384
REFUSED, RESYNC, OVERLOADED, RESTART, TRY_LATER = 4401, 4409, 4429, 1012, 1013  # close codes of sockets

router = api_router(tags=["live"])


class TicketShape(Shape):
    """A ticket for one WebSocket."""

    ticket: str
    expires_in: int


@router.post("/api/tickets", status_code=201, responses=documented())
async def create_ticket(service: Serving, asker: Who) -> TicketShape:
    """A one-time ticket for the URL of a WebSocket, because browsers cannot send a header when opening one."""
    secret = tokens.new_secret()
    await service.run(tokens.create_ticket(secret, asker, TICKET_SECONDS))
    return TicketShape(ticket=secret, expires_in=int(TICKET_SECONDS))


@router.websocket("/api/ws")
async def watch_by_socket(socket: WebSocket, service: Serving) -> None:
    """Serve one WebSocket: authenticate it, then send events until it disconnects or its token becomes invalid."""
    await socket.accept()
    hello: dict[str, str | None] = {"lastEventId": socket.query_params.get("lastEventId")}
    try:
        asker = await _asker(socket, service, hello)
        with service.connection(asker):
            await _serve(socket, service, asker, hello["lastEventId"])
    except Refusal as refusal:
        await _farewell(socket, REFUSED if refusal.status == 401 else OVERLOADED, _error(refusal, hello))
    except (WebSocketDisconnect, TimeoutError):
        await _farewell(socket, REFUSED)
    except UNUSABLE:
        await _farewell(socket, TRY_LATER, _error(unavailable(), hello))


def _error(refusal: Refusal, hello: Mapping[str, str | None]) -> dict[str, Any]:
    """The message to a client that is not served. It returns the position that the client sent: a client takes its
    position from every message, and without one it would come back as a new client and miss events."""
    return {**refusal.body(), "type": "error", "eventId": hello["lastEventId"]}


async def _serve(socket: WebSocket, service: Service, asker: Asker, since: str | None) -> None:
    parts = (_send(socket, service, asker, since), _left(socket), _barred(socket, service, asker))
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _asker(socket: WebSocket, service: Service, hello: dict[str, str | None]) -> Asker:
    """Who opened this socket: from the ticket in its URL, a header, or its first message
    `{"token": …, "lastEventId": …}`, which is added to `hello`."""
    if (secret := socket.query_params.get("ticket")) is not None:
        ticket = await service.run(tokens.use_ticket(secret))
        if ticket is None:
            raise unauthorized()
        owner = EVERYONE if ticket.owner is None else ticket.owner
        return Asker(owner, ticket.scope, ticket.token_id, ticket.job_id, ticket.good_until)
    if (known := await service.authenticator.asker_of(socket)) is not None:
        return known
    async with asyncio.timeout(HELLO_SECONDS):
        hello |= _read_hello(await socket.receive_text())
    asker = await service.authenticator.asker_of_token(hello["token"] or "")
    if asker is None:
        raise unauthorized()
    return asker


def _read_hello(text: str) -> dict[str, str | None]:
    try:
        found = json.loads(text) if len(text) <= HELLO_BYTES else None
    except (ValueError, RecursionError):
        found = None
    given = found if isinstance(found, dict) else {}
    return {name: value if isinstance(value := given.get(name), str) else None for name in ("token", "lastEventId")}


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
