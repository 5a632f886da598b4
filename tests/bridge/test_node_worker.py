"""A worker in another language: examples/node-worker/redis_worker.mjs runs jobs end to end."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rowlock import Rowlock
from support.servers.node import example, node
from support.web.remote import Remote, until, until_state

Start = Callable[[], "subprocess.Popen[bytes]"]


@pytest.fixture
def start(remote: Remote, tmp_path: Path) -> Iterator[Start]:
    """Start workers, which end with the test."""
    folder, started = example("node-worker", tmp_path), []

    def one() -> "subprocess.Popen[bytes]":
        environment = os.environ | {
            "REDIS_URL": remote.server.url,
            "REDIS_PREFIX": remote.prefix,
            "BEAT_MS": "200",
            "TAKEOVER_MS": "3000",
        }
        with open(tmp_path / f"node-{len(started)}.log", "wb") as log:
            command = [node(), str(folder / "redis_worker.mjs")]
            started.append(subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log))
        return started[-1]

    yield one
    for process in started:
        process.kill()
        process.wait(10)


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_worker_in_node_succeeds_fails_and_tells_its_progress(
    app: Rowlock, remote: Remote, start: Start, tmp_path: Path
) -> None:
    source = tmp_path / "in.rep"
    source.write_bytes(b"a replay")
    start()
    task = app.get_task("REPLAY_MP4")
    async with app.bridge():
        good = await task.enqueue(replayId=1, inputPath=str(source), durationMs=1500)
        running = await until_state(app, good.id, "running")
        assert running.phase in ("start", "render")
        done = await until_state(app, good.id, "succeeded")
        with app.result_folder.opened(done.result_uri) as opened:
            assert os.read(opened, 100) == b"a replay"
        bad = await task.enqueue(replayId=2, inputPath=str(tmp_path / "missing"))
        assert (await until_state(app, bad.id, "dead")).error_code == "INPUT_NOT_FOUND"
        assert remote.letters() == []


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_request_that_a_worker_in_node_gets_twice_changes_nothing(
    app: Rowlock, remote: Remote, start: Start, tmp_path: Path
) -> None:
    source = tmp_path / "in.rep"
    source.write_bytes(b"first")
    start()
    async with app.bridge():
        job = await app.get_task("REPLAY_MP4").enqueue(replayId=1, inputPath=str(source), durationMs=0)
        done = await until_state(app, job.id, "succeeded")
        source.write_bytes(b"second")
        remote.redis.xadd(remote.key("job.requests"), remote.requests()[0])
        await until(lambda: remote.redis.xlen(remote.key("job.results")) == 2)
        await remote.all_read()
        after = await app.job(job.id)
        assert (after.state, after.result_checksum) == ("succeeded", done.result_checksum)
        with app.result_folder.opened(done.result_uri) as opened:
            assert os.read(opened, 100) == b"first"
        assert remote.count("late") >= 1


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_job_survives_the_crash_of_a_worker_in_node(
    quick_app: Rowlock, remote: Remote, start: Start, tmp_path: Path
) -> None:
    app = quick_app
    source = tmp_path / "in.rep"
    source.write_bytes(b"a replay")
    first = start()
    async with app.bridge():
        job = await app.get_task("REPLAY_MP4").enqueue(replayId=1, inputPath=str(source), durationMs=2000)
        await until_state(app, job.id, "running")
        first.kill()
        start()
        done = await until_state(app, job.id, "succeeded")
        assert done.attempt == done.losses + 1  # the second worker may also have taken over the first one's request


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_worker_in_node_stops_when_its_job_is_cancelled(
    app: Rowlock, remote: Remote, start: Start, tmp_path: Path
) -> None:
    source = tmp_path / "in.rep"
    source.write_bytes(b"a replay")
    start()
    async with app.bridge():
        job = await app.get_task("REPLAY_MP4").enqueue(replayId=1, inputPath=str(source), durationMs=60_000)
        await until_state(app, job.id, "running")
        await app.cancel(job.id)
        await until(
            lambda: any(fields["status"] == "CANCELLED" for _, fields in remote.redis.xrange(remote.key("job.results")))
        )
        assert (await app.job(job.id)).state == "cancelled"
