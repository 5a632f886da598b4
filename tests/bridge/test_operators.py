"""What an operator sees and does: dead letters, numbers, errors without secrets."""

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rowlock import Rowlock
from rowlock.bridge.bridge import Bridge
from rowlock.bridge.dead_letters import drop, letters, republish
from rowlock.bridge.stats import numbers
from rowlock.bridge.streams import opened_streams
from rowlock.cli.inspect.checks import conditions
from rowlock.cli.main import execute
from rowlock.core.errors import ConfigError, NotAllowed, StoreError
from rowlock.core.job import NewJob
from rowlock.store import audit
from rowlock.store.engine.ids import new_id
from rowlock.store.jobs import enqueue
from rowlock.store.read.snapshot import snapshot
from support.each import each
from support.servers.redis import RedisServer
from support.web.remote import Remote, until, until_state, with_tasks

ANA = audit.Actor("ana", "cli")


async def test_a_republished_letter_is_a_new_attempt_under_the_same_job_id(app: Rowlock, remote: Remote) -> None:
    async with app.bridge():
        job = await app.get_task("REPLAY_MP4").enqueue(replayId=7)
        first = await remote.request(job.id)
        remote.say("job.results", jobId=job.id, status="WEIRD")
        await remote.all_read()
        (found,) = await letters(app, 10)
        assert (found.reason, found.job_id, found.message["status"]) == ("BAD_FIELD", job.id, "WEIRD")
        await republish(app, found, ANA)
        assert await letters(app, 10) == []
        (entry,) = await app.perform(audit.entries(10))
        assert (entry.who, entry.action, entry.target) == ("ana", "deadletters.republish", found.id)
        assert entry.details == {"job_id": job.id, "reason": "BAD_FIELD"}
        second = await remote.request(job.id, attempt=2)
        remote.succeed(first)  # of the attempt that was given up
        remote.succeed(second)
        done = await until_state(app, job.id, "succeeded")
        assert (done.attempt, done.releases) == (2, 1)


@pytest.mark.parametrize("engine", ["sqlite"])
@each("memory", ["enough memory", "no memory for a copy"])
async def test_the_job_of_a_message_that_was_too_large_is_published_again(
    settings: Callable[..., Any], remote: Remote, tmp_path: Path, memory: str
) -> None:
    server = RedisServer(tmp_path).start()
    there = Remote(server, "", remote.results)
    changes = {"redis__url": server.url, "redis__prefix": "", "redis__takeover_seconds": 1.0}
    try:
        async with with_tasks(Rowlock(settings=settings(**changes))) as app:
            job = await app.get_task("REPLAY_MP4").enqueue(replayId=7)
            async with app.bridge():
                await there.request(job.id)
            there.say("job.results", status="FAILED", errorMessage="x" * 1_000_000, jobId=job.id)
            if memory == "no memory for a copy":
                there.redis.connection_pool.disconnect()  # its large query buffer counts as used memory until it goes
                there.redis.config_set("maxmemory", there.redis.info("memory")["used_memory"] + 20_000)
            async with app.bridge():
                await until(lambda: bool(there.letters()))
                there.redis.config_set("maxmemory", 0)
                (found,) = await letters(app, 10)
                assert (found.reason, found.job_id, found.type) == ("TOO_LARGE", job.id, "REPLAY_MP4")
                assert found.size == 1_000_000 + sum(map(len, ("status", "FAILED", "errorMessage", "jobId", job.id)))
                assert bool(found.message) is (memory == "enough memory")
                await republish(app, found, ANA)
                there.succeed(await there.request(job.id, attempt=2))
                await until_state(app, job.id, "succeeded")
    finally:
        server.stop()


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_any_number_of_large_letters_is_listed(app: Rowlock, remote: Remote) -> None:
    """More than the connection keeps of one reply."""
    pipe = remote.redis.pipeline(transaction=False)
    for number in range(320):
        pipe.xadd(remote.key("job.deadletter"), {"reason": str(number), "message": json.dumps({"a": "x" * 60_000})})
    pipe.execute()
    for wanted in (319, 320, 400):
        found = await letters(app, wanted)
        assert [int(one.reason) for one in found] == list(range(319, max(-1, 319 - wanted), -1))
        assert {len(one.message["a"]) for one in found} == {60_000}


