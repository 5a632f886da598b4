"""While a full batch of messages is stored, the next batch is already read: its order and its entries are kept."""

import asyncio
from typing import Any

import pytest

from rowlock import Rowlock
from rowlock.bridge import listener
from rowlock.bridge import reports as stored
from rowlock.core.errors import StoreUnavailable
from support.web.remote import Remote, until, until_state


async def published(app: Rowlock, remote: Remote, number: int) -> list[dict[str, str]]:
    """Requests of new jobs, which no bridge runs any more."""
    made = await app.get_task("REPLAY_MP4").enqueue_many([{"replayId": n} for n in range(number)])
    async with app.bridge():
        return [await remote.request(job.id) for job in made]


def pending(remote: Remote) -> int:
    return int(remote.redis.xinfo_groups(remote.key("job.results"))[0]["pending"])


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_messages_read_ahead_of_a_batch_that_failed_are_stored_after_that_batch(
    app: Rowlock, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = await published(app, remote, 3)
    monkeypatch.setattr(listener, "BATCH", 2)
    settle, failed = stored.settle, asyncio.Event()

    async def fail_once(*given: Any) -> Any:
        if not failed.is_set():
            await until(lambda: pending(remote) == 4)  # the second batch is read
            failed.set()
            raise StoreUnavailable("away for a moment")
        return await settle(*given)

    monkeypatch.setattr(stored, "settle", fail_once)
    remote.say("job.results", jobId=first["jobId"], status="CANCELLED")
    for request in (second, first, third):
        remote.succeed(request)
    async with app.bridge():
        await until_state(app, third["jobId"], "succeeded")
        await remote.all_read()
    assert failed.is_set()
    assert (await app.job(first["jobId"])).state == "cancelled"  # its first result counts, not that of the next batch
    assert remote.count("late") == 1


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_bridge_that_is_stopped_stores_what_it_has_read_ahead(
    app: Rowlock, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = await published(app, remote, 4)
    monkeypatch.setattr(listener, "BATCH", 2)
    settle, stopping = stored.settle, asyncio.Event()

    async def slow(*given: Any) -> Any:
        await until(lambda: pending(remote) == 4)
        stopping.set()
        await asyncio.sleep(0)
        return await settle(*given)

    monkeypatch.setattr(stored, "settle", slow)
    for request in requests:
        remote.succeed(request)
    async with app.bridge():
        await stopping.wait()
        monkeypatch.setattr(stored, "settle", settle)
    assert pending(remote) == 0
    for request in requests:
        assert (await app.job(request["jobId"])).state == "succeeded"
