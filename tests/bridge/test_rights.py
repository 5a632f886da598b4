"""The rights that docs/reference/worker-contract.md gives to the Redis users: enough for the bridge and for workers,
and not more."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rowlock import Rowlock
from rowlock.bridge import publisher
from rowlock.bridge.dead_letters import drop, letters
from rowlock.bridge.stats import numbers
from rowlock.bridge.streams import StreamEntry, opened_streams
from rowlock.store import audit
from rowlock_apps.replays.samples import sample
from support.each import each
from support.servers.node import example, node
from support.servers.redis import RedisServer
from support.web.remote import Remote, until, until_state, with_tasks

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/worker-contract.md"


def rights() -> dict[str, list[str]]:
    """The users of the page, each with its rules."""
    block = re.search(r"```\n(user bridge .*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    lines = block[1].replace("\\\n", " ").splitlines()
    return {words[1]: words[2:] for words in map(str.split, lines) if words}


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[RedisServer]:
    """A server with the users of the page."""
    server = RedisServer(tmp_path).start()
    for name, rules in rights().items():
        server.client().execute_command("ACL", "SETUSER", name, *rules)
    yield server
    server.stop()


def refused(server: RedisServer) -> list[Any]:
    """What a user was refused."""
    found: list[Any] = server.client().execute_command("ACL", "LOG")
    return found


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.parametrize("language", ["node", "python"])
async def test_the_bridge_and_a_worker_need_no_more_rights_than_the_page_gives_them(
    settings: Callable[..., Any],
    guarded: RedisServer,
    tmp_path: Path,
    language: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publisher, "QUIET_SECONDS", 0.0)
    there = Remote(guarded, "", tmp_path / "results")
    there.results.mkdir()
    bridge, worker = [guarded.url.replace("redis://", f"redis://{user}:change-me@") for user in ("bridge", "worker")]
    env = os.environ | {"REDIS_URL": worker, "REDIS_PREFIX": "", "BEAT_MS": "200", "TAKEOVER_MS": "3000"}
    env |= {"JOBS_EXPORT_PATH": str(there.results)}
    folder = example("node-worker", tmp_path) if language == "node" else tmp_path
    source = there.results / "in.rep"
    source.write_text(sample(2000).model_dump_json(by_alias=True))  # long enough for beats
    command = {
        "node": [node(), str(folder / "redis_worker.mjs")] if language == "node" else [],
        "python": [sys.executable, "-m", "rowlock_apps.replays.worker"],
    }[language]
    changes = {"redis__url": bridge, "redis__prefix": "", "results__path": str(there.results)}
    async with with_tasks(Rowlock(settings=settings(**changes))) as app:
        task = app.get_task("REPLAY_MP4")
        process = started(command, env, folder, tmp_path / "worker.log")
        try:
            async with app.bridge() as running:
                job = await task.enqueue(replayId=1, inputPath=str(source), durationMs=1000)
                await until_state(app, job.id, "succeeded")
                process.kill()  # so that the next job is not ended before it is cancelled
                cancelled = await task.enqueue(replayId=2, inputPath=str(source), durationMs=60_000)
                await there.request(cancelled.id)
                await app.cancel(cancelled.id)
                await until(lambda: there.cancels() == [cancelled.id])
                there.say("job.results", jobId=job.id, status="WEIRD")
                await until(lambda: bool(there.letters()))
                await running.streams.keep([StreamEntry("job.results", "1-1", {})])
                await running._trim()
                await there.request((await task.enqueue(replayId=3)).id)
                await running.publisher.finish()
                await running.publisher.look_after()  # at that request
                async with opened_streams(app.settings.redis) as streams:
                    await numbers(app, streams)
                (found,) = await letters(app, 10)
                await drop(app, found, audit.Actor("ana", "cli"))
            there.say("job.results", jobId=job.id, status="FAILED")
            there.deliver_often()
            async with app.bridge():  # takes the message over and handles it alone
                await there.all_read()
        finally:
            process.kill()
            process.wait(10)
    assert refused(guarded) == []
    assert "NOPERM" not in (tmp_path / "worker.log").read_text()


def started(command: list[str], env: dict[str, str], folder: Path, said: Path) -> "subprocess.Popen[bytes]":
    with open(said, "wb") as log:
        return subprocess.Popen(command, env=env, cwd=folder, stdout=log, stderr=log)


@each(
    "user, command",
    [
        ("worker", ["XADD", "job.requests", "*", "a", "b"]),
        ("worker", ["XADD", "job.cancels", "*", "a", "b"]),
        ("worker", ["XADD", "job.deadletter", "*", "a", "b"]),
        ("worker", ["XRANGE", "job.results", "-", "+"]),
        ("worker", ["XRANGE", "job.progress", "-", "+"]),
        ("worker", ["XDEL", "job.requests", "1-1"]),
        ("worker", ["XTRIM", "job.results", "MAXLEN", "0"]),
        ("worker", ["DEL", "job.requests"]),
        ("worker", ["XGROUP", "DESTROY", "job.results", "rowlock"]),
        ("worker", ["HSET", "job.alone", "a", "1"]),
        ("bridge", ["DEL", "job.requests"]),
        ("bridge", ["XGROUP", "DESTROY", "job.results", "rowlock"]),
        ("bridge", ["XADD", "other", "*", "a", "b"]),
        ("bridge", ["EVAL", "return 1", "0"]),
        ("bridge", ["KEYS", "*"]),
        ("bridge", ["CONFIG", "GET", "*"]),
    ],
)
def test_a_redis_user_of_the_page_is_refused_what_it_does_not_need(
    guarded: RedisServer, user: str, command: list[str]
) -> None:
    answer = guarded.client().execute_command("ACL", "DRYRUN", user, *command)
    assert "no permissions" in str(answer)
