"""A TCP proxy in front of PostgreSQL that knows just enough of its protocol to be unkind at the right moment.

    async with Proxy(url) as proxy:
        proxy.cut()                              # every connection breaks
        proxy.blackhole()                        # nothing answers any more, until proxy.mend()
        lost = proxy.drop_reply(b"COMMIT")       # the next COMMIT happens, and its reply is lost

With `pooler="session"` or `"transaction"` it does what PgBouncer does: it refuses start-up settings that it does not
know and has process numbers of its own; and in transaction mode each transaction of a client gets another backend.
"""

import asyncio
import random
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit, urlunsplit

SSL, GSS, CANCEL = 80877103, 80877104, 80877102
# What PgBouncer lets a start-up packet set, if it is not told to ignore more.
KNOWN = {"user", "database", "application_name", "client_encoding", "datestyle", "timezone"}
KNOWN |= {"standard_conforming_strings", "intervalstyle", "replication"}
# Words that stand in one statement only, by which its reply is found.
CLAIM = b"""
)
UPDATE rowlock.jobs_live j
SET state = 'running'"""  # the bridge's `publish` has it in a CTE
SUCCEED = b"""WITH held AS MATERIALIZED (
    SELECT found.*"""  # the bridge's `succeed_remote` begins with `fenced`
HISTORY = b"INSERT INTO rowlock.attempts"
OTHER_PID = 1 << 30  # turns the number of a backend into the pooler's own, and back


def stands_in(words: bytes, sql: bytes) -> bool:
    """Whether these whole words stand in a statement: COMMIT is not in BEGIN ISOLATION LEVEL READ COMMITTED."""
    return re.search(rb"(?<!\w)" + re.escape(words) + rb"(?!\w)", sql) is not None


def fatal(code: str, text: str) -> bytes:
    """An ErrorResponse with which a server ends a connection."""
    fields = b"".join(f"{field}\0".encode() for field in ("SFATAL", "VFATAL", f"C{code}", f"M{text}"))
    return b"E" + (len(fields) + 5).to_bytes(4) + fields + b"\0"


def with_other_pid(message: bytes, at: int) -> bytes:
    """The message with the process number that stands there changed."""
    pid = int.from_bytes(message[at : at + 4]) ^ OTHER_PID
    return message[:at] + pid.to_bytes(4) + message[at + 4 :]


