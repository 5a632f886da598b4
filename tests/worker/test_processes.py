"""`runs_in="process"`: what a job may rely on in a child process, and what a worker may rely on whatever it does."""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
import pytest_asyncio

from rowlock import Rowlock, fixed
from rowlock.core.config import Settings
from rowlock.core.outcome import AttemptEnd, Cancelled, Failed, Released, Succeeded, TimedOut
from rowlock.core.states import State
from rowlock.worker.processes.children import Children
from rowlock.worker.processes.spawned import Child
from rowlock.worker.running import Running
from support import process_tasks as tasks
from support.executor_rig import ExecutorRig
from support.process_tasks import app, claim, claimed, gone, read_pids, wait_until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def children(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Children]:
    """One pool for all tests: a child that a test has not killed serves the next one."""
    app.configure(Settings(database=f"sqlite:///{tmp_path_factory.mktemp('db')}/jobs.db"))
    opened = Children(app, 2)
    yield opened
    await opened.close()
    await app.close()


async def run(children: Children, task: str, report: Any = None, **args: Any) -> AttemptEnd | None:
    running = claimed(task, json.dumps(args))
    return await children.run(running, app.get_task(task), report or (lambda *_: None))


def failed(end: AttemptEnd | None, code: str) -> Failed:
    assert isinstance(end, Failed)
    assert end.code == code
    return end


# --- results


async def test_a_result_comes_back_as_json(children: Children) -> None:
    assert await run(children, "add", a=2) == Succeeded("3")
    assert await run(children, "reports", calls=0) == Succeeded(None)


async def test_a_child_is_used_again(children: Children) -> None:
    first = await run(children, "pid")
    assert first == await run(children, "pid")
    assert first != Succeeded(str(os.getpid()))


async def test_children_run_beside_each_other(children: Children) -> None:
    both = await asyncio.gather(run(children, "pid_async"), run(children, "pid_async"))
    first, second = (json.loads(end.result or "") for end in both if isinstance(end, Succeeded))
    assert first[0] != second[0]
    assert first[0] == first[1], "its resources were opened by somebody else"


async def test_middlewares_and_lifespans_apply(children: Children) -> None:
    assert await run(children, "wrapped") == Succeeded('"wrapped around wrapped with True"')
    assert await run(children, "wrapped_async") == Succeeded('"wrapped around wrapped_async"')


async def test_a_function_may_start_its_own_loop_and_processes(children: Children) -> None:
    assert await run(children, "own_loop") == Succeeded('"ran in a loop of its own"')
    assert await run(children, "own_processes") == Succeeded("5")


async def test_progress_reaches_the_parent_and_is_bundled(children: Children) -> None:
    told: list[tuple[Any, ...]] = []
    assert await run(children, "reports", lambda *report: told.append(report), calls=50_000) == Succeeded(None)
    assert told[-1] == (100, None, "counted")
    assert len(told) < 1000
    assert [percent for percent, _, _ in told] == sorted(percent for percent, _, _ in told)


# --- failures


async def test_an_exception_is_a_failure_with_its_place(children: Children) -> None:
    end = failed(await run(children, "raises", kind="value"), "ValueError")
    assert "boom \\ud800" in end.message
    assert "process_tasks.py" in end.message
    assert not end.permanent


async def test_handlers_say_what_happens_next(children: Children) -> None:
    permanent = failed(await run(children, "raises", kind="permanent"), "HTTP_404")
    assert permanent.permanent
    assert failed(await run(children, "raises", kind="retry"), "RETRY").after == 7
    assert await run(children, "raises", kind="snooze") == Released(9, "later")
    assert failed(await run(children, "raises_by_rule", final=True), "KeyError").permanent
    assert failed(await run(children, "raises_by_rule", final=False), "OSError").backoff == fixed(3).to_json()


async def test_a_group_ends_as_the_gravest_of_its_members_says(children: Children) -> None:
    end = failed(await run(children, "raises", kind="group"), "HTTP_404")
    assert end.permanent
    assert end.message == "no such page\n  beside it: ValueError: beside"


async def test_what_cannot_be_understood_is_a_failure_and_the_child_survives_it(
    children: Children, caplog: pytest.LogCaptureFixture
) -> None:
    before = await run(children, "pid")
    end = failed(await run(children, "raises", kind="not understood"), "INTERNAL")
    assert "SystemExit: no code" in end.message
    assert any("Traceback" in message for message in caplog.messages)
    assert any("in raises" in message for message in caplog.messages), "the handler's own traceback is missing"
    assert before == await run(children, "pid"), "the child did not survive it"


