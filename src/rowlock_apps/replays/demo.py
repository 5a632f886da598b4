"""`rowlock demo replays`: two users with replays export them and watch the progress. One export is cancelled, and what
nobody may have is refused. On a terminal the page then stays open until Ctrl-C."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from rowlock import Rowlock
from rowlock_apps.replays import samples, service
from rowlock_apps.replays.app import Replays
from rowlock_apps.replays.replay import LONGEST_MS
from rowlock_apps.stage import Stage, stage

LONGEST_SECONDS = 60.0
TO_CANCEL_MS = LONGEST_MS  # a replay whose export takes long enough to be cancelled
FINAL = {"job.completed": "SUCCEEDED", "job.failed": "FAILED", "job.cancelled": "CANCELLED"}


# --- a user, who does over HTTP and WebSocket what a browser does


class User:
    """One browser that is logged in."""

    def __init__(self, name: str, base: str, http: aiohttp.ClientSession, csrf: str) -> None:
        self.name, self._base, self._http = name, base, http
        self._headers = {"Origin": base, "X-Rowlock-CSRF": csrf}

    async def ask(self, method: str, path: str) -> tuple[int, dict[str, Any]]:
        """A request without a body: its status and its JSON."""
        async with self._http.request(method, self._base + path, headers=self._headers) as answer:
            is_json = "json" in answer.headers.get("Content-Type", "")
            return answer.status, dict(await answer.json(content_type=None)) if is_json else {}

    async def download(self, job_id: str) -> bytes:
        async with self._http.get(f"{self._base}/api/jobs/{job_id}/result") as answer:
            answer.raise_for_status()
            return await answer.read()

    @asynccontextmanager
    async def events(self) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """The events of this user's jobs, from now on."""
        address = f"{self._base.replace('http', 'ws', 1)}/api/ws"
        async with self._http.ws_connect(address, headers={"Origin": self._base}) as socket:
            yield socket


@asynccontextmanager
async def logged_in(app: Rowlock, base: str, name: str) -> AsyncIterator[User]:
    link = await app.login_link(name, base_url=base)
    jar = aiohttp.CookieJar(unsafe=True)  # for an address without a name
    async with aiohttp.ClientSession(cookie_jar=jar) as http:
        once = link.partition("#once=")[2]
        async with http.post(f"{base}/api/session", json={"once": once}, headers={"Origin": base}) as answer:
            answer.raise_for_status()
            csrf = str((await answer.json())["csrf"])
        yield User(name, base, http, csrf)


# --- the demo


