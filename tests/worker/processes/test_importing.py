"""A child process imports the task by its module, and dies with its parent."""

import asyncio
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from rowlock import Rowlock
from rowlock.worker.processes.children import Children
from support.tasks.child_runs import failed
from support.tasks.processes import app, claimed, gone, read_pids, until_gone

pytestmark = pytest.mark.asyncio(loop_scope="module")


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
    assert "support.tasks.processes.app has no such task" in end.message


SCRIPT = """
    import asyncio, os, re, subprocess, sys
    from rowlock import BaseHandler, Rowlock, handler
    from rowlock.worker.processes.children import Children
    from support.tasks.processes import claimed

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
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]))
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
    await until_gone(pids)
