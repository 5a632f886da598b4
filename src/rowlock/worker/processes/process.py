"""One spawned child process and the thread that talks to it.

The thread starts the process, exchanges messages with it and logs what it prints, so that the event loop waits for none
of this. A child that must stop is killed with everything that it has started.
"""

from __future__ import annotations

import asyncio
import json
import logging
import multiprocessing
import os
import queue
import random
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, TypeVar

from rowlock.client.context import Report
from rowlock.core.job import Claimed
from rowlock.core.outcome import Released
from rowlock.signals.logs import one_line
from rowlock.worker.processes.child import main

LINE_LIMIT = 10_000  # characters
LINES_PER_SECOND = 1000
LAST_LINES = 20
T = TypeVar("T")
log = logging.getLogger("rowlock.worker")
MAX_SIGTERMS = 20  # of one job in a row; after these, a SIGTERM counts like any other death of its process


class Output:
    """What a child prints and logs, as lines of the worker's log. Of more than 1,000 lines a second, the first 1,000
    and the last 20 are written. `keep` gets the lines that are kept with the job."""

    def __init__(self, logger: str, extra: Mapping[str, Any], keep: Callable[[str, str], None] | None = None) -> None:
        self._log, self._extra = logging.getLogger(logger), dict(extra)
        self.keep = keep or (lambda level, text: None)
        self._rest = b""
        self._second, self._count, self._left_out = 0, 0, 0
        self._last: deque[tuple[int, str]] = deque(maxlen=LAST_LINES)

    def feed(self, data: bytes) -> None:
        """Log the whole lines among these bytes from the pipe, and keep the unfinished one."""
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[: LINE_LIMIT * 4]  # of an unfinished line keep only what will be logged
        for line in lines:
            self._line(logging.INFO, line.decode("utf-8", "backslashreplace"))

    def record(self, level: int, logger: str, text: str) -> None:
        """Log a record of one of the child's loggers."""
        if logging.getLogger(logger).isEnabledFor(level):
            prefix = "" if logger == self._log.name else f"{logger}: "
            for line in text.split("\n"):
                self._line(level, prefix + line)

    def end(self) -> None:
        """The job has ended: log the unfinished line and the last lines."""
        if self._rest:
            self.feed(b"\n")
        self._show_last()

    def refresh(self) -> None:
        """At the beginning of each second, log what was held back and count anew. Must be called at least once a
        second."""
        second = int(time.monotonic())
        if second != self._second:
            self._show_last()
            self._second, self._count = second, 0

    def _line(self, level: int, text: str) -> None:
        self.refresh()
        self._count += 1
        if self._count <= LINES_PER_SECOND:
            self._write(level, text)
            return
        self._left_out += len(self._last) == LAST_LINES
        self._last.append((level, text))

    def _show_last(self) -> None:
        if self._left_out:
            self._log.warning("%d lines are left out here", self._left_out, extra=self._extra)
        for level, text in self._last:
            self._write(level, text)
        self._left_out = 0
        self._last.clear()

    def _write(self, level: int, text: str) -> None:
        if text := text.rstrip():
            cut = " …(cut)" if len(text) > LINE_LIMIT else ""
            self._log.log(level, "%s%s", one_line(text, LINE_LIMIT), cut, extra=self._extra)


class NotStarted(Exception):
    """A child process could not be started, or was not ready in time."""


class ChildDied(Exception):
    """A child process ended without an answer."""

    def __init__(self, code: int | None, began: bool = False) -> None:
        self.code, self.began = code, began
        if code is not None and code < 0:
            number = -code
            name = signal.Signals(number).name if number in signal.valid_signals() else "unknown"
            super().__init__(f"killed by signal {number} ({name})")
            self.told = f"was {self}"
        else:
            super().__init__(f"exit code {code}")
            self.told = f"ended with {self}"

    def asked_for(self, job: Claimed) -> Released | None:
        """A release, if the child was ended by a SIGTERM that this worker did not send: systemd, for one, sends SIGTERM
        to every process of a service that it stops."""
        if self.code == -signal.SIGTERM and job.sigterms_in_row < MAX_SIGTERMS:
            return Released(random.random(), "its process was told to stop (SIGTERM)", "sigterm")
        return None


