"""One spawned child process and the thread that talks to it.

The thread starts the process, exchanges messages with it and logs its output, so that none of this blocks the event
loop. A child that must stop is killed together with all processes that it has started.
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
MAX_SIGTERMS = 20  # in a row, for one job; a further SIGTERM counts like any other death of its process


class Output:
    """Writes a child's output and log records to the worker's log. If there are more than 1,000 lines in a second, the
    first 1,000 and the last 20 are written. `keep` gets the lines of `ctx.log`."""

    def __init__(self, logger: str, extra: Mapping[str, Any], keep: Callable[[str, str], None] | None = None) -> None:
        self._log, self._extra = logging.getLogger(logger), dict(extra)
        self.keep = keep or (lambda level, text: None)
        self._rest = b""
        self._second, self._count, self._left_out = 0, 0, 0
        self._last: deque[tuple[int, str]] = deque(maxlen=LAST_LINES)

    def feed(self, data: bytes) -> None:
        """Log the complete lines in this data from the pipe, and buffer the incomplete one."""
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[: LINE_LIMIT * 4]  # the rest of the line would be cut off anyway
        for line in lines:
            self._line(logging.INFO, line.decode("utf-8", "backslashreplace"))

    def record(self, level: int, logger: str, text: str) -> None:
        """Log a record of one of the child's loggers."""
        if logging.getLogger(logger).isEnabledFor(level):
            prefix = "" if logger == self._log.name else f"{logger}: "
            for line in text.split("\n"):
                self._line(level, prefix + line)

    def end(self) -> None:
        """The job has ended: log the incomplete line and the last lines."""
        if self._rest:
            self.feed(b"\n")
        self._show_last()

    def refresh(self) -> None:
        """In a new second, log the lines held back and reset the count. Must be called at least once a second."""
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
    """A child process ended without answering."""

    def __init__(self, code: int | None, began: bool = False) -> None:
        self.code, self.began = code, began
        if code is not None and code < 0:
            number = -code
            name = signal.Signals(number).name if number in signal.valid_signals() else "unknown"
            super().__init__(f"killed by signal {number} ({name})")
            self.predicate = f"was {self}"
        else:
            super().__init__(f"exit code {code}")
            self.predicate = f"ended with {self}"

    def release(self, job: Claimed) -> Released | None:
        """A release, if the child was ended by a SIGTERM that this worker did not send. For example, when systemd stops
        a service it sends SIGTERM to each of its processes."""
        if self.code == -signal.SIGTERM and job.sigterms_in_row < MAX_SIGTERMS:
            return Released(random.random(), "its process received SIGTERM", "sigterm")
        return None


class Child:
    KILL_SECONDS = 5.0  # between SIGTERM and SIGKILL
    START_SECONDS = 60.0  # for a child to start and import the program
    CLOSE_SECONDS = 2.0  # for an idle child to close its lifespans

    def __init__(self, settings: str) -> None:
        self._settings = settings
        self._inbox: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self.process: SpawnProcess | None = None
        self.stopped = False  # this worker stopped it, so its job isn't to blame for its death
        self.used = False  # it has answered a message, so if it is dead when a job is sent, that job isn't to blame
        self.idle_since = 0.0  # `time.monotonic()`
        self.spent: str | None = None  # what the last job left behind; if set, the process gets no more jobs
        self._ending: asyncio.Task[None] | None = None
        # The thread must outlive the process: the kernel sends the parent-death signal as soon as the thread that
        # started the process ends.
        threading.Thread(target=self._work, name="rowlock-child", daemon=True).start()

    @property
    def alive(self) -> bool:
        process = self.process
        return process is not None and process.exitcode is None

    async def start(self) -> None:
        """Start the process and wait until it is ready."""
        await self._ask(self._start)

    async def run(self, message: list[Any], output: Output, report: Report) -> list[Any]:
        """Send a job to the process and return its answer."""
        return await self._ask(partial(self._converse, message, output, report))

    def stop(self) -> asyncio.Task[None]:
        """Send SIGTERM to the process and all that it started, and SIGKILL after KILL_SECONDS to those still alive."""
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
        """Let an idle process close its lifespans, then end it."""
        output = Output(log.name, {})
        with suppress(TimeoutError, ChildDied):
            async with asyncio.timeout(self.CLOSE_SECONDS):
                await self._ask(partial(self._converse, ["exit"], output, lambda *_: None))
        await self.stop()

    def _signal(self, number: int) -> None:
        """Send a signal to the process and to all that it started."""
        process = self.process  # a copy, because the thread may set it to None
        if process is None or process.pid is None:
            return
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            if process.exitcode is None:  # it has not created its process group yet
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
            with suppress(ValueError):  # it has survived SIGKILL
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
                # The child inherits this mask: Ctrl-C must not kill it before it ignores SIGINT.
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
            if death.code == -signal.SIGTERM:  # the service is being stopped: the job will be released
                raise death
            raise NotStarted(f"a process ended while it started: {death}")

    def _receive(self) -> list[Any] | None:
        try:
            answer: list[Any] = json.loads(self._control.recv_bytes())
            return answer
        except (EOFError, OSError, ValueError):
            return None

    def _converse(self, message: list[Any], output: Output, report: Report) -> list[Any]:
        """Send a message and handle output, logs and progress until the answer comes."""
        assert self.process is not None
        began = False
        between = Output(log.name, {"child": self.process.pid})  # for output of what earlier jobs left running
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
                # A fork of the child may keep the pipes open after its death, so ask the kernel whether it is alive.
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
        """Read printed output, at most 1 MiB at once: a flood of it must not delay the child's messages."""
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
            self._signal(signal.SIGKILL)  # for processes that it started, or for itself if it only closed its pipe
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
    """Whether a process group has live members. Zombies don't count: if process 1 isn't an init, they stay for ever."""
    try:
        os.killpg(number, 0)
        processes = [entry for entry in os.listdir("/proc") if entry.isdigit()]
    except ProcessLookupError:
        return False
    except OSError:  # no permission to signal it, or a system without /proc
        return True
    for process in processes:
        with suppress(OSError):
            # pid (name) state parent group …; the name may contain spaces and brackets
            state, _, group = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[:3]
            if int(group) == number and state not in "ZX":
                return True
    return False
