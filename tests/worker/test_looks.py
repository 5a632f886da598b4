"""What a worker does not do: look again for nothing, or lose an attempt that is stopped before its first step."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rowlock import Rowlock
from rowlock.core.job import Claimed
from rowlock.worker.attempt.attempt import LiveAttempt
from rowlock.worker.claimer import Claimer

NOBODY = Claimed(id="", task="t")


async def test_an_attempt_that_has_not_begun_is_told_and_not_cancelled() -> None:
    """A task that is cancelled before its first step never runs, and its slot would never be free again."""
    running = LiveAttempt(NOBODY)
    running.task = asyncio.create_task(asyncio.Event().wait())
    running.stop("cancel")
    await asyncio.sleep(0)
    assert (running.reason, running.task.cancelling()) == ("cancel", 0)
    running.begun = True
    running.stop("cancel")
    assert running.task.cancelling() == 1
    await asyncio.gather(running.task, return_exceptions=True)


async def test_a_worker_that_found_nothing_more_does_not_look_after_each_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, claims = Rowlock(f"sqlite:///{tmp_path}/jobs.db"), 0
    claim = Claimer._claim

    async def counted(self: Claimer, action: Any) -> None:
        nonlocal claims
        claims += 1
        await claim(self, action)

    monkeypatch.setattr(Claimer, "_claim", counted)

    @app.task
    async def work() -> None: ...

    async with app, app.worker(poll_interval_seconds=60) as pool:
        async with asyncio.timeout(10):
            while not pool.claimer.plan.drained:
                await asyncio.sleep(0.01)
        claims = 0
        for _ in range(20):
            await (await work.enqueue()).wait(timeout=10)
    assert claims < 40, "one for each job, and hardly any for nothing"