class Child:
    KILL_SECONDS = 5.0  # between SIGTERM and SIGKILL
    START_SECONDS = 60.0  # until a child is ready: it imports the program
    CLOSE_SECONDS = 2.0  # for an idle child to close its lifespans

    def __init__(self, settings: str) -> None:
        self._settings = settings
        self._inbox: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self.process: SpawnProcess | None = None
        self.stopped = False  # this worker stopped it, so its death says nothing about its job
        self.used = False  # it has answered a message: if it is dead when a job is sent, the job has not killed it
        self.idle_since = 0.0  # a moment of `time.monotonic`
        self.spent: str | None = None  # what the last job left in the process; if set, it runs no other job
        self._ending: asyncio.Task[None] | None = None
        # The thread outlives the process: the kernel sends the parent-death signal when the thread that started the
        # process ends.
        threading.Thread(target=self._work, name="rowlock-child", daemon=True).start()

    @property
    def alive(self) -> bool:
        process = self.process
        return process is not None and process.exitcode is None

    async def start(self) -> None:
        """Start the process and wait until it is ready."""
        await self._ask(self._start)

    async def run(self, message: list[Any], output: Output, report: Report) -> list[Any]:
        """Send it a job and return its answer."""
        return await self._ask(partial(self._converse, message, output, report))

    def stop(self) -> asyncio.Task[None]:
        """Send SIGTERM to the process and everything it has started, and SIGKILL after KILL_SECONDS to what is left."""
        if self._ending is None:
            self.stopped = True
            self._signal(signal.SIGTERM)
            self._ending = asyncio.create_task(self._stop())
        return self._ending

    async def _stop(self) -> None:
        alarm = asyncio.get_running_loop().call_later(self.KILL_SECONDS, self._signal, signal.SIGKILL)
        await self._ask(partial(self._finish, time.monotonic() + self.KILL_SECONDS))
        alarm.cancel()
        self._inbox.put(None)

    async def close(self) -> None:
        """Let an idle process close what it has opened, and end it."""
        output = Output(log.name, {})
        with suppress(TimeoutError, ChildDied):
            async with asyncio.timeout(self.CLOSE_SECONDS):
                await self._ask(partial(self._converse, ["exit"], output, lambda *_: None))
        await self.stop()

    def _signal(self, number: int) -> None:
        """Send a signal to the process and to everything that it has started."""
        process = self.process  # the thread may set it to None meanwhile
        if process is None or process.pid is None:
            return
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            if process.exitcode is None:  # it has no group of its own yet
                with suppress(ProcessLookupError):
                    os.kill(process.pid, number)
        except PermissionError:
            pass

    # --- in the thread

    async def _ask(self, function: Callable[[], T]) -> T:
        answer: Future[T] = Future()
        self._inbox.put((answer, function))
        return await asyncio.wrap_future(answer)

    def _work(self) -> None:
        while (asked := self._inbox.get()) is not None:
            answer, function = asked
            if answer.set_running_or_notify_cancel():
                try:
                    answer.set_result(function())
                except BaseException as error:
                    answer.set_exception(error)
        process, self.process = self.process, None
        if process is not None:
            self._control.close()
            self._output.close()
            with suppress(ValueError):  # not even SIGKILL has ended it
                process.close()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        try:
            self._control, control = context.Pipe()
            self._output, output = context.Pipe(duplex=False)
            with control, output:
                os.set_blocking(self._output.fileno(), False)
                args = (control, output, os.getpid(), os.getcwd(), self._settings)
                process = context.Process(target=main, args=args, name="rowlock-child", daemon=True)
                resource_tracker.ensure_running()
                # Inherited: Ctrl-C must not hit a child before it can ignore it.
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
                process.start()
        except Exception as error:
            raise NotStarted(f"a process could not be started: {error!r}") from error
        self.process = process
        self._streams: list[Any] = [self._control, self._output, process.sentinel]
        if self.stopped:
            self._signal(signal.SIGTERM)
        if not wait([self._control, process.sentinel], self.START_SECONDS):
            raise NotStarted(f"a process was not ready after {self.START_SECONDS:g} s")
        if self._receive() != ["ready"]:
            process.join(1.0)
            death = ChildDied(process.exitcode)
            if death.code == -signal.SIGTERM:  # by a service manager that stops all processes: its job is given back
                raise death
            raise NotStarted(f"a process ended while it started: {death}")

    def _receive(self) -> list[Any] | None:
        try:
            answer: list[Any] = json.loads(self._control.recv_bytes())
            return answer
        except (EOFError, OSError, ValueError):
            return None

    def _converse(self, message: list[Any], output: Output, report: Report) -> list[Any]:
        """Send a message and handle output, logs and progress until its answer comes."""
        assert self.process is not None
        began = False
        between = Output(log.name, {"child": self.process.pid})  # output of threads and programs that earlier jobs left
        self._drain(between)
        between.end()
        try:
            self._control.send_bytes(json.dumps(message).encode())
        except OSError:
            raise self._died(output, began) from None
        while True:
            ready = wait(self._streams, 1.0)
            self._drain(output)
            output.refresh()
            if self._control not in ready:
                # A process that the job has forked may keep all pipes open, so ask the kernel whether the child lives.
                if self.process.exitcode is not None:
                    raise self._died(output, began)
                if self.process.sentinel in ready:
                    time.sleep(0.005)
                continue
            match self._receive():
                case None:
                    raise self._died(output, began)
                case ["began"]:
                    began = True
                case ["progress", percent, phase, text]:
                    report(percent, phase, text)
                case ["log", level, logger, text]:
                    (output if began else between).record(level, logger, text)
                case ["line", level, text]:
                    output.keep(level, text)
                case ["spent", left]:
                    self.spent = left
                    output.record(logging.WARNING, log.name, f"the job left {left} behind: its process is replaced")
                case answer:
                    self._drain(output)
                    output.end()
                    self.used = True
                    return answer

    def _drain(self, output: Output) -> None:
        """Read what was printed, at most 1 MiB: messages of the child must not wait behind a flood of output."""
        if self._output not in self._streams:
            return
        for _ in range(16):
            try:
                data = os.read(self._output.fileno(), 65_536)
            except BlockingIOError:
                return
            if not data:
                self._streams.remove(self._output)
                return
            output.feed(data)

    def _died(self, output: Output, began: bool) -> ChildDied:
        assert self.process is not None
        self.process.join(1.0)
        if not self.stopped:
            self._signal(signal.SIGKILL)  # processes that it started, or itself if it closed its pipe and lives
            self.process.join(5.0)
        self._drain(output)
        output.end()
        return ChildDied(self.process.exitcode, began)

    def _finish(self, deadline: float) -> None:
        if self.process is None or self.process.pid is None:
            return
        while (self.alive or group_lives(self.process.pid)) and time.monotonic() < deadline:
            time.sleep(0.01)
        self._signal(signal.SIGKILL)
        self.process.join(self.KILL_SECONDS)


def group_lives(number: int) -> bool:
    """Whether a process group has living members. Zombies do not count: where process 1 isn't an init, they stay."""
    try:
        os.killpg(number, 0)
        processes = [entry for entry in os.listdir("/proc") if entry.isdigit()]
    except ProcessLookupError:
        return False
    except OSError:  # no permission to signal it, or a system without /proc
        return True
    for process in processes:
        with suppress(OSError):
            # pid (name) state parent group …, where a name may have spaces and brackets
            state, _, group = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[:3]
            if int(group) == number and state not in "ZX":
                return True
    return False