async def test_the_job_of_a_letter_that_has_failed_is_retried_and_one_that_succeeded_is_not(
    app: Rowlock, remote: Remote
) -> None:
    async with app.bridge():
        job = await app.get_task("REPLAY_MP4").enqueue(replayId=7)
        await remote.request(job.id)
        remote.say("job.results", jobId=job.id, status="WEIRD")
        remote.say("job.results", jobId=job.id, status="FAILED")
        await until_state(app, job.id, "dead")
        await remote.all_read()
        (found,) = await letters(app, 10)
        await republish(app, found, ANA)
        remote.succeed(await remote.request(job.id, attempt=2))
        await until_state(app, job.id, "succeeded")
        with pytest.raises(NotAllowed, match="has succeeded"):
            await republish(app, found, ANA)


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_letter_without_a_known_job_is_not_republished(app: Rowlock, remote: Remote) -> None:
    async with app.bridge():
        remote.say("job.results", status="FAILED")
        remote.say("job.results", jobId="00000000-0000-0000-0000-000000000001", status="FAILED")
        await remote.all_read()
        unknown, nameless = await letters(app, 10)
        with pytest.raises(NotAllowed, match="names no job"):
            await republish(app, nameless, ANA)
        with pytest.raises(NotAllowed, match="there is no such job"):
            await republish(app, unknown, ANA)
        assert len(await letters(app, 10)) == 2


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_letter_that_cannot_be_written_into_the_audit_stays_and_its_job_is_not_changed(
    app: Rowlock, remote: Remote
) -> None:
    async with app.bridge():
        published, dead = [await app.get_task("REPLAY_MP4").enqueue(replayId=number) for number in range(2)]
        for job in (published, dead):
            await remote.request(job.id)
            remote.say("job.results", jobId=job.id, status="WEIRD")
        remote.say("job.results", jobId=dead.id, status="FAILED")
        await remote.all_read()
    async with app.transaction() as transaction:
        await transaction.execute(
            "CREATE TRIGGER full BEFORE INSERT ON rowlock_audit BEGIN SELECT RAISE(ABORT, 'the audit is full'); END"
        )
    before = [(await app.job(job.id)).record for job in (published, dead)]
    found = await letters(app, 10)
    assert {letter.job_id for letter in found} == {published.id, dead.id}
    for letter in found:
        for change in (republish, drop):
            with pytest.raises(StoreError, match="the audit is full"):
                await change(app, letter, ANA)
    assert await letters(app, 10) == found
    assert [(await app.job(job.id)).record for job in (published, dead)] == before


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_numbers_show_lag_pending_and_dead_letters(app: Rowlock, remote: Remote) -> None:
    async with app.bridge():
        job = await app.get_task("REPLAY_MP4").enqueue(replayId=7)
        await remote.request(job.id)
        remote.say("job.results", status="FAILED")
        await remote.all_read()
    remote.progress(job.id)
    remote.progress(job.id)
    remote.redis.xreadgroup("rowlock", "died", {remote.key("job.progress"): ">"}, count=1)
    async with opened_streams(app.settings.redis) as streams:
        found = await numbers(app, streams)
    assert {(one.stream, one.lag, one.pending) for one in found.streams} == {
        ("job.progress", 1, 1),
        ("job.results", 0, 0),
    }
    assert (found.unread, found.dead_letters, found.counters["dead_letters"]) == (1, 1, 1)


