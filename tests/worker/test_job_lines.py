"""Log lines of jobs on their way to the database."""

import asyncio
from types import SimpleNamespace
from typing import Any

from rowlock.worker.job_lines import JobLines


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
