"""What a heart or a wake-up says about a lease stops the attempt that holds it, and no other of the same job."""

import asyncio
from collections.abc import Callable

import pytest

from rowlock.core.outcome import AttemptEnd
from rowlock.store.ids import new_token
from rowlock.work.heartbeat import Lease
from rowlock.work.running import Running
from rowlock.work.stopping import Stopping
from support.process_tasks import claimed

WAYS: dict[str, Callable[[Stopping], Callable[[list[Lease]], None]]] = {
    "lost": lambda stops: stops.lost,
    "cancel": lambda stops: stops.cancelled,
    "fenced": lambda stops: stops.fenced,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("begun", [True, False], ids=["runs", "waits for a slot"])
async def test_an_attempt_is_stopped_under_its_own_token_and_not_under_an_older_one_of_its_job(
    way: str, begun: bool
) -> None:
    running = claimed("pid")
    settled: list[AttemptEnd] = []
    forgotten: list[Running] = []
    stops = Stopping({running.job.id: running}, lambda _, end: settled.append(end), forgotten.append)
    if begun:
        running.task, running.begun = asyncio.create_task(asyncio.Event().wait()), True
    say = WAYS[way](stops)

    say([(running.job.id, new_token())])  # a late answer about an attempt whose job is here again
    assert (running.reason, running.ended, settled, forgotten) == (None, False, [], [])

    say([(running.job.id, running.token)])
    assert (running.reason == way) if begun else running.ended
    assert forgotten == ([running] if way == "lost" else [])
    if running.task is not None:
        with pytest.raises(asyncio.CancelledError):
            await running.task
