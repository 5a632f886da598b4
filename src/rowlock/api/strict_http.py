"""Refuses requests that a proxy and this server could read differently (request smuggling), and closes connections of
clients that are slow on purpose: to send a request, or to take its answer.

A proxy and this server must agree where each request ends. h11 is generous where RFC 9112 lets a server be: it takes
lines that end without a carriage return, folded header lines, a length beside chunks, and one length given twice. A
request that uses any of these is answered with 400, and its connection is closed.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

BARE_LF = re.compile(rb"(?<!\r)\n")
FOLDED = re.compile(rb"\r\n[ \t]")
FRAMING = re.compile(rb"\r\n(content-length|transfer-encoding)[ \t]*:", re.IGNORECASE)
LIST = re.compile(rb"\r\ncontent-length:[^\r\n]*,", re.IGNORECASE)
OLD = re.compile(rb"\A[^\r\n]* HTTP/1\.0\r\n")


class StrictConnection(h11.Connection):
    """An h11 connection that checks the head of each request before h11 parses it."""

    def next_event(self) -> Any:
        if self.their_state is h11.IDLE:  # the unread data begins with the head of a request
            head, end, _ = self.trailing_data[0].partition(b"\r\n\r\n")
            if not acceptable(head + end):
                raise h11.RemoteProtocolError("ambiguous request head", error_status_hint=400)
        return super().next_event()


class StrictProtocol(H11Protocol):
    """uvicorn's protocol over such a connection."""

    def __init__(self, config: Any, *args: Any, body_seconds: float, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        self.conn = StrictConnection(h11.SERVER, config.h11_max_incomplete_event_size)
        self._body_seconds = body_seconds
        # For a head that is late, a client that has stalled, and the rest of a body that nobody waits for.
        self._timers: dict[str, asyncio.TimerHandle] = {}

    # uvicorn only limits the time between two requests. A client that connects and sends nothing, or half of a head,
    # could keep its connection for ever. This timer, which received data does not extend, closes it.

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._await_head()
        else:
            self._forget("head")

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in tuple(self._timers):
            self._forget(timer)
        super().connection_lost(exc)

    # A request that is refused is answered before its body has come. uvicorn then throws away what comes of the body,
    # and a client that sends a byte now and then could keep its connection for ever. So the rest of a body gets the
    # time that a body has; a client that sends it in that time may go on with its next request.

    def on_response_complete(self) -> None:
        if self.conn.their_state is h11.SEND_BODY:
            self._forget("rest")
            self._timers["rest"] = self.loop.call_later(self._body_seconds, self._end_body_of, self.cycle)
        super().on_response_complete()

    def _end_body_of(self, cycle: RequestResponseCycle) -> None:
        if self.cycle is cycle and self.conn.their_state is h11.SEND_BODY:
            self.transport.close()

    # The WebSocket library takes fewer requests than h11: none with a body, with another method than GET, or with more
    # than 128 headers. It neither answers the others nor closes their connections.

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        super().handle_websocket_upgrade(event)
        taken_over: Any = self.transport.get_protocol()
        if not taken_over.handshake_initiated:
            self.send_400_response("Invalid WebSocket request.")

    # Without this timer, the server would wait for ever for a client that does not read its answer, such as an event
    # stream.

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._forget("stall")
        super().resume_writing()

    def _watch(self, waiting: int) -> None:
        self._timers["stall"] = self.loop.call_later(self.config.timeout_keep_alive, self._check, waiting)

    def _check(self, waiting: int) -> None:
        """Abort the connection if the client has read nothing since the last check; a slow client is left alone."""
        now = self.transport.get_write_buffer_size()
        if now >= waiting:
            self.transport.abort()  # not close, which would wait until everything is sent
        else:
            self._watch(now)

    def _await_head(self) -> None:
        if "head" not in self._timers:
            self._timers["head"] = self.loop.call_later(self.config.timeout_keep_alive, self.transport.close)

    def _forget(self, timer: str) -> None:
        if (found := self._timers.pop(timer, None)) is not None:
            found.cancel()


def acceptable(head: bytes) -> bool:
    """Whether the head of a request, or the part received so far, can be parsed in one way only."""
    if BARE_LF.search(head) or FOLDED.search(head) or LIST.search(head):
        return False
    framing = [name.lower() for name in FRAMING.findall(head)]
    return len(framing) < 2 and not (b"transfer-encoding" in framing and OLD.match(head))
