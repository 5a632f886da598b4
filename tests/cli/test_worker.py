"""Workers as a deploy runs them: started, fed, killed, stopped."""

import fcntl
import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from pathlib import Path

import psutil
import pytest

from cli.command import APP, Cli, Inside, wait_until
from rowlock.cli.run.supervisor import Supervisor

PRINTS = """
import os


@app.task("prints", max_attempts=1)
async def prints() -> str:
    Path("runs").touch()
    while not Path("go").exists():
        await asyncio.sleep(0.01)
    while not os.path.samestat(os.fstat(1), os.stat(os.devnull)):  # the worker has not heard of the signal yet
        await asyncio.sleep(0.01)
    print("late", flush=True)
    return "printed"
"""


def test_a_worker_runs_what_the_command_enqueues_and_stops_on_sigterm(cli: Cli, here: Inside) -> None:
    worker = cli.start("worker", "--app", "shop")
    worker.wait_for("Worker started: ")
    assert cli.out("enqueue", "add", "a=40", "b=2", "--app", "shop", "--wait", "--timeout", "20") == "42"
    assert here.out("enqueue", "greet", "name=7", "--app", "shop", "--wait") == "hello 7"
    assert here.out("enqueue", "flaky", "--app", "shop", "--wait") == "at last"
    assert here.json("enqueue", "add", "a=1", "--wait")["result"] == 2
    failed = cli.error("enqueue", "boom", "text=no way", "--app", "shop", "--wait", code=1)
    assert re.fullmatch(r"job \S+ is dead: ValueError: .*no way", failed)
    (alive,) = here.json("workers", "list")
    assert (alive["alive"], alive["pid"], alive["queues"]) == (True, worker.process.pid, ["default"])
    assert worker.stop() == 0
    assert re.search(r"INFO rowlock.worker Job \S+ completed in \d+\.\ds job_duration_ms=", worker.log)
    assert "Worker stopped: " in worker.log
    assert here.json("workers", "list") == []


def test_a_second_signal_gives_running_jobs_back(lite: Cli, lite_here: Inside) -> None:
    worker = lite.start("worker", "--app", "shop", "--log-format", "json")
    job_id = lite_here.out("enqueue", "linger", f"file={lite.folder}/lingers", "--app", "shop")
    wait_until((lite.folder / "lingers").exists, "the job runs")
    worker.process.send_signal(signal.SIGINT)
    worker.wait_for("finishing running jobs")
    assert worker.stop() == 0
    job = lite_here.json("jobs", "show", job_id)
    assert (job["state"], job["releases"]) == ("queued", 1)
    lines = [json.loads(line) for line in worker.log.splitlines()]
    claimed = next(line for line in lines if line["message"].startswith(f"Job {job_id} claimed by "))
    assert (claimed["level"], claimed["logger"], claimed["task"]) == ("info", "rowlock.worker", "linger")


def test_settings_reach_the_worker_from_flags_environment_and_file(lite: Cli, lite_here: Inside) -> None:
    (lite.folder / "rowlock.yaml").write_text("worker: {pool_size: 3, queues: [other], sweep_seconds: 7}\n")
    worker = lite.start("worker", "--app", "shop", "--queues", "other,default", ROWLOCK_WORKER__POOL_SIZE="4")
    worker.wait_for("Worker started: ")
    (alive,) = lite_here.json("workers", "list")
    assert (alive["queues"], alive["pool_size"]) == (["other", "default"], 4)
    assert worker.stop() == 0


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_killed_worker_process_is_started_again_a_drained_one_is_not_and_all_stop_together(
    cli: Cli, here: Inside
) -> None:
    beat = {"ROWLOCK_WORKER__HEARTBEAT_SECONDS": "0.5"}
    supervisor = cli.start("worker", "--app", "shop", "--processes", "2", WORKER_ID="box", **beat)
    supervisor.wait_for("Worker started: ", times=2)
    assert len({worker["id"] for worker in here.json("workers", "list")}) == 2
    first, second = started(supervisor.log)
    os.kill(first, signal.SIGKILL)
    supervisor.wait_for("Worker started: ", times=3)
    third = started(supervisor.log)[2]
    assert f"ended with code {-signal.SIGKILL}" in supervisor.log
    drained = next(worker["id"] for worker in here.json("workers", "list") if worker["pid"] == second)
    assert cli.out("workers", "drain", drained).endswith("will claim no more jobs, and exit after its running jobs")
    supervisor.wait_for("will not be restarted")
    assert here.out("enqueue", "add", "a=1", "--app", "shop", "--wait") == "2"  # by the other
    assert supervisor.stop() == 0
    assert started(supervisor.log) == [first, second, third]
    assert not any(psutil.pid_exists(pid) for pid in (first, second, third))


def test_a_worker_whose_terminal_is_closed_finishes_what_runs(lite: Cli, lite_here: Inside) -> None:
    (lite.folder / "shop.py").write_text(APP + PRINTS)
    job_id = lite_here.out("enqueue", "prints", "--app", "shop")
    ours, theirs = pty.openpty()
    worker = subprocess.Popen(
        [sys.executable, "-m", "rowlock", "worker", "--app", "shop"],
        cwd=lite.folder, env=lite.env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    try:
        os.close(theirs)
        wait_until((lite.folder / "runs").exists, "the job runs")
        os.close(ours)  # the kernel sends SIGHUP, and whatever is printed from now on fails
        (lite.folder / "go").touch()
        assert worker.wait(30) == 0
    finally:
        worker.kill()
    job = lite_here.json("jobs", "show", job_id)
    assert (job["state"], job["result"], job["attempt"]) == ("succeeded", "printed", 1)


def test_sighup_to_a_supervisor_stops_its_workers(lite: Cli) -> None:
    supervisor = lite.start("worker", "--app", "shop", "--processes", "2")
    supervisor.wait_for("Worker started: ", times=2)
    assert supervisor.stop(signal.SIGHUP) == 0
    assert supervisor.log.count("Worker stopped: ") == 2


def test_workers_stop_when_their_supervisor_is_killed(lite: Cli) -> None:
    supervisor = lite.start("worker", "--app", "shop", "--processes", "2")
    supervisor.wait_for("Worker started: ", times=2)
    supervisor.stop(signal.SIGKILL)
    wait_until(lambda: not any(psutil.pid_exists(pid) for pid in started(supervisor.log)), "the workers stop too")
    assert supervisor.log.count("Worker stopped: ") == 2


async def test_a_child_that_cannot_be_kept_alive_ends_the_supervisor(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rowlock.cli.run.supervisor.FIRST_DELAY", 0.001)
    supervisor = Supervisor(lambda _: [sys.executable, "-S", "-c", "raise SystemExit(7)"], 2)
    assert await supervisor.run() == 1
    assert "giving up" in caplog.text
    assert "ended with code 7" in caplog.text


def test_up_migrates_postgresql_and_works(folder: Path, postgres_url: str) -> None:
    cli = Cli(folder, postgres_url)
    cli.run("migrate", "--check", code=1)
    up = cli.start("up", "--app", "shop")
    try:
        up.wait_for("Worker started: ")
        cli.run("migrate", "--check")
        assert cli.out("enqueue", "add", "a=1", "--app", "shop", "--wait") == "2"
        assert up.stop() == 0
    finally:
        cli.close()


def started(log: str) -> list[int]:
    """The pids of a supervisor's children, in order."""
    return [int(pid) for pid in re.findall(r"worker process \d+ started, pid (\d+)", log)]