@pytest.mark.parametrize("engine", ["sqlite"])
def test_the_verbs_print_numbers_and_letters(
    app_url: str, remote: Remote, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROWLOCK_DATABASE_URL", app_url)
    monkeypatch.setenv("ROWLOCK_REDIS__URL", remote.server.url)
    monkeypatch.setenv("ROWLOCK_REDIS__PREFIX", remote.prefix)
    letter = {"stream": "job.results", "entry": "1-1", "reason": "BAD_FIELD", "text": "no", "message": '{"a": "b"}'}
    entry = remote.redis.xadd(remote.key("job.deadletter"), letter)

    def printed(*arguments: str) -> Any:
        assert execute([*arguments, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    async def dropped() -> list[audit.AuditEntry]:
        async with Rowlock() as app:
            return [one for one in await app.perform(audit.entries(10)) if one.action == "deadletters.drop"]

    assert printed("stats")["redis"]["dead_letters"] == 1
    assert execute(["stats"]) == 0
    assert "1 dead letter\n" in capsys.readouterr().out
    assert [one["id"] for one in printed("deadletters", "list")] == [entry]
    assert printed("deadletters", "show", entry)["message"] == {"a": "b"}
    assert execute(["deadletters", "republish", entry]) == 4
    assert "names no job" in capsys.readouterr().err
    assert printed("deadletters", "drop", entry) == {"dropped": entry}
    (written,) = asyncio.run(dropped())
    assert (written.via, written.target, written.details) == ("cli", entry, {"job_id": None, "reason": "BAD_FIELD"})
    assert execute(["deadletters", "drop", entry]) == 3
    for _ in range(2):
        remote.redis.xadd(remote.key("job.deadletter"), letter)
    capsys.readouterr()
    assert len(printed("deadletters", "list", "--limit", "2")) == 2
    assert execute(["deadletters", "list", "--limit", "1"]) == 0
    assert capsys.readouterr().err == "rowlock: only the first 1 are shown; --limit shows more\n"
    assert execute(["deadletters", "drop", "letter"]) == 2
    monkeypatch.setenv("ROWLOCK_REDIS__URL", "redis://ana:hunter2@127.0.0.1:1/0")
    assert execute(["deadletters", "list"]) == 2
    assert "hunter2" not in capsys.readouterr().err


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_bridge_without_remote_tasks_or_without_redis_says_so(settings: Callable[..., Any], app_url: str) -> None:
    with pytest.raises(ConfigError, match="no task of this app has runs_on='redis'"):
        Bridge(Rowlock(settings=settings()))
    with pytest.raises(ConfigError, match="no Redis is configured"):
        Bridge(with_tasks(Rowlock(app_url)))


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_user_of_the_server_logs_in_by_the_url_and_its_password_is_in_no_log(
    settings: Callable[..., Any], remote: Remote, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server = RedisServer(tmp_path).start()
    there = Remote(server, "", remote.results)
    rights = ["on", ">hunter2", "~job.*", "+@all", "-@dangerous", "+xinfo"]
    there.redis.execute_command("ACL", "SETUSER", "bridge", *rights)
    url = server.url.replace("redis://", "redis://bridge:hunter2@")
    try:
        changes = {"redis__url": url, "redis__prefix": "", "redis__takeover_seconds": 1}
        async with with_tasks(Rowlock(settings=settings(**changes))) as app:
            async with app.bridge():
                job = await app.get_task("REPLAY_MP4").enqueue(replayId=7)
                there.succeed(await there.request(job.id))
                await until_state(app, job.id, "succeeded")
                server.stop()
                await until_said(caplog, "outage, noticed by")
        wrong = with_tasks(Rowlock(settings=settings(redis__url=url.replace("hunter2", "hunter3"))))
        server.start()
        async with wrong:
            with pytest.raises(ConfigError, match="refuses this user") as refused:
                await Bridge(wrong).start()
        assert "hunter" not in caplog.text + str(refused.value) + repr(app.settings.redis)
    finally:
        server.stop()


async def until_said(caplog: pytest.LogCaptureFixture, text: str) -> None:
    from support.web.remote import until

    await until(lambda: text in caplog.text)


async def test_jobs_that_nobody_publishes_are_told_by_explain_and_doctor(settings: Callable[..., Any]) -> None:
    """Who enqueues without the app's code cannot know that no bridge has a Redis."""
    async with with_tasks(Rowlock(settings=settings(redis__url=None))) as app:
        with pytest.raises(ConfigError, match="no Redis is configured"):
            await app.get_task("REPLAY_MP4").enqueue(replayId=1)
        store, job_id = await app.store(), new_id()

        @app.task("here")
        async def here() -> None: ...

        async with app.worker():
            await store.run(enqueue.enqueue([(job_id, '{"replayId": 1}')], NewJob("REPLAY_MP4")))
            why = await app.explain(job_id)
            assert "knows its task 'REPLAY_MP4'" in why.text
            told = [finding for finding in conditions(await store.run(snapshot())) if finding.level == "fail"]
            assert [finding.text for finding in told] == [
                "no live worker of queue 'default' has the task 'REPLAY_MP4'; jobs waiting: 1"
            ]
            assert (await app.job(job_id)).state == "queued"
