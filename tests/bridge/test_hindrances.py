"""A job that cannot be published, a file that cannot be read, a Redis that is full, and one that was demoted: each
holds up as little as it can."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import ReadOnlyError

from rowlock import Rowlock
from rowlock.bridge.streams import Streams
from rowlock.core.config import RedisSettings
from rowlock.core.job import NewJob
from rowlock.store import jobs
from rowlock.store.ids import new_id
from support.redis_server import RedisServer
from support.remote import Remote, until, until_state, with_tasks


async def test_a_job_of_which_no_request_can_be_made_is_dead_and_the_others_are_published(
    app: Rowlock, remote: Remote
) -> None:
    good, bad, store = new_id(), new_id(), await app.store()
    half = '{"replayId": "\\ud800"}'  # half of a pair, which is no text; databases store it
    await store.run(jobs.enqueue([(bad, half), (good, '{"replayId": 1}')], NewJob("REPLAY_MP4", max_attempts=1)))
    async with app.bridge():
        remote.succeed(await remote.request(good))
        await until_state(app, good, "succeeded")
        dead = await until_state(app, bad, "dead")
    assert dead.error_code == "INVALID_ARGUMENTS"
    assert len(remote.requests()) == 1


async def test_a_result_file_that_cannot_be_read_holds_up_its_own_message_only(
    settings: Callable[..., Any], remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk has a fault under one file: the job's own result waits until the file can be read again."""
    opened, broken = os.open, set[str]()

    def faulty(path: Any, *args: Any, **kwargs: Any) -> int:
        if str(path) in broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return opened(path, *args, **kwargs)

    def pending() -> int:
        return int(remote.redis.xinfo_groups(remote.key("job.results"))[0]["pending"])

    monkeypatch.setattr(os, "open", faulty)
    async with with_tasks(Rowlock(settings=settings(redis__takeover_seconds=1.0))) as app:
        mp4 = app.get_task("REPLAY_MP4")
        bad, good, later = [await mp4.enqueue(replayId=number) for number in range(3)]
        async with app.bridge():
            requests = {job.id: await remote.request(job.id) for job in (bad, good, later)}
            result = remote.write(requests[bad.id])
            broken.add(bad.id)  # the name of the folder of its results
            remote.say("job.results", **result)
            remote.succeed(requests[good.id])
            await until_state(app, good.id, "succeeded")
            await until(lambda: pending() == 1)
            remote.redis.client_kill_filter(_type="normal", skipme=True)  # what is not acknowledged is read again
            remote.succeed(requests[later.id])
            await until_state(app, later.id, "succeeded")
            assert (await app.job(bad.id)).state == "queued"  # as published: neither failed nor lost
            broken.clear()
            done = await until_state(app, bad.id, "succeeded")
            await remote.all_read()
    assert (done.attempt, done.result_checksum) == (1, result["checksum"])
    assert remote.letters() == []


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_full_redis_keeps_no_result_from_being_stored_and_acknowledged(
    settings: Callable[..., Any], remote: Remote, tmp_path: Path
) -> None:
    server = RedisServer(tmp_path).start()
    there = Remote(server, "", remote.results)
    changes = {"redis__url": server.url, "redis__prefix": ""}
    try:
        async with with_tasks(Rowlock(settings=settings(**changes))) as app:
            job = await app.get_task("REPLAY_MP4").enqueue(replayId=7)
            async with app.bridge():
                request = await there.request(job.id)
            there.say("job.results", jobId="no id", status="SUCCEEDED")
            there.succeed(request)
            there.redis.config_set("maxmemory", 1)
            async with app.bridge():
                await until_state(app, job.id, "succeeded")
                await until(lambda: there.redis.xinfo_groups("job.results")[0]["pending"] == 1)
                assert there.letters() == []
                there.redis.config_set("maxmemory", 0)
                await there.all_read()
            assert [letter["reason"] for letter in there.letters()] == ["BAD_JOB_ID"]
    finally:
        server.stop()


async def test_a_connection_to_a_primary_that_became_a_replica_is_closed(tmp_path: Path) -> None:
    """A new one may lead to another server: behind the name, the address has changed."""
    server = RedisServer(tmp_path).start()
    streams = Streams(RedisSettings(url=server.url, prefix=""), "me")
    try:
        await streams.make_groups()
        first = await streams.redis.client_id()
        server.client().replicaof("127.0.0.1", 1)
        with pytest.raises(ReadOnlyError):
            await streams.add_many("job.requests", [{"jobId": "1"}])
        assert await streams.redis.client_id() != first
        server.client().replicaof("NO", "ONE")
        assert await streams.add_many("job.requests", [{"jobId": "1"}])
    finally:
        await streams.close()
        server.stop()
