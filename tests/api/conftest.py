"""A real server over an app on each engine, and a client that speaks HTTP and WebSocket to it."""

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import psycopg
import pytest

from rowlock import Context, Permanent, Rowlock, State
from rowlock.api import context
from rowlock.api.access import tokens
from rowlock.api.context import Service
from rowlock.api.live.events import Event
from rowlock.api.server import serving
from rowlock.core.config import load_settings
from support.rigs.app import app_url
from support.tasks.results import add_file_tasks

__all__ = ["app_url"]


@dataclasses.dataclass
class Api:
    """One server, and the app behind it."""

    app: Rowlock
    url: str
    http: aiohttp.ClientSession
    started: Service | None = None

    @property
    def service(self) -> Service:
        """What the server that the fixture `serve` started holds in memory."""
        assert self.started is not None
        return self.started

    async def token(self, owner: str | None = "ana", scope: Any = "jobs", ttl: float | None = None) -> str:
        """A new token."""
        secret = tokens.new_secret()
        await (await self.app.store()).run(tokens.create(secret, owner, scope, ttl))
        return secret

    async def ask(
        self, method: str, path: str, token: str | None = None, body: Any = None, **headers: str
    ) -> tuple[int, Any, dict[str, str]]:
        """One request: status, body (JSON if it is), headers in lower case."""
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if data is not None:
            headers.setdefault("Content-Type", "application/json")
        async with self.http.request(method, self.url + path, data=data, headers=headers) as answer:
            raw = await answer.read()
            kind = answer.headers.get("Content-Type", "")
            value = json.loads(raw) if "json" in kind and raw else raw
            return answer.status, value, {name.lower(): text for name, text in answer.headers.items()}

    async def log_in(self, owner: str | None = "ana", scope: Any = None) -> "Browser":
        """A browser that has used a login link."""
        link = await self.app.login_link(owner, scope=scope, base_url=self.url)
        status, session, headers = await self.ask("POST", "/api/session", None, {"once": link.partition("#once=")[2]})
        assert status == 201, session
        return Browser(self, headers["set-cookie"].partition(";")[0], session)

    async def create(self, token: str, task: str = "add", **args: Any) -> str:
        """A job's id."""
        status, body, _ = await self.ask("POST", "/api/jobs", token, {"jobType": task, "args": args})
        assert status == 202, body
        return str(body["jobId"])

    @asynccontextmanager
    async def socket(self, token: str | None = None, since: str | None = None) -> AsyncIterator["Socket"]:
        """A WebSocket that has said who it is."""
        async with self.http.ws_connect(self.url.replace("http", "ws") + "/api/ws") as raw:
            if token is not None:
                await raw.send_json({"token": token, "lastEventId": since})
            yield Socket(raw)


@dataclasses.dataclass
class Browser:
    """What a browser sends by itself for a page of this server that is logged in."""

    api: Api
    cookie: str
    session: dict[str, Any]

    @property
    def secret(self) -> str:
        """What the cookie holds."""
        return self.cookie.partition("=")[2]

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any, dict[str, str]]:
        """One request of the page."""
        sent = {"Cookie": self.cookie, "Origin": self.api.url, "Sec-Fetch-Site": "same-origin"}
        sent["X-Rowlock-CSRF"] = self.session["csrf"]
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.api.ask(method, path, None, body, **{name: value for name, value in sent.items() if value})

    def socket(self, origin: str | None = None) -> Any:
        """A WebSocket of the page, to be opened."""
        headers = {"Cookie": self.cookie} | ({} if origin == "" else {"Origin": origin or self.api.url})
        return self.api.http.ws_connect(self.api.url.replace("http", "ws") + "/api/ws", headers=headers)


