"""Workers and bridges that die, Redis that forgets: nothing is lost, and nothing is accepted twice."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rowlock import Rowlock
from rowlock.bridge import outbox
from support.servers.redis import RedisServer
from support.sql.refusals import refused
from support.web.remote import Remote, until, until_state, with_tasks

QUICK = {"redis__lease_seconds": 1.5, "redis__takeover_seconds": 1.0, "worker__lease_seconds": 1.0}
QUICK |= {"worker__heartbeat_seconds": 0.25, "worker__sweep_seconds": 0.25}


async def test_a_worker_that_falls_silent_loses_the_job_and_a_new_request_is_published(
    quick_app: Rowlock, remote: Remote
) -> None:
    app = quick_app
    async with app.bridge():
        job = await app.get_task("REPLAY_MP4").enqueue(replayId=7)
        first = await remote.request(job.id)
        remote.progress(job.id, 10)
        await until_state(app, job.id, "running")
        second = await remote.request(job.id, attempt=2)
        assert second["options"] != first["options"]  # another outputPath
        remote.succeed(first)  # the first worker was only slow
        remote.say("job.results", jobId=job.id, status="FAILED", errorCode="LATE")
        await remote.all_read()
        assert (await app.job(job.id)).state == "queued"
        assert [letter["reason"] for letter in remote.letters()] == ["NO_ATTEMPT"]
        remote.succeed(second)
        done = await until_state(app, job.id, "succeeded")
        assert (done.attempt, done.losses, done.max_attempts) == (2, 1, 1)


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_request_that_nobody_has_read_is_not_published_again(quick_app: Rowlock, remote: Remote) -> None:
    app = quick_app
    async with app.bridge():
        waiting = await app.get_task("REPLAY_MP4").enqueue(replayId=7)
        await remote.request(waiting.id)
        for _ in range(2):  # two others live and die meanwhile, which takes two leases
            other = await app.get_task("REPLAY_MP4").enqueue(replayId=8)
            await remote.request(other.id)
            remote.progress(other.id)
            remote.succeed(await remote.request(other.id, attempt=2))
            await until_state(app, other.id, "succeeded")
        assert len([request for request in remote.requests() if request["jobId"] == waiting.id]) == 1
        assert (await app.job(waiting.id)).state == "queued"


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_requests_survive_a_redis_that_is_restarted_empty(
    settings: Callable[..., Any], remote: Remote, tmp_path: Path
) -> None:
    server = RedisServer(tmp_path).start()
    there = Remote(server, remote.prefix, remote.results)
    try:
        async with with_tasks(Rowlock(settings=settings(redis__url=server.url, **QUICK))) as app, app.bridge():
            unread = await app.get_task("REPLAY_MP4").enqueue(replayId=7)
            await there.request(unread.id)
            server.stop()
            away = await app.get_task("REPLAY_MP4").enqueue(replayId=8)
            server.start()
            for job in (unread, away):
                there.succeed(await there.request(job.id))
                await until_state(app, job.id, "succeeded")
            await there.all_read()
            ended = [await app.job(job.id) for job in (unread, away)]
            assert [(job.state, job.attempt, job.losses) for job in ended] == [("succeeded", 1, 0)] * 2
            assert there.letters() == []
    finally:
        server.stop()


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_group_that_vanishes_is_made_again_and_reads_from_the_beginning(app: Rowlock, remote: Remote) -> None:
    async with app.bridge():
        job = await app.get_task("REPLAY_MP4").enqueue(replayId=7)
        request = await remote.request(job.id)
        remote.redis.xgroup_destroy(remote.key("job.results"), "rowlock")
        remote.redis.xgroup_destroy(remote.key("job.progress"), "rowlock")
        remote.succeed(request)
        await until_state(app, job.id, "succeeded")
        await remote.all_read()
        for name in ("job.results", "job.progress"):
            assert [group["name"] for group in remote.redis.xinfo_groups(remote.key(name))] == ["rowlock"], name
        assert remote.letters() == []


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_streams_that_are_empty_or_missing_are_no_error_at_the_first_message(
    app: Rowlock, remote: Remote
) -> None:
    async with app.bridge():
        for name in ("job.progress", "job.results"):
            (group,) = remote.redis.xinfo_groups(remote.key(name))
            assert (group["name"], group["pending"]) == ("rowlock", 0)
            assert remote.redis.xlen(remote.key(name)) == 0


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_entries_of_a_dead_bridge_are_taken_over(quick_app: Rowlock, remote: Remote) -> None:
    app = quick_app
    async with app.bridge():
        job = await app.get_task("REPLAY_MP4").enqueue(replayId=7)
        request = await remote.request(job.id)
    remote.succeed(request)
    streams = {remote.key("job.results"): ">"}
    assert remote.redis.xreadgroup("rowlock", "a-bridge-that-died", streams)  # it has read, and is gone
    async with app.bridge():
        await until_state(app, job.id, "succeeded")
        await remote.all_read()


async def test_what_a_dead_bridge_has_not_sent_is_sent_by_another(quick_app: Rowlock, remote: Remote) -> None:
    app = quick_app
    job = await app.get_task("REPLAY_MP4").enqueue(replayId=7)
    store = await app.store()
    from rowlock.core.claiming.ranges import Range
    from rowlock.store.engine.ids import new_token

    claimed = await store.run(outbox.publish(new_token(), [Range("default", "REPLAY_MP4")], 10, 0.5, {}))
    assert [one.id for one in claimed] == [job.id]  # and here its bridge dies
    async with app.bridge():
        remote.succeed(await remote.request(job.id))
        await until_state(app, job.id, "succeeded")


async def test_a_cancel_by_a_flag_alone_ends_a_remote_job(app: Rowlock, remote: Remote) -> None:
    async with app.bridge():
        job = await app.get_task("REPLAY_MP4").enqueue(replayId=7)
        await remote.request(job.id)
        async with app.transaction() as tx:
            prefix = "rowlock_" if app.database.startswith("sqlite") else "rowlock."
            await tx.execute(f"UPDATE {prefix}jobs_live SET cancel_requested_at = updated_at")
        cancelled = await until_state(app, job.id, "cancelled")
        await until(lambda: remote.cancels() == [job.id], lambda: str(remote.cancels()))
    assert (cancelled.attempt, cancelled.error_code) == (1, "CANCELLED")


async def test_a_row_that_cannot_be_cancelled_holds_up_no_other_cancel(app: Rowlock, remote: Remote) -> None:
    async with app.bridge():
        bad, good = [await app.get_task("REPLAY_MP4").enqueue(replayId=n) for n in (1, 2)]
        for job in (bad, good):
            await remote.request(job.id)
        with refused(app.database, "jobs_finished", "id", bad.id):
            async with app.transaction() as tx:
                prefix = "rowlock_" if app.database.startswith("sqlite") else "rowlock."
                await tx.execute(f"UPDATE {prefix}jobs_live SET cancel_requested_at = updated_at")
            await until_state(app, good.id, "cancelled")
        await until_state(app, bad.id, "cancelled")


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_trimming_keeps_what_is_not_acknowledged(app: Rowlock, remote: Remote) -> None:
    async with app.bridge() as bridge:
        for n in range(300):
            remote.redis.xadd(remote.key("job.requests"), {"n": n})
        remote.redis.xgroup_create(remote.key("job.requests"), "workers", id="0")
        await bridge.streams.trim("job.requests")
        assert remote.redis.xlen(remote.key("job.requests")) == 300
        read = remote.redis.xreadgroup("workers", "w", {remote.key("job.requests"): ">"}, count=250)
        ids = [entry for entry, _ in read[0][1]]
        remote.redis.xack(remote.key("job.requests"), "workers", *ids[:5], *ids[6:])
        await bridge.streams.trim("job.requests")
        left = [entry for entry, _ in remote.redis.xrange(remote.key("job.requests"))]
        assert ids[5] in left
        assert len(left) >= 51


async def test_two_bridges_share_the_work(app: Rowlock, remote: Remote) -> None:
    made = await app.get_task("REPLAY_MP4").enqueue_many([{"replayId": n} for n in range(60)])
    async with app.bridge(), app.bridge():
        await until(lambda: len(remote.requests()) >= 60)
        for request in remote.requests():
            remote.succeed(request)
        for job in made:
            await until_state(app, job.id, "succeeded")
    assert sorted(request["jobId"] for request in remote.requests()) == sorted(job.id for job in made)