class Demo:
    """One run: what was asked for, how it ended, and its mistakes."""

    def __init__(self, app: Replays, screen: Stage) -> None:
        self.app, self.screen = app, screen
        self.names: dict[str, str] = {}  # by job: what it makes
        self.ends: dict[str, str] = {}  # by job
        self.files: dict[str, int] = {}  # by name: bytes
        self.mistakes: list[str] = []

    async def run(self, base: str) -> None:
        """Everything that the two users do."""
        async with logged_in(self.app, base, "ana") as ana, logged_in(self.app, base, "bob") as bob:
            self.screen.say("ana and bob have logged in, each by a link that works once")
            first, second, broken = await samples.add_samples(self.app, "ana")
            await samples.add_samples(self.app, "bob")
            long = await service.create_replay(self.app, "ana", "The whole match", None, samples.sample(TO_CANCEL_MS))
            async with ana.events() as events:
                await self.export(ana, first, "mp4", "set 1, MP4")
                await self.export(ana, first, "thumbnail", "set 1, thumbnail")
                await self.export(ana, second, "mp4", "set 2, MP4")
                unwanted = await self.export(ana, long.id, "mp4", "the whole match, MP4")
                await self.refuse(bob, first, 404, "REPLAY_NOT_FOUND", "bob asks for a video of ana's replay")
                await self.refuse(ana, broken, 422, "NO_FRAMES", "ana asks for a video of a replay without frames")
                while len(self.ends) < len(self.names):
                    await self.hear(ana, await events.receive_json(), unwanted)
            for job_id, end in self.ends.items():
                await self.check(ana, bob, job_id, end, cancelled=job_id == unwanted)

    async def export(self, user: User, replay_id: str, kind: str, name: str) -> str:
        """Ask for an export; the answer comes at once."""
        status, body = await user.ask("POST", f"/api/replays/{replay_id}/exports/{kind}")
        job_id = str(body.get("jobId"))
        self.expect(status == 202, f"the export of {name} was answered with {status}")
        self.names[job_id] = name
        self.screen.say(f"{user.name} asks for {name}: {status}, job {job_id}")
        self.screen.bar(name, 0, 100)
        return job_id

    async def refuse(self, user: User, replay_id: str, status: int, code: str, what: str) -> None:
        """Send requests that must be refused."""
        answer, body = await user.ask("POST", f"/api/replays/{replay_id}/exports/mp4")
        self.expect((answer, body.get("code")) == (status, code), f"{what}: {answer} {body}")
        self.screen.say(f"refused: {what}: {answer} {body.get('code')}")

    async def hear(self, user: User, event: dict[str, Any], unwanted: str) -> None:
        """One event of the WebSocket."""
        job_id = event.get("jobId", "")
        if job_id not in self.names:
            return
        name = self.names[job_id]
        self.screen.bar(name, event.get("progress") or 0, 100)
        if event["type"] in FINAL:
            self.ends[job_id] = FINAL[event["type"]]
            self.screen.say(f"{event['type']}: {name}")
        elif job_id == unwanted and event["progress"] >= 1:
            status, _ = await user.ask("POST", f"/api/jobs/{job_id}/cancel")
            if status != 409:  # it was cancelled before
                self.screen.say(f"{user.name} cancels {name} at {event['progress']} %")

    async def check(self, owner: User, stranger: User, job_id: str, end: str, *, cancelled: bool) -> None:
        """How a job must have ended, and that its file is whole and for its owner alone."""
        name = self.names[job_id]
        self.expect(end == ("CANCELLED" if cancelled else "SUCCEEDED"), f"{name} is {end}")
        if end != "SUCCEEDED":
            return
        _, job = await owner.ask("GET", f"/api/jobs/{job_id}")
        content = await owner.download(job_id)
        self.expect(job["checksum"] == f"sha256:{hashlib.sha256(content).hexdigest()}", f"{name}: wrong checksum")
        status, _ = await stranger.ask("GET", f"/api/jobs/{job_id}/result")
        self.expect(status == 404, f"{stranger.name} is answered {status} for the file of {name}")
        self.files[name] = len(content)
        self.screen.say(f"downloaded: {name}, {len(content):,} bytes, checksum right; for {stranger.name} it is a 404")

    def expect(self, holds: bool, otherwise: str) -> None:
        """Record a mistake unless the condition holds."""
        if not holds:
            self.mistakes.append(otherwise)


async def play(database: str, live: bool) -> list[str]:
    """Run the demo on a database; returns its mistakes."""
    print("Users export replays as videos. Each sees only what is theirs.", flush=True)
    with tempfile.TemporaryDirectory(prefix="rowlock-replays-") as scratch:
        app = made_for_demo(database, os.environ.get("JOBS_EXPORT_PATH") or scratch)
        await app.migrate()
        async with app, app.server() as server, app.worker(shutdown_timeout_seconds=1):
            base = "http://{}:{}".format(*server.address)
            with stage(live) as screen:
                demo = Demo(app, screen)
                try:
                    async with asyncio.timeout(LONGEST_SECONDS):
                        await demo.run(base)
                except TimeoutError:
                    demo.mistakes.append(f"not all exports had ended after {LONGEST_SECONDS:.0f} s")
            stopped = list(demo.ends.values()).count("CANCELLED")
            print(f"\n{len(demo.files)} exports succeeded, {sum(demo.files.values()):,} bytes; {stopped} was cancelled")
            if live:
                await stay_open(app, base)
    return demo.mistakes


def made_for_demo(database: str, exports: str) -> Replays:
    """The app on any free port, with its own worker, even where the environment names a Redis."""
    app = Replays(database)
    settings = app.settings
    app.configure(
        settings.model_copy(
            update={
                "api": settings.api.model_copy(update={"port": 0}),
                "results": settings.results.model_copy(update={"path": str(Path(exports).absolute())}),
                "redis": settings.redis.model_copy(update={"url": None}),
            }
        )
    )
    return app


async def stay_open(app: Replays, base: str) -> None:
    """Leave the page to the reader of the terminal. The command then goes on with the operators' dashboard."""
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    print("\nThe page is open. Each of these links logs in one browser, once, within ten minutes:")
    for owner in ("ana", "bob"):
        print(f"  {owner}   {await app.login_link(owner, base_url=base)}")
    print("Ctrl-C closes the page and goes on to the operators' dashboard.", flush=True)
    await stopped.wait()
