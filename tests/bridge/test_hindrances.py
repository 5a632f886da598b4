"""A job that cannot be published, a Redis that is full, and one that was demoted: each holds up as little as it can."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import ReadOnlyError

from rowlock import Rowlock
from rowlock.bridge.bridge import bridging
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
    async with bridging(app):
        remote.succeed(await remote.request(good))
        await until_state(app, good, "succeeded")
        dead = await until_state(app, bad, "dead")
    assert dead.error_code == "INVALID_ARGUMENTS"
    assert len(remote.requests()) == 1


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
            async with bridging(app):
                request = await there.request(job.id)
            there.say("job.results", jobId="no id", status="SUCCEEDED")
            there.succeed(request)
            there.redis.config_set("maxmemory", 1)
            async with bridging(app):
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
