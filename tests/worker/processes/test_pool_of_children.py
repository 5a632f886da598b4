"""How many child processes a worker keeps: a spare before the first job, more while jobs need them, few when they are
idle."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rowlock.core.config import Settings
from rowlock.core.outcome import Released, Succeeded
from rowlock.worker.pool import WorkerPool
from rowlock.worker.processes.children import Children
from rowlock.worker.processes.process import Child
from support.tasks import processes as tasks
from support.tasks.child_runs import failed, run
from support.tasks.processes import app, gone, wait_until


@asynccontextmanager
async def pool(tmp_path: Path, size: int = 3, *, spare: bool = True) -> AsyncIterator[Children]:
    app.configure(Settings(database=f"sqlite:///{tmp_path}/jobs.db"))
    children = Children(app, size, spare=spare)
    try:
        yield children
    finally:
        await children.close()


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not true():
            await asyncio.sleep(0.01)


def pid_of(child: Child) -> int:
    assert child.process is not None
    assert child.process.pid is not None
    return child.process.pid


async def test_a_spare_is_ready_and_has_imported_the_tasks_before_the_first_job(tmp_path: Path) -> None:
    async with pool(tmp_path) as children:
        children.prepare([tasks.pid])
        await until(lambda: bool(children._idle))
        (spare,) = children._all
        assert spare.used, "it has imported nothing"
        assert await run(children, "pid") == Succeeded(str(pid_of(spare)))


async def test_a_spare_that_died_costs_the_next_job_no_try(tmp_path: Path) -> None:
    async with pool(tmp_path) as children:
        children.prepare([tasks.pid])
        await until(lambda: bool(children._idle))
        (spare,) = children._all
        os.kill(pid_of(spare), signal.SIGKILL)
        assert isinstance(await run(children, "pid"), Succeeded)


async def test_a_job_takes_a_child_that_becomes_idle_and_does_not_wait_until_its_own_has_started(
    tmp_path: Path,
) -> None:
    async with pool(tmp_path) as children:
        first = await run(children, "pid")
        assert [await asyncio.gather(*(run(children, "pid") for _ in range(3)))] == [[first] * 3]


async def test_while_the_only_child_is_busy_a_spare_is_started(tmp_path: Path) -> None:
    async with pool(tmp_path) as children:
        work = asyncio.create_task(run(children, "meets", folder=str(tmp_path), number=1000))
        await until(lambda: len(children._all) == 2 and len(children._idle) == 1)
        work.cancel()


async def test_idle_children_end_after_a_while_but_for_the_spare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Children, "IDLE_SECONDS", 0.3)
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    async with pool(tmp_path) as children:
        ends = await asyncio.gather(*(run(children, "meets", folder=str(meeting), number=3) for _ in range(3)))
        pids = [json.loads(end.result or "")[0] for end in ends if isinstance(end, Succeeded)]
        assert len(set(pids)) == 3
        await until(lambda: len(children._all) == 1)
        (kept,) = children._all
        await asyncio.to_thread(wait_until, lambda: sum(not gone(pid) for pid in pids) == 1)
        assert await run(children, "pid") == Succeeded(str(pid_of(kept)))


async def test_without_a_spare_all_idle_children_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in quarantine, which most workers never need again."""
    monkeypatch.setattr(Children, "IDLE_SECONDS", 0.1)
    async with pool(tmp_path, 1, spare=False) as children:
        assert isinstance(await run(children, "pid"), Succeeded)
        await until(lambda: not children._all)
        assert isinstance(await run(children, "pid"), Succeeded)


async def test_a_worker_with_process_tasks_has_a_spare_soon_after_its_start(tmp_path: Path) -> None:
    app.configure(Settings(database=f"sqlite:///{tmp_path}/jobs.db"))
    async with app:
        worker = WorkerPool(app)
        await worker.start()
        try:
            await until(lambda: bool(worker.executor._children._idle))
            assert await (await tasks.add.enqueue(a=1)).wait(timeout=30) == 2
        finally:
            await worker.stop()


async def test_jobs_whose_child_does_not_start_fail_and_do_not_wait_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Child, "START_SECONDS", 0.001)
    async with pool(tmp_path, 2) as children, asyncio.timeout(30):
        for end in await asyncio.gather(*(run(children, "pid") for _ in range(4))):
            failed(end, "CHILD_DIED")


async def test_a_sigterm_to_a_child_that_starts_gives_its_job_back(tmp_path: Path) -> None:
    """systemd sends it to every process of a service that it stops."""
    async with pool(tmp_path) as children:
        work = asyncio.create_task(run(children, "pid"))
        await until(lambda: any(child.alive for child in children._all))
        (starting,) = children._all
        os.kill(pid_of(starting), signal.SIGTERM)
        assert isinstance(await work, Released)


async def test_a_spare_that_does_not_start_is_not_started_again_before_there_is_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that cannot be imported would otherwise be imported again and again, all day."""
    monkeypatch.setattr(Child, "START_SECONDS", 0.001)
    async with pool(tmp_path) as children:
        children.prepare([tasks.pid])
        await until(lambda: not children._starting)
        assert (children._all, children._wanting_spare) == (set(), None)