@dataclasses.dataclass
class Socket:
    """A client's end of a WebSocket."""

    raw: aiohttp.ClientWebSocketResponse

    async def next(self, seconds: float = 20) -> dict[str, Any]:
        """The next message."""
        async with asyncio.timeout(seconds):
            message = await self.raw.receive()
        assert message.type is aiohttp.WSMsgType.TEXT, (message, self.raw.close_code)
        return dict(json.loads(message.data))

    async def until_done(self) -> list[dict[str, Any]]:
        """Messages up to the end of a job."""
        found = [await self.next()]
        while not found[-1].get("done"):
            found.append(await self.next())
        return found

    async def closed(self, seconds: float = 20) -> int | None:
        """The code with which the server closes the socket; what comes before is passed over."""
        async with asyncio.timeout(seconds):
            while (message := await self.raw.receive()).type is aiohttp.WSMsgType.TEXT:
                pass
        assert message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.CLOSING), message
        return self.raw.close_code


Serve = Callable[..., AbstractAsyncContextManager[Api]]


@pytest.fixture(autouse=True)
def patient_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, what takes milliseconds may take longer than the two seconds that operators' reads have."""
    monkeypatch.setattr(context, "LOOK_SECONDS", 30.0)


@pytest.fixture
def serve(app_url: str, tmp_path: Path) -> Serve:
    """Start a server; `api.…` settings as keywords, others with their section: `**{"results.url": …}`."""

    @asynccontextmanager
    async def start(configure: Callable[[Rowlock], None] | None = None, **settings: Any) -> AsyncIterator[Api]:
        flags = {"database": app_url, "api.port": 0, "results.path": str(tmp_path / "results")}
        flags |= {name if "." in name else f"api.{name}": value for name, value in settings.items()}
        app = Rowlock(settings=load_settings(env={}, flags=flags))
        add_tasks(app)
        if configure:
            configure(app)
        if app_url.startswith("postgres"):
            with psycopg.connect(app_url, autocommit=True) as connection:  # the database has served other tests
                connection.execute("TRUNCATE rowlock.events, rowlock.deleted_events RESTART IDENTITY")
        async with app, serving(app) as server, aiohttp.ClientSession() as http:
            host, port = server.address
            yield Api(app, f"http://{host}:{port}", http, server.config.app.state.service)  # type: ignore[union-attr]

    return start


@pytest.fixture
async def api(serve: Serve) -> AsyncIterator[Api]:
    """A server with the default settings, and no worker."""
    async with serve() as started:
        yield started


@pytest.fixture
async def files(serve: Serve) -> AsyncIterator[Api]:
    """A server with tasks that make result files, and no worker."""
    async with serve(add_file_tasks) as started:
        yield started


def event_of(number: int, kind: str = "job.progress", state: State = State.RUNNING, job_id: str | None = None) -> Event:
    """An event with this id, of a job of ana's; by default each is of another job."""
    return Event(
        id=number,
        job_id=job_id or f"job-{number}",
        owner="ana",
        type=kind,
        task="add",
        state=state,
        attempt=1,
        progress=None,
        phase=None,
        message=None,
        result_uri=None,
        result_checksum=None,
        error_code=None,
        error_message=None,
        at=datetime.now(UTC),
    )


def add_tasks(app: Rowlock) -> None:
    """Tasks of every kind of end."""

    @app.task("add", public=True)
    async def add(a: int, b: int = 1) -> int:
        return a + b

    @app.task("echo", public=True)
    async def echo(value: Any) -> Any:
        return value

    @app.task("half_a_pair", public=True)
    async def half_a_pair() -> dict[str, str]:
        return {"half": "\ud800"}

    @app.task("steps", public=True)
    async def steps(ctx: Context, count: int) -> str:
        for number in range(count):
            await ctx.progress(number * 100 // count, phase="step", message=f"step {number}")
        return "done"

    @app.task("fail", public=True)
    async def fail() -> None:
        raise Permanent("it is broken", code="BROKEN")

    @app.task("hang", public=True)
    async def hang() -> None:
        await asyncio.Event().wait()

    @app.task("secret")
    async def secret() -> None: ...
