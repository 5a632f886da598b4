"""A job that cannot be published, a file that cannot be read, a Redis that is full, and one that was demoted: each
holds up as little as it can."""

import asyncio
import errno
import json
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from redis.exceptions import ReadOnlyError

from rowlock import Rowlock
from rowlock.bridge import replies
from rowlock.bridge import streams as module
from rowlock.bridge.dead_letters import dead_letter
from rowlock.bridge.messages import MAX_BYTES, message_size
from rowlock.bridge.replies import MOST_ELEMENTS, UNREAD, BoundedParser, size_of
from rowlock.bridge.streams import Streams
from rowlock.core.config import RedisSettings
from rowlock.core.job import NewJob
from rowlock.store.engine.ids import new_id
from rowlock.store.jobs import enqueue
from support.each import each
from support.servers.redis import RedisServer
from support.web.remote import Remote, until, until_state, with_tasks


async def test_a_job_of_which_no_request_can_be_made_is_dead_and_the_others_are_published(
    app: Rowlock, remote: Remote
) -> None:
    good, bad, store = new_id(), new_id(), await app.store()
    half = '{"replayId": "\\ud800"}'  # half of a pair, which is no text; databases store it
    await store.run(enqueue.enqueue([(bad, half), (good, '{"replayId": 1}')], NewJob("REPLAY_MP4", max_attempts=1)))
    async with app.bridge():
        remote.succeed(await remote.request(good))
        await until_state(app, good, "succeeded")
        dead = await until_state(app, bad, "dead")
    assert dead.error_code == "INVALID_ARGUMENTS"
    assert len(remote.requests()) == 1


@pytest.mark.parametrize("engine", ["sqlite"])
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
    changes = {"redis__url": server.url, "redis__prefix": "", "redis__takeover_seconds": 1.0}
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


LARGE: dict[str, dict[bytes, bytes]] = {
    "a long field": {b"errorMessage": b"\xff" * 400_000},
    "many fields": {b"%d" % n: b"" for n in range(50_000)},
    "many long fields": {b"%d" % n: b"x" * 70_000 for n in range(300)},  # more than is kept of one reply
}


@pytest.mark.parametrize("engine", ["sqlite"])
@each("kind", LARGE)
async def test_a_message_that_is_too_large_holds_up_no_other_when_redis_has_little_memory(
    settings: Callable[..., Any], remote: Remote, tmp_path: Path, kind: str
) -> None:
    server = RedisServer(tmp_path).start()
    there = Remote(server, "", remote.results)
    changes = {"redis__url": server.url, "redis__prefix": "", "redis__takeover_seconds": 1.0}
    try:
        async with with_tasks(Rowlock(settings=settings(**changes))) as app:
            bad, good = [await app.get_task("REPLAY_MP4").enqueue(replayId=number) for number in range(2)]
            async with app.bridge():
                request = await there.request(good.id)
                await there.request(bad.id)
            fields = {b"status": b"FAILED", **LARGE[kind]}
            fields = (
                {b"jobId": bad.id.encode()} | fields if kind == "many fields" else fields | {b"jobId": bad.id.encode()}
            )
            server.client().xadd("job.results", fields)  # type: ignore[arg-type]
            there.succeed(request)
            there.redis.config_set("maxmemory", there.redis.info("memory")["used_memory"] + 300_000)
            async with app.bridge():
                await until_state(app, good.id, "succeeded")
                await until(lambda: bool(there.letters()))
                there.redis.config_set("maxmemory", 0)
                await there.all_read()
            (letter,) = there.letters()
            found = (letter["reason"], letter["jobId"], letter["type"])
            assert found == ("TOO_LARGE", bad.id, "REPLAY_MP4")
            assert int(letter["size"]) == sum(len(name) + len(value) for name, value in fields.items())
            assert sum(len(name) + len(value.encode()) for name, value in letter.items()) <= 65_536
    finally:
        server.stop()


@each(
    "size, number, room, copied, left",
    [
        pytest.param(60_000, 50, 10_000_000, True, 50, id="room for copies"),
        pytest.param(60_000, 50, 400_000, False, 50, id="room for letters without copies"),
        pytest.param(60_000, 50, -100_000, None, 50, id="no room, and small messages, which wait"),
        pytest.param(2_000_000, 1, -100_000, False, 0, id="no room, and a large message, which makes room"),
    ],
)
async def test_what_is_written_of_refused_messages_depends_on_the_memory_of_redis(
    tmp_path: Path, size: int, number: int, room: int, copied: bool | None, left: int
) -> None:
    server = RedisServer(tmp_path).start()
    there = Remote(server, "", tmp_path)
    streams = Streams(RedisSettings(url=server.url, prefix=""), "me")
    try:
        await streams.make_groups()
        for _ in range(number):
            there.say("job.results", errorMessage="x" * size)
        entries = await streams.read(1000)
        letters = {(e.stream, e.id): dead_letter(e.stream, e.id, e.fields, "BAD_JOB_ID", "") for e in entries}
        there.redis.config_set("maxmemory", there.redis.info("memory")["used_memory"] + room)
        unwritten = await streams.acknowledge(entries, letters, {})
        there.redis.config_set("maxmemory", 0)
        assert (list(unwritten.waiting), unwritten.lost) == (entries if copied is None else [], ())
        assert there.redis.xpending("job.results", "rowlock")["pending"] == len(unwritten.waiting)
        assert {"message" in letter for letter in there.letters()} == (set() if copied is None else {copied})
        assert there.redis.xlen("job.results") == left
    finally:
        await streams.close()
        server.stop()


