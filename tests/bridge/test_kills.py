"""Bridge processes that are killed between two steps: no request is missing, and no job ends twice."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rowlock import Rowlock
from support.web.remote import Remote, until, until_state

TESTS = Path(__file__).resolve().parent.parent
ONE = pytest.param(1, id="one")
MANY = pytest.param(100, id="many", marks=[pytest.mark.soak, pytest.mark.timeout(1800)])


def killed_bridge(app: Rowlock, remote: Remote, point: str, folder: Path) -> str:
    """Run a bridge until it has killed itself at this point; answers what it said."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ROWLOCK_")}
    environment = kept | {
        "PYTHONPATH": str(TESTS),
        "KILL_AT": point,
        "ROWLOCK_DATABASE_URL": app.settings.database,
        "ROWLOCK_REDIS__URL": remote.server.url,
        "ROWLOCK_REDIS__PREFIX": remote.prefix,
        "ROWLOCK_REDIS__TAKEOVER_SECONDS": "0.5",
        "ROWLOCK_RESULTS__PATH": str(remote.results),
    }
    command = [sys.executable, "-m", "rowlock", "bridge", "--app", "support.servers.bridge:app"]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=100)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return done.stderr


@pytest.mark.parametrize("kills", [ONE, MANY])
@pytest.mark.parametrize("point", ["before XADD", "after XADD"])
async def test_no_request_is_missing_after_the_publisher_was_killed(
    point: str, kills: int, quick_app: Rowlock, remote: Remote, tmp_path: Path
) -> None:
    app = quick_app
    made: list[Any] = []
    for _ in range(kills):
        made += await app.get_task("REPLAY_MP4").enqueue_many([{"replayId": n} for n in range(3)])
        killed_bridge(app, remote, point, tmp_path)
    async with app.bridge():
        wanted = {job.id for job in made}
        await until(lambda: {request["jobId"] for request in remote.requests()} == wanted)
        for request in remote.requests():
            remote.succeed(request)
        for job in made:
            assert (await until_state(app, job.id, "succeeded")).attempt == 1
    if point == "before XADD":
        assert max(Counter(request["jobId"] for request in remote.requests()).values()) == 1


@pytest.mark.parametrize("kills", [ONE, MANY])
async def test_no_job_ends_twice_after_the_listener_was_killed_before_it_acknowledged(
    kills: int, quick_app: Rowlock, remote: Remote, tmp_path: Path
) -> None:
    app = quick_app
    made = await app.get_task("REPLAY_MP4").using(owner="ana").enqueue_many([{"replayId": n} for n in range(3 * kills)])
    async with app.bridge():
        requests = [await remote.request(job.id) for job in made]
    for n in range(kills):
        for request in requests[3 * n : 3 * n + 3]:
            remote.succeed(request)
        killed_bridge(app, remote, "before XACK", tmp_path)
        if kills < 10:  # a hundred kills deliver each message often by themselves
            remote.deliver_often()
    async with app.bridge():
        for job in made:
            await until_state(app, job.id, "succeeded")
        await remote.all_read()
    prefix = "rowlock_" if app.database.startswith("sqlite") else "rowlock."
    ends = await app.fetch(f"SELECT job_id FROM {prefix}events WHERE type = 'job.completed'")
    assert sorted(str(row[0]) for row in ends) == sorted(job.id for job in made)
    assert remote.letters() == []
