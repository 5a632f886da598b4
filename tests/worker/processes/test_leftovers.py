"""Threads, closed files and forks that a job leaves in its child process do not harm the next job."""

import asyncio
import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from rowlock.core.outcome import Succeeded
from rowlock.worker.processes.children import Children
from support.each import each
from support.tasks.child_runs import run
from support.tasks.processes import gone, wait_until

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_thread_left_behind_reports_nothing_under_the_next_job(children: Children, tmp_path: Path) -> None:
    told: list[tuple[Any, ...]] = []
    first = await run(children, "leaves_a_thread", file=str(tmp_path / "stop"), daemon=True)
    second = await run(children, "waits_and_reports", lambda *report: told.append(report), seconds=0.3)
    (tmp_path / "stop").touch()
    assert first == second, "another child ran the second job: the test did not bite"
    assert {(percent, message) for percent, _, message in told} == {(1, "began"), (2, "ends")}


async def test_a_process_with_a_running_thread_of_the_last_job_is_replaced(
    children: Children, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = await run(children, "leaves_a_thread", file=str(tmp_path / "stop"), daemon=False)
    assert "rowlock.worker: the job left a running thread (left) behind: its process is replaced" in caplog.messages
    assert await run(children, "pid") not in (first, None)
    (tmp_path / "stop").touch()
    assert isinstance(first, Succeeded)
    await asyncio.to_thread(wait_until, lambda: gone(int(first.result or 0)))


@each("what", ["stdout", "stderr", "None instead", "both descriptors", "a file instead"])
async def test_a_job_that_closes_its_output_does_not_fail_the_next_one(
    children: Children, tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    caplog.clear()
    closed = await run(children, "closes", what=str(tmp_path / "file") if what == "a file instead" else what)
    assert isinstance(closed, Succeeded)
    after = await run(children, "prints")
    assert isinstance(after, Succeeded)
    assert after != closed, "the process is replaced"
    assert {"printed", "complained"} <= set(caplog.messages)
    assert after == await run(children, "prints"), "a process that nobody has harmed is used again"


async def test_a_job_finds_its_process_as_it_was_before_the_last_one(children: Children, tmp_path: Path) -> None:
    first = await run(children, "upsets_its_process", folder=str(tmp_path))
    assert isinstance(first, Succeeded)
    assert await run(children, "upsets_its_process", folder=str(tmp_path)) == first
    assert isinstance(await run(children, "waits_and_reports", seconds=0.4), Succeeded), "killed by an older alarm"
    assert json.loads(first.result or "")[0] == os.getcwd()


@each("task, args", [("forks", {"how": "returns"}), ("forks", {"how": "raises"}), ("forks_async", {})])
async def test_a_copy_that_a_job_has_forked_does_not_answer_for_the_next_job(
    children: Children, task: str, args: dict[str, Any]
) -> None:
    before = await run(children, "pid")
    assert await run(children, task, **args) == Succeeded('"the answer"')
    assert await run(children, "pid") == before
    assert await run(children, "add", a=1) == Succeeded("2")
