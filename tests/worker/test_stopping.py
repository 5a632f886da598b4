"""What a heart or a wake-up says about a lease stops the attempt that holds it, and no other of the same job."""

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from rowlock.core.outcome import AttemptEnd
from rowlock.store.engine.ids import new_token
from rowlock.worker.attempt.attempt import LiveAttempt, Stopping
from support.each import each
from support.rigs.worker import new_slots
from support.tasks.processes import claimed

WAYS: dict[str, Callable[[Stopping], Callable[[list[LiveAttempt]], None]]] = {
    "lost": lambda stops: stops.lost,
    "cancel": lambda stops: stops.cancelled,
    "unrenewed": lambda stops: stops.unrenewed,
}


@each("way", WAYS)
@each("begun", [True, False], ids=["runs", "waits for a slot"])
async def test_an_attempt_is_stopped_under_its_own_token_and_not_under_an_older_one_of_its_job(
    way: str, begun: bool
) -> None:
    running = claimed("pid")
    older = LiveAttempt(running.job._replace(token=new_token()))
    slots = new_slots()
    slots.held[running.job.id] = running
    settled: list[AttemptEnd] = []
    settler: Any = SimpleNamespace(settle=lambda _, end: settled.append(end))
    stops = Stopping(slots, settler)
    if begun:
        running.task, running.begun = asyncio.create_task(asyncio.Event().wait()), True
        running.started = time.monotonic()
    say = WAYS[way](stops)

    say([older])  # a late answer about an attempt whose job is here again
    assert (running.reason, running.ended, settled, slots.holds(running)) == (None, False, [], True)

    say([running])
    assert (running.reason == way) if begun else running.ended
    assert slots.holds(running) == (way != "lost")
    assert len(settled) == (way != "lost" and not begun)
    if running.task is not None:
        with pytest.raises(asyncio.CancelledError):
            await running.task


async def test_a_thread_over_its_timeout_keeps_its_job_when_its_worker_leaves_and_other_attempts_do_not() -> None:
    overran, slow = claimed("pid"), claimed("pid")
    slots = new_slots()
    settled: list[LiveAttempt] = []
    settler: Any = SimpleNamespace(settle=lambda attempt, _: settled.append(attempt))
    for attempt in (overran, slow):
        attempt.task, attempt.begun, attempt.blocking = asyncio.create_task(asyncio.Event().wait()), True, True
        slots.held[attempt.job.id] = attempt
    overran.stop("timeout")
    slow.stop("shutdown")
    Stopping(slots, settler).give_up_all()
    assert settled == [slow], "a second attempt would run beside the thread"
    for attempt in (overran, slow):
        assert attempt.task is not None
        attempt.task.cancel()
