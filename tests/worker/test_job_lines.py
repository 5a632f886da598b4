"""Log lines of jobs on their way to the database."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from rowlock.store import Store
from rowlock.store.read import job_logs
from rowlock.worker.attempt import reports
from rowlock.worker.attempt.reports import JobLines
from support.rigs.rig import Rig


async def test_lines_that_are_being_written_when_the_worker_stops_are_written_once() -> None:
    begun, may_end, written = asyncio.Event(), asyncio.Event(), []

    async def run(operation: Any) -> None:
        begun.set()
        await may_end.wait()
        written.append(operation)

    lines = JobLines(SimpleNamespace(run=run))  # type: ignore[arg-type]
    lines.keeper(SimpleNamespace(id="a", attempt=1))("INFO", "the last words")  # type: ignore[arg-type]
    writing = asyncio.ensure_future(lines.round())
    await begun.wait()
    writing.cancel()
    await asyncio.wait({writing})
    assert written == []
    flushing = asyncio.ensure_future(lines.flush())
    may_end.set()
    await flushing
    assert len(written) == 1


async def test_a_job_that_logs_very_much_loses_its_own_oldest_lines_and_no_line_of_another(
    rig: Rig, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "MOST_WAITING", 1_000)
    waiting, jobs = JobLines(store), [await rig.enqueue() for _ in range(4)]
    quiet, noisy, *others = [waiting.keeper(SimpleNamespace(id=job, attempt=1)) for job in jobs]  # type: ignore[arg-type]
    quiet("INFO", "begins")
    for number in range(3_000):
        noisy("INFO", f"line {number}")
    for other in others:  # more than may wait in all
        for number in range(400):
            other("INFO", f"line {number}")
    quiet("INFO", "ends")
    await waiting.flush()
    found = [await store.run(job_logs.read(job, limit=1_000)) for job in jobs]
    assert ([line.message for line in found[0].items], found[0].dropped) == (["begins", "ends"], 0)
    assert [lines.items[-1].message for lines in found[1:]] == ["line 2999", "line 399", "line 399"]
    assert [lines.dropped + len(lines.items) for lines in found] == [2, 3_000, 400, 400], "each is kept or counted"
    assert sum(len(lines.items) for lines in found) == 1_000