class Peer:
    """One connection, read message by message and written as it comes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def untyped(self) -> tuple[int, bytes]:
        """A start-up packet: its code and all of it."""
        head = await self._reader.readexactly(8)
        return int.from_bytes(head[4:]), head + await self._reader.readexactly(int.from_bytes(head[:4]) - 8)

    async def messages(self) -> AsyncIterator[tuple[bytes, bytes]]:
        """(type, whole message) until the connection ends."""
        with suppress(asyncio.IncompleteReadError, OSError):
            while True:
                head = await self._reader.readexactly(5)
                yield head[:1], head + await self._reader.readexactly(int.from_bytes(head[1:]) - 4)

    def send(self, data: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(data)

    def abort(self) -> None:
        self._writer.transport.abort()


class Drop:
    """A reply that is to be lost, or late. `done` is set when the server has done what it was asked and nobody was
    told; a late reply is passed on when `let_go` is set."""

    def __init__(self, text: bytes, after: bytes, late: bool) -> None:
        self.text, self.after, self.late = text, after, late
        self.done, self.let_go = asyncio.Event(), asyncio.Event()


class Link:
    """One client, and the backend that serves it now."""

    def __init__(self, proxy: "Proxy", client: Peer, backend: Peer) -> None:
        self.proxy, self.client, self.backend = proxy, client, backend
        self._statements: dict[bytes, bytes] = {}
        self._drop: Drop | None = None
        self._next_drop: Drop | None = None
        self._asked, self._open = 0, False  # replies to come; messages sent that none was asked for yet
        self._idle = True  # in no transaction
        self._answers: asyncio.Task[None] | None = None

    async def run(self, startup: bytes) -> None:
        self.backend.send(startup)
        self._asked = 1
        self._answers = asyncio.create_task(self._answer())
        async for kind, message in self.client.messages():
            await self.proxy.open.wait()
            if kind == b"X":
                break
            if self.proxy.pooler == "transaction" and self._idle and not self._asked and not self._open:
                await self._swap()
            self._watch(kind, message)
            self._asked += kind in b"SQ"
            self._open = kind not in b"SQ"
            self.backend.send(message)

    async def _swap(self) -> None:
        """Another backend for the next transaction."""
        pool = self.proxy.idle
        pool.append(self.backend)
        if self._answers:
            self._answers.cancel()
            await asyncio.gather(self._answers, return_exceptions=True)
        self.backend = pool.pop(random.randrange(max(1, len(pool) - 1)))
        self._answers = asyncio.create_task(self._answer())
        self.proxy.swaps += 1

    def _watch(self, kind: bytes, message: bytes) -> None:
        text = b""
        if kind == b"P":
            name, sql = message[5:].split(b"\0", 2)[:2]
            self._statements[name] = sql
        elif kind == b"B":
            text = self._statements.get(message[5:].split(b"\0", 2)[1], b"")
        elif kind == b"Q":
            text = message[5:]
        drop = self.proxy.drop
        if drop is None or not text:
            return
        if stands_in(drop.after, text):
            self._next_drop = drop
        if stands_in(drop.text, text) and self._next_drop is drop:
            self._drop, self.proxy.drop = drop, None

    async def _answer(self) -> None:
        held: list[bytes] = []
        async for kind, message in self.backend.messages():
            await self.proxy.open.wait()
            held.append(with_other_pid(message, 5) if kind == b"K" and self.proxy.pooler else message)
            if kind == b"Z":
                self._asked, self._idle = self._asked - 1, message[5:6] == b"I"
                if self._drop is not None:
                    self._drop.done.set()
                    if not self._drop.late:
                        break
                    await self._drop.let_go.wait()
                    self._drop = None
            if self._drop is None:
                self.client.send(b"".join(held))
                held.clear()
        self.close()

    def close(self) -> None:
        self.client.abort()
        self.backend.abort()


class Proxy:
    """Listens on a port of 127.0.0.1 and passes on to the server of a database URL."""

    def __init__(self, url: str, pooler: str | None = None) -> None:
        self._target, self.pooler, self.swaps = urlsplit(url), pooler, 0
        self.refuse: tuple[str, str] | None = None  # code and text of the error that new clients get
        self.open, self.idle = asyncio.Event(), list[Peer]()
        self.drop: Drop | None = None
        self.open.set()
        self._links: set[Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = urlunsplit(self._target._replace(netloc=f"{self._target.username}@127.0.0.1:{port}"))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.mend()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for peer in self.idle:
            peer.abort()

    def drop_reply(self, text: bytes, after: bytes = b"", late: bool = False) -> Drop:
        """Lose the reply to the next statement with `text` in it, on a connection on which one with `after` was
        seen first, and break that connection; or keep the reply back until it is let go."""
        self.drop = Drop(text, after, late)
        return self.drop

    def cut(self) -> None:
        """Break every connection; new ones are served."""
        for link in list(self._links):
            link.close()

    def say_goodbye(self, text: str) -> None:
        """Tell every client that its connection ends. It ends a moment later, as on a busy machine."""
        for link in self._links:
            link.client.send(fatal("57P01", text))
            asyncio.get_running_loop().call_later(1.0, link.close)

    def blackhole(self) -> None:
        """Connections stay open and nothing comes through, as when a cable is pulled."""
        self.open.clear()

    def mend(self) -> None:
        """The end of a blackhole. What was open in it breaks."""
        if not self.open.is_set():
            self.cut()
            self.open.set()

    def _refusal(self, startup: bytes) -> tuple[str, str] | None:
        names = [name.decode() for name in startup[8:].split(b"\0")[:-2:2]]
        if unknown := [name for name in names if self.pooler and name.lower() not in KNOWN]:
            return "08P01", f"unsupported startup parameter: {unknown[0]}"
        return self.refuse

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        client, link = Peer(reader, writer), None
        try:
            code, startup = await client.untyped()
            while code in (SSL, GSS):
                await self.open.wait()
                client.send(b"N")
                code, startup = await client.untyped()
            await self.open.wait()
            if code == CANCEL and self.pooler:
                startup = with_other_pid(startup, 8)
            elif refusal := self._refusal(startup):
                client.send(fatal(*refusal))
                await writer.drain()
                return
            backend = Peer(*await asyncio.open_connection(self._target.hostname, self._target.port))
            if code == CANCEL:
                backend.send(startup)
                return
            link = Link(self, client, backend)
            self._links.add(link)
            await link.run(startup)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the end of this connection, and of nothing else
        finally:
            self._tasks.discard(task)
            if link is not None:
                self._links.discard(link)
                link.close()
            client.abort()
