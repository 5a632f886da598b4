"""Messages that were delivered often: only one that itself kills the bridges that handle it becomes a dead letter."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bridge.test_kills import killed_bridge
from rowlock import Rowlock
from rowlock.bridge import reports as stored
from rowlock.bridge.listener import MOST_DEATHS
from rowlock.bridge.reports import ReportWriter
from rowlock.bridge.streams import StreamEntry, Streams
from rowlock.core.config import RedisSettings
from rowlock.core.errors import StoreUnavailable
from support.web.remote import Remote, until, until_state


async def published(app: Rowlock, remote: Remote, number: int) -> list[dict[str, str]]:
    """Requests of new jobs; no bridge runs any more."""
    made = await app.get_task("REPLAY_MP4").enqueue_many([{"replayId": n} for n in range(number)])
    async with app.bridge():
        return [await remote.request(job.id) for job in made]


def deaths(remote: Remote) -> dict[str, str]:
    """How many bridges have died of which message."""
    found: dict[str, str] = remote.redis.hgetall(remote.key("job.alone"))
    return found


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_messages_that_were_delivered_often_are_stored_like_others(quick_app: Rowlock, remote: Remote) -> None:
    requests = await published(quick_app, remote, 2)
    remote.progress(requests[0]["jobId"], 30)
    for request in requests:
        remote.succeed(request)
    for stream in ("job.progress", "job.results"):
        remote.deliver_often(stream)
    async with quick_app.bridge():
        await remote.all_read()
    for request in requests:
        assert (await quick_app.job(request["jobId"])).state == "succeeded"
    assert (remote.letters(), deaths(remote)) == ([], {})


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_message_that_kills_each_bridge_that_handles_it_becomes_a_dead_letter_and_no_other_does(
    quick_app: Rowlock, remote: Remote, tmp_path: Path
) -> None:
    poisoned, other = await published(quick_app, remote, 2)
    bad = remote.say("job.results", **remote.write(poisoned), errorCode="kill")
    remote.succeed(other)
    remote.deliver_often()
    killed_bridge(quick_app, remote, "kill", tmp_path)
    assert deaths(remote) == {f"job.results {bad}": "1"}
    remote.redis.hset(remote.key("job.alone"), f"job.results {bad}", MOST_DEATHS)
    remote.deliver_often()
    async with quick_app.bridge():
        await until_state(quick_app, other["jobId"], "succeeded")
        await remote.all_read()
        await until(lambda: deaths(remote) == {})
    assert [(letter["reason"], letter["jobId"]) for letter in remote.letters()] == [("NEVER_DONE", poisoned["jobId"])]


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_message_of_a_job_that_has_ended_is_late_however_many_bridges_died(
    quick_app: Rowlock, remote: Remote
) -> None:
    (request,) = await published(quick_app, remote, 1)
    remote.succeed(request)
    async with quick_app.bridge():
        await until_state(quick_app, request["jobId"], "succeeded")
        await remote.all_read()
    again = remote.say("job.results", **remote.write(request))
    remote.redis.hset(remote.key("job.alone"), f"job.results {again}", MOST_DEATHS)
    remote.deliver_often()
    async with quick_app.bridge():
        await remote.all_read()
        await until(lambda: deaths(remote) == {})
    assert (remote.letters(), remote.count("late")) == ([], 1)


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_an_outage_of_the_database_is_no_death_of_the_message_that_was_handled_alone(
    quick_app: Rowlock, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    (request,) = await published(quick_app, remote, 1)
    remote.succeed(request)
    remote.deliver_often()
    write, seen = ReportWriter.write, list[dict[str, str]]()

    async def fail_once(self: ReportWriter, entries: Sequence[StreamEntry]) -> Any:
        seen.append(deaths(remote))
        if len(seen) == 1:
            raise StoreUnavailable("away for a moment")
        return await write(self, entries)

    monkeypatch.setattr(ReportWriter, "write", fail_once)
    async with quick_app.bridge():
        await until_state(quick_app, request["jobId"], "succeeded")
        await remote.all_read()
    assert list(seen[0].values()) == ["1"]  # noted before it was tried
    assert seen[1] == {}
    assert remote.letters() == []


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_living_bridge_keeps_the_messages_that_it_is_still_at(
    quick_app: Rowlock, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other bridges take over what was left untouched for long; a large file may take longer to check."""
    (request,) = await published(quick_app, remote, 1)
    settle, key, long = stored.settle, remote.key("job.results"), 3_600_000
    found: dict[str, Any] = {}

    def kept() -> bool:
        found.update(remote.redis.xpending_range(key, "rowlock", "-", "+", 1)[0])
        return int(found["time_since_delivered"]) < long

    async def slow(*given: Any) -> Any:
        row = remote.redis.xpending_range(key, "rowlock", "-", "+", 1)[0]
        remote.redis.xclaim(key, "rowlock", row["consumer"], 0, [row["message_id"]], idle=long, justid=True)
        await until(kept)
        return await settle(*given)

    monkeypatch.setattr(stored, "settle", slow)
    remote.succeed(request)
    async with quick_app.bridge() as bridge:
        await until_state(quick_app, request["jobId"], "succeeded")
    assert (found["consumer"], found["times_delivered"]) == (bridge.id, 1)


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_message_whose_delivery_was_lost_on_its_way_to_a_living_bridge_is_stored(
    quick_app: Rowlock, remote: Remote
) -> None:
    """Redis has given it to this bridge, which does not know of it: a read was cut off."""
    async with quick_app.bridge() as bridge:
        job = await quick_app.get_task("REPLAY_MP4").enqueue(replayId=7)
        request = await remote.request(job.id)
        with remote.redis.pipeline(transaction=True) as pipe:  # before the bridge can read it itself
            pipe.xadd(remote.key("job.results"), remote.write(request))
            pipe.xreadgroup("rowlock", bridge.id, {remote.key("job.results"): ">"})
            pipe.execute()
        await until_state(quick_app, job.id, "succeeded")
        await remote.all_read()
        assert remote.redis.xlen(remote.key("job.results")) == 1, "the worker has said it once"
        assert remote.letters() == []


async def test_a_consumer_takes_over_what_lies_behind_many_entries_of_living_consumers(remote: Remote) -> None:
    streams = Streams(RedisSettings(url=remote.server.url, prefix=remote.prefix), "me")
    await streams.make_groups()
    for n in range(15):
        remote.say("job.results", n=n)
    remote.redis.xreadgroup("rowlock", "alive", {remote.key("job.results"): ">"}, count=14)
    key = remote.key("job.results")
    ((_, ((last, _),)),) = remote.redis.xreadgroup("rowlock", "dead", {key: ">"})
    remote.redis.xclaim(key, "rowlock", "dead", 0, [last], idle=3_600_000, justid=True)
    taken = await streams.take_over("job.results", 60.0, 1)  # Redis looks at ten entries for each one that is asked for
    await streams.close()
    assert [entry.id for entry in taken] == [last]