async def test_exits_and_cancels_from_inside_are_failures(children: Children) -> None:
    before = await run(children, "pid")
    failed(await run(children, "raises", kind="exit"), "SystemExit")
    failed(await run(children, "raises", kind="end of iteration"), "RuntimeError")
    failed(await run(children, "cancels_itself"), "CANCELLED_ITSELF")
    assert before == await run(children, "pid"), "the child did not survive it"


async def test_wrong_arguments_and_results_are_told(children: Children) -> None:
    failed(await run(children, "add", a="many"), "INVALID_ARGUMENTS")
    assert failed(await run(children, "unserialisable"), "INVALID_RESULT").permanent


async def test_error_hooks_run_in_the_child(children: Children, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    await run(children, "raises", kind="value")
    (line,) = [message for message in caplog.messages if message.startswith("hook saw")]
    assert line.startswith("hook saw ValueError")
    assert not line.endswith(str(os.getpid()))


async def test_a_child_that_dies_is_a_failure_and_is_replaced(
    children: Children, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert await run(children, "kills_itself", number=9) == Failed("CHILD_DIED", "killed by signal 9 (SIGKILL)")
    assert "last words" in caplog.messages
    assert await run(children, "kills_itself", number=11) == Failed("CHILD_DIED", "killed by signal 11 (SIGSEGV)")
    assert await run(children, "exits", code=3) == Failed("CHILD_DIED", "exit code 3")
    assert await run(children, "add", a=1) == Succeeded("2")


async def test_an_idle_child_that_died_is_replaced(children: Children) -> None:
    end = await run(children, "pid")
    assert isinstance(end, Succeeded)
    number = int(end.result or 0)
    os.kill(number, signal.SIGKILL)
    await asyncio.to_thread(wait_until, lambda: gone(number))
    assert await run(children, "add", a=1) == Succeeded("2")


async def test_a_sigterm_from_outside_gives_the_job_back(children: Children) -> None:
    end = await run(children, "kills_itself", number=15)
    assert isinstance(end, Released)
    tired = claimed("kills_itself", '{"number": 15}', releases=20)
    again = await children.run(tired, tasks.kills_itself, lambda *_: None)
    assert again == Failed("CHILD_DIED", "killed by signal 15 (SIGTERM)")


async def test_a_dead_child_is_noticed_while_its_fork_holds_the_pipes(children: Children, tmp_path: Path) -> None:
    file = tmp_path / "pids"
    assert await run(children, "leaves_a_fork_behind", file=str(file)) == Failed("CHILD_DIED", "exit code 7")
    assert all(map(gone, read_pids(file)))


async def test_memory_beyond_the_limit_is_a_memory_error(children: Children) -> None:
    assert await run(children, "eats", megabytes=16) == Succeeded(str(16 * 2**20))
    failed(await run(children, "eats", megabytes=256), "MemoryError")
    assert await run(children, "eats_freely", megabytes=256) == Succeeded(str(256 * 2**20)), "the limit stayed"


# --- timeout and cancel


@pytest.mark.parametrize("stubborn", [False, True])
async def test_a_timeout_kills_the_child_and_what_it_started(
    children: Children, tmp_path: Path, stubborn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Child, "KILL_SECONDS", 0.3)
    file = tmp_path / "pids"
    await run(children, "pid")  # so that the time is that of the job
    args = json.dumps({"file": str(file), "stubborn": stubborn})
    running = claimed("hangs", args, timeout_seconds=1.5)
    assert await children.run(running, tasks.hangs, lambda *_: None) == TimedOut(1.5)
    assert all(map(gone, read_pids(file)))


async def test_a_cancel_kills_the_child_and_is_passed_on(children: Children, tmp_path: Path) -> None:
    file = tmp_path / "pids"
    work = asyncio.create_task(run(children, "hangs", file=str(file)))
    pids = await asyncio.to_thread(read_pids, file)
    work.cancel()
    await asyncio.sleep(0)
    work.cancel()  # asked twice: the kill goes on
    with pytest.raises(asyncio.CancelledError):
        await work
    assert all(map(gone, pids))


async def test_a_cancel_while_a_child_starts_leaves_nothing_behind(children: Children) -> None:
    fresh = Children(app, 1)
    work = asyncio.create_task(run(fresh, "add", a=1))
    await asyncio.sleep(0.01)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert fresh._all == set()
    assert await run(fresh, "add", a=1) == Succeeded("2")
    await fresh.close()


async def test_ctrl_c_does_not_hit_a_child_that_starts(children: Children) -> None:
    fresh = Children(app, 1)
    work = asyncio.create_task(run(fresh, "add", a=1))
    async with asyncio.timeout(20):
        while not (fresh._all and next(iter(fresh._all)).alive):
            await asyncio.sleep(0.001)
    process = next(iter(fresh._all)).process
    assert process is not None
    assert process.pid is not None
    os.kill(process.pid, signal.SIGINT)  # as a terminal does to every process of its foreground group
    assert await work == Succeeded("2")
    await fresh.close()


async def test_a_job_finds_signals_as_a_script_does(children: Children) -> None:
    plain = Succeeded(json.dumps(["0", "1", "set()"], separators=(",", ":")))
    assert [await run(children, "signals"), await run(children, "signals")] == [plain, plain]


async def test_the_event_loop_turns_while_children_start_and_die(children: Children, tmp_path: Path) -> None:
    longest, last, ticking = 0.0, asyncio.get_running_loop().time(), True

    async def tick() -> None:
        nonlocal longest, last
        while ticking:
            await asyncio.sleep(0.005)
            now = asyncio.get_running_loop().time()
            longest, last = max(longest, now - last), now

    watching = asyncio.create_task(tick())
    fresh, began = Children(app, 1), last
    assert await run(fresh, "add", a=1) == Succeeded("2")
    starting = asyncio.get_running_loop().time() - began
    assert await run(fresh, "exits", code=1) == Failed("CHILD_DIED", "exit code 1")
    await fresh.close()
    ticking = False
    await watching
    assert longest < starting / 2, "a start was felt"


# --- output


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


# --- what a job leaves behind


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


@pytest.mark.parametrize("what", ["stdout", "stderr", "None instead", "both descriptors", "a file instead"])
async def test_a_job_that_closes_its_output_does_not_fail_the_next_one(
    children: Children, tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
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


@pytest.mark.parametrize(
    ("task", "args"), [("forks", {"how": "returns"}), ("forks", {"how": "raises"}), ("forks_async", {})]
)
async def test_a_copy_that_a_job_has_forked_does_not_answer_for_the_next_job(
    children: Children, task: str, args: dict[str, Any]
) -> None:
    before = await run(children, "pid")
    assert await run(children, task, **args) == Succeeded('"the answer"')
    assert await run(children, "pid") == before
    assert await run(children, "add", a=1) == Succeeded("2")


# --- the database


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def rig(children: Children) -> AsyncIterator[ExecutorRig]:
    opened = ExecutorRig(app)
    yield opened
    await opened.close()


async def test_a_transaction_in_the_child_commits_with_the_success(rig: ExecutorRig) -> None:
    job = await tasks.in_transaction.enqueue()
    running = await claim("in_transaction")
    assert await rig.execute(running) is None
    assert rig.settled[-1] is running
    row = await app.job(job.id)
    assert (row.state, row.result) == (State.SUCCEEDED, "kept")
    assert await rows_of(job.id) == 1


async def test_a_failure_after_the_transaction_block_undoes_it(children: Children) -> None:
    job = await tasks.in_transaction.enqueue(fail=True)
    running = await claim("in_transaction")
    failed(await children.run(running, tasks.in_transaction, lambda *_: None), "ValueError")
    with closing(apsw.Connection(app.settings.database.removeprefix("sqlite:///"))) as other:
        other.execute("BEGIN IMMEDIATE")  # fails if the child still held the lock
    assert (await app.job(job.id)).state == State.RUNNING
    assert await rows_of(job.id) == 0


async def test_a_transaction_under_a_lost_lease_is_undone(rig: ExecutorRig) -> None:
    job = await tasks.in_transaction.enqueue()
    running = await claim("in_transaction")
    stale = Running(running.job._replace(token="00000000-0000-4000-8000-000000000000"))
    assert await rig.execute(stale) is None
    assert (rig.settled[-1], stale.reason) == (stale, "lost")
    assert await rows_of(job.id) == 0


async def test_a_job_can_enqueue_another_from_the_child(children: Children) -> None:
    await tasks.enqueues.enqueue()
    end = await children.run(await claim("enqueues"), tasks.enqueues, lambda *_: None)
    assert isinstance(end, Succeeded)
    assert (await app.job(json.loads(end.result or ""))).state == State.QUEUED


async def rows_of(job_id: str) -> int:
    async with app.transaction() as tx:
        await tx.execute("CREATE TABLE IF NOT EXISTS done (job TEXT)")
        return len(await tx.fetch("SELECT 1 FROM done WHERE job = $1", job_id))


# --- where tasks can be found


async def test_a_task_that_no_module_has_is_told_so(children: Children) -> None:
    local = Rowlock(settings=app.settings)

    @local.task(runs_in="process")
    def nested() -> None: ...

    end = failed(await Children(local, 1).run(claimed("nested"), nested, lambda *_: None), "NOT_IMPORTABLE")
    assert "'nested'" in end.message
    assert not end.permanent, "another worker may have it"


async def test_a_task_that_is_registered_later_is_told_so(children: Children) -> None:
    def late() -> None: ...

    task = app.task("late", runs_in="process")(late)
    end = failed(await children.run(claimed("late"), task, lambda *_: None), "NOT_IMPORTABLE")
    assert "support.process_tasks.app has no such task" in end.message


SCRIPT = """
    import asyncio, os, re, subprocess, sys
    from rowlock import BaseHandler, Rowlock, handler
    from rowlock.worker.processes.children import Children
    from support.process_tasks import claimed

    app = Rowlock("sqlite:///{folder}/script.db")

    @app.task(runs_in="process")
    def here() -> str:
        return __name__

    @app.task(runs_in="process")
    def hangs(holds_the_gil: bool) -> None:
        started = subprocess.Popen(["sleep", "600"])
        with open("{folder}/pid", "w") as file:
            print(os.getpid(), "" if holds_the_gil else started.pid, file=file)
        os.rename("{folder}/pid", "{folder}/pids")
        if holds_the_gil:
            started.kill()
            re.match("(a+)+$", "a" * 60 + "b")
        started.wait()

    @handler("a class", runs_in="process")
    class Class(BaseHandler):
        async def execute(self, params):
            return params["n"] + 1

    async def main(*wanted):
        children = Children(app, 1)
        for name, args in wanted:
            print(await children.run(claimed(name, args), app.get_task(name), lambda *_: None), flush=True)
        await children.close()

    if __name__ == "__main__":
        asyncio.run(main(*zip(sys.argv[1::2], sys.argv[2::2])))
"""


def script(folder: Path, *words: str) -> subprocess.Popen[str]:
    file = folder / "script.py"
    file.write_text(textwrap.dedent(SCRIPT.format(folder=folder)))
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"PYTHONPATH": path}
    return subprocess.Popen([sys.executable, file, *words], stdout=subprocess.PIPE, text=True, env=environment)


async def test_tasks_and_handler_classes_of_a_script_are_found(tmp_path: Path) -> None:
    work = script(tmp_path, "here", "{}", "a class", '{"n": 1}')
    lines, _ = await asyncio.to_thread(work.communicate, timeout=60)
    assert lines.splitlines() == ["Succeeded(result='\"__mp_main__\"')", "Succeeded(result='2')"]
    assert work.returncode == 0


@pytest.mark.parametrize("busy", [False, True])
async def test_a_child_dies_with_its_parent(tmp_path: Path, busy: bool) -> None:
    work = script(tmp_path, "hangs", json.dumps({"holds_the_gil": busy}))
    try:
        pids = await asyncio.to_thread(read_pids, tmp_path / "pids")
        assert not any(map(gone, pids))
    finally:
        work.kill()
        work.communicate()
    await asyncio.to_thread(wait_until, lambda: all(map(gone, pids)))


async def test_an_attempt_that_is_cancelled_is_classified_by_its_reason(rig: ExecutorRig, tmp_path: Path) -> None:
    running = claimed("hangs", json.dumps({"file": str(tmp_path / "pids")}))
    attempt = rig.start(running)
    pids = await asyncio.to_thread(read_pids, tmp_path / "pids")
    running.stop("cancel")
    assert await attempt == Cancelled()
    assert all(map(gone, pids))
