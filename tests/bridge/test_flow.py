"""A job's way through Redis and back."""

import hashlib
import json
import os
from typing import Any

import pytest

from rowlock import Rowlock
from rowlock.core.errors import ConfigError
from support.web.remote import Remote, until, until_state


async def test_a_job_is_published_and_its_result_makes_it_succeed(app: Rowlock, remote: Remote) -> None:
    task = app.get_task("REPLAY_MP4")
    async with app.bridge():
        job = await task.using(owner="ana").enqueue(replayId=7, inputPath="replays/7.rep", durationMs=1500)
        request = await remote.request(job.id)
        assert set(request) == {"jobId", "jobType", "replayId", "options"}
        assert (request["jobType"], request["replayId"]) == ("REPLAY_MP4", "7")
        options = json.loads(request["options"])
        assert set(options) == {"inputPath", "outputPath", "durationMs", "ownerId", "createdAt"}
        assert (options["inputPath"], options["durationMs"], options["ownerId"]) == ("replays/7.rep", 1500, "ana")
        assert options["createdAt"].endswith("Z")
        assert options["outputPath"].startswith(f"{remote.results}/{job.id}/1-")
        assert (await app.job(job.id)).state == "queued"
        assert (await app.job(job.id)).started_at is None

        remote.progress(job.id, 40, phase="encode", message="frame 4")
        running = await until_state(app, job.id, "running")
        assert (running.progress, running.phase, running.message) == (40, "encode", "frame 4")

        remote.succeed(request, b"the video")
        done = await until_state(app, job.id, "succeeded")
        assert done.result_checksum == f"sha256:{hashlib.sha256(b'the video').hexdigest()}"
        with app.result_folder.opened(done.result_uri) as opened:
            assert os.read(opened, 100) == b"the video"
        assert done.progress == 100
        await remote.all_read()
        assert remote.letters() == []


async def test_progress_does_not_go_back(app: Rowlock, remote: Remote) -> None:
    async with app.bridge():
        job = await app.get_task("REPLAY_MP4").enqueue(replayId=7)
        await remote.request(job.id)
        remote.progress(job.id, 60, phase="b")
        await remote.all_read()
        remote.progress(job.id, 50, phase="a")
        await remote.all_read()
        assert (await app.job(job.id)).progress == 60


async def test_a_reported_failure_is_final(app: Rowlock, remote: Remote) -> None:
    async with app.bridge():
        job = await app.get_task("REPLAY_MP4").enqueue(replayId=7)
        await remote.request(job.id)
        remote.say("job.results", jobId=job.id, status="FAILED", errorCode="CODEC", errorMessage="no such codec")
        dead = await until_state(app, job.id, "dead")
        assert (dead.error_code, dead.error_message) == ("CODEC", "no such codec")


async def test_a_task_with_more_tries_is_published_again_after_a_failure(app: Rowlock, remote: Remote) -> None:
    from rowlock import fixed

    @app.task("twice", runs_on="redis", max_attempts=2, backoff=fixed(seconds=0.01))
    async def twice() -> None: ...

    async with app.bridge():
        job = await twice.enqueue()
        await remote.request(job.id)
        remote.say("job.results", jobId=job.id, status="FAILED")
        second = await remote.request(job.id, attempt=2)
        assert second["attempt"] == "2"
        remote.succeed(second)
        assert (await until_state(app, job.id, "succeeded")).attempt == 2


async def test_a_worker_may_report_that_it_was_cancelled(app: Rowlock, remote: Remote) -> None:
    async with app.bridge():
        job = await app.get_task("REPLAY_MP4").enqueue(replayId=7)
        await remote.request(job.id)
        remote.say("job.results", jobId=job.id, status="CANCELLED")
        cancelled = await until_state(app, job.id, "cancelled")
        await remote.all_read()
    assert (cancelled.attempt, cancelled.result_uri) == (1, None)
    assert remote.letters() == []


async def test_messages_after_the_end_are_ignored_and_counted(app: Rowlock, remote: Remote) -> None:
    async with app.bridge():
        job = await app.get_task("REPLAY_MP4").enqueue(replayId=7)
        request = await remote.request(job.id)
        remote.succeed(request)
        done = await until_state(app, job.id, "succeeded")
        remote.say("job.results", jobId=job.id, status="FAILED", errorCode="LATE")
        remote.progress(job.id, 5)
        await remote.all_read()
        assert (await app.job(job.id)).result_uri == done.result_uri
        assert (await app.job(job.id)).state == "succeeded"
        assert remote.count("late") == 2
        assert remote.letters() == []


async def test_a_cancelled_job_ends_at_once_and_its_worker_is_told(app: Rowlock, remote: Remote) -> None:
    async with app.bridge():
        job = await app.get_task("REPLAY_MP4").enqueue(replayId=7)
        request = await remote.request(job.id)
        remote.progress(job.id, 10)
        await until_state(app, job.id, "running")
        await app.cancel(job.id)
        assert (await app.job(job.id)).state == "cancelled"
        await until(lambda: remote.cancels() == [job.id], lambda: str(remote.cancels()))
        remote.succeed(request)
        await remote.all_read()
        assert (await app.job(job.id)).state == "cancelled"


async def test_an_unread_request_is_cancelled_at_once(app: Rowlock, remote: Remote) -> None:
    async with app.bridge():
        job = await app.get_task("REPLAY_MP4").enqueue(replayId=7)
        await remote.request(job.id)
        await app.cancel(job.id)
        assert (await app.job(job.id)).state == "cancelled"


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_without_redis_in_the_config_enqueue_says_so(app_url: str) -> None:
    async with Rowlock(app_url) as app:

        @app.task("remote", runs_on="redis")
        async def remote_task() -> None: ...

        with pytest.raises(ConfigError, match=r"task 'remote' runs on Redis.*ROWLOCK_REDIS__URL"):
            await remote_task.enqueue()
        with pytest.raises(ConfigError, match="no Redis is configured"):
            await remote_task.enqueue_many([{}])


async def test_a_worker_of_this_app_does_not_take_remote_jobs(app: Rowlock) -> None:
    ran: list[int] = []

    @app.task("here")
    async def here() -> None:
        ran.append(1)

    job = await app.get_task("REPLAY_MP4").enqueue(replayId=7)
    async with app.worker():
        await (await here.enqueue()).wait(timeout=60)
    assert (await app.job(job.id)).attempt == 0
    assert ran == [1]


async def test_a_job_with_an_owner_sends_events(app: Rowlock, remote: Remote) -> None:
    from rowlock.api.live import events

    async with app.bridge():
        job = await app.get_task("REPLAY_MP4").using(owner="ana").enqueue(replayId=7)
        request = await remote.request(job.id)
        remote.progress(job.id, 10)
        await until_state(app, job.id, "running")
        remote.succeed(request)
        await until_state(app, job.id, "succeeded")
        found: list[Any] = await (await app.store()).run(events.after(0, 10, "ana"))
        assert [(event.type, event.state) for event in found] == [
            ("job.progress", "running"),
            ("job.completed", "succeeded"),
        ]
