"""A job whose worker died runs apart from the others, and whoever kills that process is known."""

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from rowlock import Rowlock
from rowlock.core.config import Settings
from rowlock.core.outcome import Failed, Lost, Released, Succeeded, TimedOut
from rowlock.core.policy import PROBATION, decide
from rowlock.core.states import State
from rowlock.worker.attempt.attempt import LiveAttempt
from rowlock.worker.processes.process import Child
from support.each import each
from support.rigs.worker import ExecutorRig
from support.tasks import processes as tasks
from support.tasks.processes import LOST, app, claim, claimed, read_pids, until_gone

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Rig(ExecutorRig):
    async def run(self, task: str, **args: Any) -> Any:
        """The outcome of a suspect."""
        return await self.execute(claimed(task, json.dumps(args), **LOST))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def rig(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    app.configure(Settings(database=f"sqlite:///{tmp_path_factory.mktemp('db')}/jobs.db"))
    opened = Rig(app)
    yield opened
    await opened.close()
    await app.close()


async def test_a_suspect_runs_in_the_child_whatever_its_task_says(rig: Rig) -> None:
    end = await rig.run("pid_anywhere")
    assert isinstance(end, Succeeded)
    assert end != Succeeded(str(os.getpid()))
    assert await rig.run("pid") == end, "one child serves all suspects"


async def test_a_job_without_losses_does_not_run_in_quarantine(rig: Rig) -> None:
    assert await rig.execute(claimed("pid_anywhere")) == Succeeded(str(os.getpid()))


async def test_a_job_that_came_back_after_its_losses_does_not_run_in_quarantine(rig: Rig) -> None:
    back = claimed("pid_anywhere", losses=9, probation=PROBATION)
    assert await rig.execute(back) == Succeeded(str(os.getpid()))


async def test_suspects_run_one_at_a_time(rig: Rig) -> None:
    first, second = await asyncio.gather(rig.execute(claimed("pid", **LOST)), rig.execute(claimed("pid", **LOST)))
    assert first == second


@each(
    "task, args, how",
    [
        ("kills_itself", {"number": 9}, "was killed by signal 9 (SIGKILL)"),
        ("exits", {"code": 3}, "ended with exit code 3"),
    ],
)
async def test_a_job_that_kills_the_quarantine_child_is_convicted(
    rig: Rig, task: str, args: dict[str, Any], how: str
) -> None:
    end = await rig.run(task, **args)
    assert end == Lost(worker="", convicted=True, detail=f"its quarantine process {how}")
    job = claimed(task, **LOST).job
    assert decide(job, end, 0.0).state == State.RETRYABLE
    assert decide(job._replace(convictions=1), end, 0.0).error_code == "POISON"


async def test_the_next_suspect_after_a_death_is_not_to_blame(rig: Rig) -> None:
    first = await rig.run("pid")
    assert isinstance(first, Succeeded)
    os.kill(int(first.result or 0), 9)  # it dies idle; no waiting: it may still be dying when the next job comes
    second = await rig.run("pid")
    assert isinstance(second, Succeeded)
    assert second != first


async def test_a_failure_in_the_child_is_an_ordinary_failure(rig: Rig) -> None:
    end = await rig.run("raises", kind="value")
    assert isinstance(end, Failed)
    assert end.code == "ValueError"


async def test_a_timeout_is_no_conviction(rig: Rig, tmp_path: Path) -> None:
    await rig.run("pid")
    args = json.dumps({"file": str(tmp_path / "pids")})
    assert await rig.execute(claimed("hangs", args, **LOST, timeout_seconds=1.5)) == TimedOut(1.5)
    await until_gone(read_pids(tmp_path / "pids"))


async def test_a_shutdown_is_no_conviction(rig: Rig, tmp_path: Path) -> None:
    running = claimed("hangs", json.dumps({"file": str(tmp_path / "pids")}), **LOST)
    attempt = rig.start(running)
    pids = await asyncio.to_thread(read_pids, tmp_path / "pids")
    running.stop("shutdown")
    end = await attempt
    assert isinstance(end, Released)
    assert end.cause == "stopped", "it has not come back"
    await until_gone(pids)


async def test_a_suspect_whose_quarantine_process_its_worker_closes_is_not_convicted(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Child, "KILL_SECONDS", 0.3)
    other = Rig(app)
    running = claimed("hangs", json.dumps({"file": str(tmp_path / "pids"), "stubborn": True}), **LOST)
    work = asyncio.create_task(other.execute(running))
    pids = await asyncio.to_thread(read_pids, tmp_path / "pids")
    await other.close()
    end = await work
    assert isinstance(end, Released)
    assert end.cause == "stopped", "it has not come back"
    await until_gone(pids)


async def test_a_suspect_whose_task_this_worker_does_not_know_stays_a_suspect(rig: Rig) -> None:
    end = await rig.run("nobody_knows")
    assert isinstance(end, Released)
    assert end.cause == "stopped"


async def test_a_transaction_in_quarantine_settles_its_job(rig: Rig) -> None:
    job = await tasks.in_transaction.enqueue()
    claimed_ = await claim("in_transaction")
    running = LiveAttempt(claimed_.job._replace(**LOST))
    assert await rig.execute(running) is None
    assert rig.settled[-1] is running
    assert (await app.job(job.id)).state == State.SUCCEEDED


async def test_what_no_child_can_import_runs_alone_in_the_worker(caplog: pytest.LogCaptureFixture) -> None:
    local = Rowlock(settings=app.settings)

    @local.task
    async def nested() -> int:
        return os.getpid()

    other = Rig(local)
    assert await other.run("nested") == Succeeded(str(os.getpid()))
    assert other.pauses == 1
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "neither it nor its app is a global of any module" in warning.getMessage()
    await other.close()
