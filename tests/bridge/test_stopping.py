"""A bridge that is stopped in the middle of its work."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest

from rowlock import Rowlock
from rowlock.bridge import outbox
from rowlock.bridge.bridge import Bridge
from rowlock.bridge.messages import REQUESTS
from rowlock.bridge.streams import Streams
from rowlock.worker.loops import Loops
from support.web.remote import Remote, until


async def test_a_bridge_that_is_stopped_while_it_publishes_sends_each_request_once_and_marks_it(
    app: Rowlock, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_many, finish = Streams.add_many, Loops.finish
    sending, ending, stopping = list[int](), list[str](), asyncio.Event()

    async def held(self: Streams, name: str, messages: Sequence[Mapping[str, str]]) -> list[str]:
        """Appends, and holds the first round until the stop has come to the loop or begun a round of its own."""
        added = await add_many(self, name, messages)
        if name == REQUESTS and messages:
            sending.append(len(messages))
            stopping.set()
            await until(lambda: "publish" in ending or len(sending) > 1)
        return added

    async def told(self: Loops, name: str, timeout: float) -> None:
        ending.append(name)
        await finish(self, name, timeout)

    monkeypatch.setattr(Streams, "add_many", held)
    monkeypatch.setattr(Loops, "finish", told)
    made = await app.get_task("REPLAY_MP4").enqueue_many([{"replayId": n} for n in range(3)])
    bridge = Bridge(app)
    await bridge.start()
    await stopping.wait()
    await bridge.stop()
    assert Counter(request["jobId"] for request in remote.requests()) == {job.id: 1 for job in made}
    sent = await (await app.store()).run(outbox.quiet(0, 10, 0.0))
    assert sorted(row.job_id for row in sent) == sorted(job.id for job in made)
