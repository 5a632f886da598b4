"""What a child process prints and logs reaches the log of its worker."""

import logging

import pytest

from rowlock.core.outcome import Succeeded
from rowlock.worker.processes.children import Children
from support.tasks import processes as tasks
from support.tasks.child_runs import run
from support.tasks.processes import claimed

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_prints_and_logs_are_kept(children: Children, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "quiet.library")  # what the worker's logging says holds for its children
    caplog.set_level(logging.INFO)
    running = claimed("talks")
    assert await children.run(running, tasks.talks, lambda *_: None) == Succeeded(None)
    records = [record for record in caplog.records if record.name == "rowlock.task.talks"]
    lines = [record.getMessage() for record in records]
    for line in (
        "plain print",
        "to stderr",
        "\\xe9 \\x1b[31mred",
        "second line",
        "straight to the descriptor \\xff",
        "from a subprocess",
        "from ctx.log",
        "some.library: from a library",
        "some.library: in two lines",
        "x" * 10_000 + " …(cut)",
        "without an end",
    ):
        assert line in lines
    assert len(lines) == 11
    assert {record.__dict__["job_id"] for record in records} == {running.job.id}


async def test_a_flood_of_output_stops_nothing(children: Children, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert await run(children, "floods", lines=200_000) == Succeeded('"dry"')
    lines = [record.getMessage() for record in caplog.records if record.name == "rowlock.task.floods"]
    assert lines[0] == "line 0"
    assert "line 199999" in lines, "the end is what one wants to know most"
    assert any(line.endswith("lines are left out here") for line in lines)
    assert len(lines) < 50_000
