"""`runs_in="process"`: results, failures, timeouts and cancels of an attempt in a child process."""

import asyncio
import json
import logging
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from rowlock import fixed
from rowlock.core.outcome import Failed, Released, Succeeded, TimedOut
from rowlock.worker.processes.children import Children
from rowlock.worker.processes.process import Child
from support.each import each
from support.tasks import processes as tasks
from support.tasks.child_runs import failed, run
from support.tasks.processes import app, claimed, gone, read_pids, until_gone, wait_until

pytestmark = pytest.mark.asyncio(loop_scope="module")


# --- results


async def test_a_result_comes_back_as_json(children: Children) -> None:
    assert await run(children, "add", a=2) == Succeeded("3")
    assert await run(children, "reports", calls=0) == Succeeded(None)


async def test_a_child_process_is_reused_for_the_next_attempt(children: Children) -> None:
    first = await run(children, "pid")
    assert first == await run(children, "pid")
    assert first != Succeeded(str(os.getpid()))


async def test_children_run_beside_each_other(children: Children, tmp_path: Path) -> None:
    both = await asyncio.gather(*(run(children, "meets", folder=str(tmp_path), number=2) for _ in range(2)))
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
    assert "support/tasks/processes.py" in end.message
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
    snoozed = claimed("kills_itself", '{"number": 15}', releases=1000, sigterms_in_row=19)
    assert isinstance(await children.run(snoozed, tasks.kills_itself, lambda *_: None), Released)
    tired = claimed("kills_itself", '{"number": 15}', releases=20, sigterms_in_row=20)
    again = await children.run(tired, tasks.kills_itself, lambda *_: None)
    assert again == Failed("CHILD_DIED", "killed by signal 15 (SIGTERM)")


async def test_a_dead_child_is_noticed_while_its_fork_holds_the_pipes(children: Children, tmp_path: Path) -> None:
    file = tmp_path / "pids"
    assert await run(children, "leaves_a_fork_behind", file=str(file)) == Failed("CHILD_DIED", "exit code 7")
    await until_gone(read_pids(file))


async def test_memory_beyond_the_limit_is_a_memory_error(children: Children) -> None:
    assert await run(children, "eats", megabytes=16) == Succeeded(str(16 * 2**20))
    failed(await run(children, "eats", megabytes=256), "MemoryError")
    assert await run(children, "eats_freely", megabytes=256) == Succeeded(str(256 * 2**20)), "the limit stayed"


# --- timeout and cancel


@each("stubborn", [False, True])
async def test_a_timeout_kills_the_child_and_what_it_started(
    children: Children, tmp_path: Path, stubborn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Child, "KILL_SECONDS", 0.3)
    file = tmp_path / f"pids-{stubborn}"
    await run(children, "pid")  # so that the time is that of the job
    args = json.dumps({"file": str(file), "stubborn": stubborn})
    running = claimed("hangs", args, timeout_seconds=1.5)
    assert await children.run(running, tasks.hangs, lambda *_: None) == TimedOut(1.5)
    await until_gone(read_pids(file))


async def test_a_cancel_kills_the_child_and_is_passed_on(children: Children, tmp_path: Path) -> None:
    file = tmp_path / "pids"
    work = asyncio.create_task(run(children, "hangs", file=str(file)))
    pids = await asyncio.to_thread(read_pids, file)
    work.cancel()
    await asyncio.sleep(0)
    work.cancel()  # asked twice: the kill goes on
    with pytest.raises(asyncio.CancelledError):
        await work
    await until_gone(pids)


async def test_a_cancel_while_a_child_starts_leaves_the_child_to_the_next_job(children: Children) -> None:
    fresh = Children(app, 1)
    work = asyncio.create_task(run(fresh, "add", a=1))
    await asyncio.sleep(0.01)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    (started,) = fresh._all
    assert await run(fresh, "add", a=1) == Succeeded("2")
    assert fresh._all == {started}
    await fresh.close()
    assert not started.alive


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
