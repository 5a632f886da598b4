"""Jobs in child processes: a pool of them for `runs_in="process"`, and the quarantine of jobs whose worker died.

Children are spawned, never forked, when first needed, and used again. Each has a thread here that starts it, talks to
it and logs what it prints, so that the event loop waits for none of this. A child that must stop is killed with
everything that it has started. What happens inside of one is in `rowlock.work.child`.
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
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rowlock.core.errors import LeaseLost
from rowlock.core.job import Claimed
from rowlock.core.outcome import AttemptEnd, Cancelled, Failed, Lost, Released, Succeeded, TimedOut
from rowlock.events.logs import one_line
from rowlock.work.child import NotImportable, main, places
from rowlock.work.context import Report
from rowlock.work.running import Running

if TYPE_CHECKING:
    from rowlock.work.app import Rowlock
    from rowlock.work.executor import Executor
    from rowlock.work.tasks import Task

T = TypeVar("T")
log = logging.getLogger("rowlock.worker")

ENDS: dict[str, Callable[..., AttemptEnd]] = {
    kind.__name__: kind for kind in (Succeeded, Failed, TimedOut, Cancelled, Released, Lost)
}
LINE_LIMIT = 10_000  # characters
LINES_PER_SECOND = 1000
LAST_LINES = 20
MAX_RELEASES = 20


class NotStarted(Exception):
    """A child process did not come up."""


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
        """A SIGTERM that is not ours: systemd, for one, sends it to every process of a service that it stops."""
        if self.code == -signal.SIGTERM and job.releases < MAX_RELEASES:
            return Released(random.random(), "its process was told to stop (SIGTERM)")
        return None


class Output:
    """What a child prints and logs, as lines of our log; of a flood the first of each second, and the last."""

    def __init__(self, logger: str, extra: Mapping[str, Any]) -> None:
        self._log, self._extra = logging.getLogger(logger), dict(extra)
        self._rest = b""
        self._second, self._count, self._left_out = 0, 0, 0
        self._last: deque[tuple[int, str]] = deque(maxlen=LAST_LINES)

    def feed(self, data: bytes) -> None:
        """Take bytes as they come from the pipe."""
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[: LINE_LIMIT * 4]  # of a line without an end only what will be shown
        for line in lines:
            self._line(logging.INFO, line.decode("utf-8", "backslashreplace"))

    def record(self, level: int, logger: str, text: str) -> None:
        """Take a log record."""
        if logging.getLogger(logger).isEnabledFor(level):
            prefix = "" if logger == self._log.name else f"{logger}: "
            for line in text.split("\n"):
                self._line(level, prefix + line)

    def end(self) -> None:
        """Nothing more comes."""
        if self._rest:
            self.feed(b"\n")
        self._show_last()

    def refresh(self) -> None:
        """Called now and then: in each second some lines may be written."""
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


class Child:
    """One child process, and the thread that talks to it."""

    KILL_SECONDS = 5.0  # between SIGTERM and SIGKILL
    START_SECONDS = 60.0
    CLOSE_SECONDS = 2.0

    def __init__(self, settings: str) -> None:
        self._settings = settings
        self._inbox: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self.process: SpawnProcess | None = None
        self.stopped = False  # by us: its death then says nothing about its job
        self.used = False
        self._ending: asyncio.Task[None] | None = None
        # The thread outlives the process: a parent-death signal is sent when the thread that started it ends.
        threading.Thread(target=self._work, name="rowlock-child", daemon=True).start()

    @property
    def alive(self) -> bool:
        """Whether the process has not ended."""
        process = self.process
        return process is not None and process.exitcode is None

    async def start(self) -> None:
        """Start the process and wait until it is ready."""
        await self._ask(self._start)

    async def run(self, message: list[Any], output: Output, report: Report) -> list[Any]:
        """Let it run a job; gives its answer."""
        return await self._ask(partial(self._converse, message, output, report))

    def stop(self) -> asyncio.Task[None]:
        """SIGTERM to the process and everything it has started; after a while SIGKILL to what is left."""
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

    # --- signals

    def _signal(self, number: int) -> None:
        process = self.process
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
            raise NotStarted(f"a process ended while it started: {ChildDied(process.exitcode)}")

    def _receive(self) -> list[Any] | None:
        try:
            answer: list[Any] = json.loads(self._control.recv_bytes())
            return answer
        except (EOFError, OSError, ValueError):
            return None

    def _converse(self, message: list[Any], output: Output, report: Report) -> list[Any]:
        """Say something and listen until the answer to it; what it prints and reports comes before."""
        assert self.process is not None
        began = False
        try:
            self._control.send_bytes(json.dumps(message).encode())
        except OSError:
            raise self._died(output, began) from None
        while True:
            ready = wait(self._streams, 1.0)
            self._drain(output)
            output.refresh()
            if self._control not in ready:
                # A process that the job has forked may keep all pipes open: ask the system too.
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
                    output.record(level, logger, text)
                case answer:
                    self._drain(output)
                    output.end()
                    self.used = True
                    return answer

    def _drain(self, output: Output) -> None:
        """Take what was printed, at most so much that the rest of the talk does not wait for it."""
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
            self._signal(signal.SIGKILL)  # what it has started, or itself if it only closed its pipe
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
    """Whether a process group has members. The dead do not count: where process 1 is no init, nobody reaps them."""
    try:
        os.killpg(number, 0)
        processes = [entry for entry in os.listdir("/proc") if entry.isdigit()]
    except ProcessLookupError:
        return False
    except OSError:  # not ours to ask, or a system without /proc
        return True
    for process in processes:
        with suppress(OSError):
            # pid (name) state parent group …, where a name may have spaces and brackets
            state, _, group = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[:3]
            if int(group) == number and state not in "ZX":
                return True
    return False


class Children:
    """Up to `size` child processes, started when needed and used again."""

    def __init__(self, app: Rowlock, size: int) -> None:
        self._app, self._room = app, asyncio.Semaphore(size)
        self._all: set[Child] = set()
        self._idle: list[Child] = []
        self._places: dict[str, list[tuple[str, str]]] = {}

    async def run(self, running: Running, task: Task[..., Any], report: Report) -> AttemptEnd | None:
        """Run an attempt in a child. None when its own transaction has settled it."""
        try:
            return await self.attempt(running, task, report)
        except NotImportable as error:
            hint = "move it to the top level of a module, or use runs_in='thread'"
            return Failed("NOT_IMPORTABLE", f"a child process cannot import task {task.name!r} ({error}); {hint}")
        except NotStarted as error:
            return Failed("CHILD_DIED", str(error))
        except ChildDied as death:
            return death.asked_for(running.job) or Failed("CHILD_DIED", str(death))

    async def attempt(self, running: Running, task: Task[..., Any], report: Report) -> AttemptEnd | None:
        """Like `run`, but a child that dies, does not start or cannot find the task is an exception."""
        job, name = running.job, f"rowlock.task.{task.name}"
        if task.name not in self._places:
            self._places[task.name] = places(task)
        if not (where := self._places[task.name]):
            raise NotImportable("neither it nor its app is a global of any module")
        levels = {logger: logging.getLogger(logger).getEffectiveLevel() for logger in ("", name)}
        # The timeout is kept here: a child that hangs cannot keep it.
        fields = list(job._replace(timeout_seconds=None))
        message = [fields, task.name, where, levels]
        output = Output(name, {"job_id": job.id, "task": job.task, "attempt": job.attempt})
        async with self._room:
            answer = await self._ask(message, job.timeout_seconds, output, report)
        match answer:
            case ["end", kind, values]:
                return ENDS[kind](*values)
            case ["unknown", reason]:
                raise NotImportable(reason)
            case ["overran"]:
                return TimedOut(job.timeout_seconds or 0.0)
            case ["stopped"]:
                return Released(random.random(), "shutdown")
            case ["lost"]:
                raise LeaseLost(f"job {job.id} is no longer held by this attempt")
        return None

    async def close(self) -> None:
        """End every child: idle ones may close what they have opened, others are killed."""
        idle, self._idle = self._idle, []
        busy = self._all - set(idle)
        self._all.clear()
        await asyncio.gather(*(child.close() for child in idle), *(child.stop() for child in busy))

    async def _ask(self, message: list[Any], timeout: float | None, output: Output, report: Report) -> list[Any]:
        while True:
            child = await self._take()
            used = child.used
            try:
                async with asyncio.timeout(timeout) as limit:
                    answer = await child.run(message, output, report)
            except BaseException as error:
                stopped = child.stopped
                await self._end(child)
                match error:
                    case TimeoutError() if limit.expired():
                        return ["overran"]
                    case ChildDied() if stopped:
                        return ["stopped"]
                    case ChildDied() if used and not error.began:
                        continue  # it was dead or dying before the job came to it
                raise
            self._idle.append(child)
            return answer

    async def _take(self) -> Child:
        while self._idle:
            child = self._idle.pop()
            if child.alive:
                return child
            await self._end(child)
        child = Child(self._app.settings.model_dump_json())
        self._all.add(child)
        try:
            await child.start()
        except BaseException:
            await self._end(child)
            raise
        return child

    async def _end(self, child: Child) -> None:
        """Kill it, however often the caller is cancelled meanwhile: the slot is free when the process is gone."""
        self._all.discard(child)
        ending, cancelled = child.stop(), None
        while not ending.done():
            try:
                await asyncio.shield(ending)
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled


class Quarantine:
    """One child process for jobs whose worker died: one at a time, so that the next death names the culprit."""

    def __init__(self, app: Rowlock, alone: Callable[[Running], AbstractAsyncContextManager[None]]) -> None:
        self._children, self._alone = Children(app, 1), alone

    async def run(self, running: Running, task: Task[..., Any], executor: Executor) -> AttemptEnd | None:
        """Run a suspect, whatever its task says about where it runs."""
        try:
            end = await self._children.attempt(running, task, executor.report(running))
            if end is None:
                executor.settled(running)
            return end
        except ChildDied as death:
            detail = f"its quarantine process {death.told}"
            return death.asked_for(running.job) or Lost(convicted=True, detail=detail)
        except (NotImportable, NotStarted) as error:
            job = running.job
            log.warning("Job %s (%s) runs alone in its worker, not in quarantine: %s", job.id, job.task, error)
        async with self._alone(running):
            return await executor.run_here(running, task)

    async def close(self) -> None:
        """End the child."""
        await self._children.close()