async def test_the_oldest_dead_letters_go_when_there_are_too_many(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_LETTERS", 200)
    streams = Streams(RedisSettings(url=remote.server.url, prefix=remote.prefix), "me")
    try:
        await streams.make_groups()
        for number in range(600):
            remote.say("job.results", errorMessage=number)
        entries = await streams.read(1000)
        letters = {(e.stream, e.id): dead_letter(e.stream, e.id, e.fields, "BAD_JOB_ID", "") for e in entries}
        await streams.acknowledge(entries, letters, {})
        kept = [int(json.loads(letter["message"])["errorMessage"]) for letter in remote.letters()]
        assert 200 <= len(kept) < 400  # Redis removes entries by the hundred
        assert kept == list(range(600))[-len(kept) :]
    finally:
        await streams.close()


async def test_replies_are_read_in_bounded_memory(remote: Remote) -> None:
    """A message of 50 MB, and then a thousand of the largest that are allowed."""
    streams = Streams(RedisSettings(url=remote.server.url, prefix=remote.prefix), "me")
    await streams.make_groups()
    remote.say("job.results", errorMessage="x" * 50_000_000, jobId="last")
    pipe = remote.redis.pipeline(transaction=False)
    for _ in range(600):
        pipe.xadd(remote.key("job.results"), {"errorMessage": "x" * 60_000})
    pipe.execute()
    tracemalloc.start()
    try:
        first = await streams.read(1000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 40_000_000
    assert (first[0].fields[b"jobId"], message_size(first[0].fields)) == (b"last", 50_000_021)
    assert streams.cut
    found, place = len(first), first[-1].id
    while rest := await streams.read(1000, {"job.progress": "0", "job.results": place}):
        found, place = found + len(rest), rest[-1].id
    await streams.close()
    assert found == 601


async def test_of_an_array_with_too_many_elements_the_first_ones_are_kept_and_its_size_is_known() -> None:
    stream, parser, number = asyncio.StreamReader(), BoundedParser(65_536), 100_000
    parser.on_connect(SimpleNamespace(_reader=stream))
    stream.feed_data(b"*%d\r\n" % number + b"$0\r\n\r\n" * number)
    found = await parser.read_response()
    assert len(found) == MOST_ELEMENTS
    assert message_size({found[-2]: found[-1]}) > MAX_BYTES


async def test_of_the_long_strings_of_an_array_as_much_is_kept_as_a_message_may_have() -> None:
    stream, parser = asyncio.StreamReader(), BoundedParser(65_536)
    parser.on_connect(SimpleNamespace(_reader=stream))
    stream.feed_data(b"*602\r\n" + b"$70000\r\n%b\r\n" % (b"x" * 70_000) * 600 + b"$5\r\njobId\r\n$4\r\nlast\r\n")
    *long, name, value = await parser.read_response()
    assert (name, value) == (b"jobId", b"last")
    assert sum(map(len, long)) == 65_536
    assert {size_of(one) for one in long} == {70_000}


async def test_of_a_reply_that_is_too_large_no_more_is_kept_than_what_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies, "BUDGET", 100_000)
    stream, parser, number = asyncio.StreamReader(), BoundedParser(65_536), 20
    parser.on_connect(SimpleNamespace(_reader=stream))
    stream.feed_data(b"*%d\r\n" % number + (b"*2\r\n$3\r\n1-1\r\n*20000\r\n" + b"$0\r\n\r\n" * 20_000) * number)
    (_, first), *rest = await parser.read_response()
    assert len(first) < 2000
    assert (len(first) % 2, first[-1]) == (0, UNREAD)  # redis-py would drop half of a pair, and nobody would see it
    assert [(len(entry), entry[0] is UNREAD, len(entry[1])) for entry in rest] == [(2, True, 2)] * (number - 1)


@each("content", ["x", "\x00", "\ud55c", '"', b"\xff"])
@each("shape", ["one long value", "a long name", "many fields"])
def test_a_dead_letter_has_at_most_64_kib_and_names_its_job(content: str | bytes, shape: str) -> None:
    one, job_id = content if isinstance(content, bytes) else content.encode(), new_id()
    fields = {
        "one long value": {b"errorMessage": one * 60_000},
        "a long name": {one * 60_000: b""},
        "many fields": {b"%d" % number + one: one * 5 for number in range(9000)},
    }[shape]
    letter = dead_letter("job.results", "1-1", fields | {b"jobId": job_id.encode()}, "TOO_LARGE", "x" * 5000, "t" * 999)
    assert sum(len(name) + len(value.encode()) for name, value in letter.items()) <= 65_536
    assert (letter["jobId"], letter["size"]) == (job_id, str(message_size(fields) + 41))
    assert json.loads(letter["message"])["jobId"] == job_id
