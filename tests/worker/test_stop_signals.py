"""Signals that stop a worker: also the ones that a closed terminal sends."""

import asyncio
import logging
import os
import pty
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rowlock import Rowlock
from rowlock.cli.kit.logs import LogOptions, configure_logs, flush_logs
from rowlock.worker.lifecycle import Terminal, run_everything, signals
from support.each import each
from support.tasks.contract import fetch, until_renewed

LIMIT = 20.0


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Rowlock]:
    async with Rowlock(f"sqlite:///{tmp_path}/jobs.db") as opened:
        yield opened


class Work:
    """A task that says when it runs, and returns when told to."""

    def __init__(self, app: Rowlock) -> None:
        self.entered, self.go = asyncio.Event(), asyncio.Event()

        @app.task("work", max_attempts=1)
        async def work() -> str:
            self.entered.set()
            await self.go.wait()
            return "finished"

        self.task = work


@each("number", [signal.SIGHUP, signal.SIGQUIT])
@each("everything", [False, True], ids=["worker", "up"])
async def test_sighup_and_sigquit_drain_a_worker_as_sigterm_does(
    tmp_path: Path, handlers: dict[int, Any], number: signal.Signals, everything: bool
) -> None:
    async with Rowlock(f"sqlite:///{tmp_path}/{number.name}-{everything}.db") as app:
        work = Work(app)
        running, late = await work.task.enqueue(), await work.task.enqueue()
        settings = {"pool_size": 1, "heartbeat_seconds": 0.1}
        run = run_everything(app, **settings) if everything else app.run_worker(**settings)
        serving = asyncio.create_task(run)
        async with asyncio.timeout(LIMIT):
            await work.entered.wait()
            signal.raise_signal(number)
            signal.raise_signal(number)
            if number == signal.SIGHUP:  # the kernel and the shell both send it: still one request
                await until_renewed(app, running.id)  # it waits for the running job
                work.go.set()
            await serving
        assert {number: signal.getsignal(number) for number in handlers} == handlers, "the handlers are put back"
        states = [(await app.job(job.id)).state for job in (running, late)]
        assert states == (["succeeded", "queued"] if number == signal.SIGHUP else ["queued", "queued"])
        assert (await app.job(running.id)).losses == 0


async def test_sighup_stops_a_dispatcher(app: Rowlock, handlers: dict[int, Any]) -> None:
    serving = asyncio.create_task(app.run_dispatcher())
    async with asyncio.timeout(LIMIT):
        while signal.getsignal(signal.SIGHUP) is handlers[signal.SIGHUP]:
            await asyncio.sleep(0.01)
        signal.raise_signal(signal.SIGHUP)
        await serving
    assert {number: signal.getsignal(number) for number in handlers} == handlers, "the handlers are put back"
    assert await fetch(app, "SELECT id FROM {t}dispatchers") == [], "it has not signed off"


async def test_under_nohup_a_worker_goes_on_when_its_terminal_is_closed(app: Rowlock, handlers: dict[int, Any]) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    work = Work(app)
    serving = asyncio.create_task(app.run_worker(pool_size=1))
    first = await work.task.enqueue()
    async with asyncio.timeout(LIMIT):
        await work.entered.wait()
        signal.raise_signal(signal.SIGHUP)
        work.go.set()
        assert await first.wait() == "finished"
        assert await (await work.task.enqueue()).wait() == "finished"
        signal.raise_signal(signal.SIGTERM)
        await serving


def test_what_is_printed_after_the_terminal_was_closed_raises_nothing() -> None:
    ours, theirs = pty.openpty()
    try:
        terminal = Terminal([theirs])
        terminal.leave_if_closed()
        assert os.isatty(theirs), "an open terminal is kept"
        os.close(ours)
        with pytest.raises(OSError, match="Input/output error"):
            os.write(theirs, b"lost")
        terminal.leave_if_closed()
        assert os.write(theirs, b"lost") == 4
    finally:
        os.close(theirs)


@each("how", ["a broken pipe", "closed by a job"])
def test_a_log_that_cannot_be_written_raises_nothing(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    stream = os.fdopen(writing, "w", buffering=1)
    monkeypatch.setattr("sys.stderr", stream)
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    try:
        root.handlers = []
        configure_logs(LogOptions(log_level="info", log_format="text"))
        os.close(reading)
        if how == "closed by a job":
            stream.detach().close()
        logging.getLogger("rowlock.worker").info("Job %s completed", "x")
        flush_logs()
        assert len(root.handlers) == 1, "the log is still written, as far as it can be"
    finally:
        root.handlers = before
        root.setLevel(level)


async def test_work_that_dies_before_a_signal_ends_the_process_with_its_error() -> None:
    async def dies() -> None:
        raise RuntimeError("its loop is broken")

    with signals() as stopper, pytest.raises(RuntimeError, match="its loop is broken"):
        await stopper.run(dies())
