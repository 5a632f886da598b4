"""The program of a child process: it runs the jobs that its parent sends through a pipe, one at a time.

User code runs in the main thread. The event loop for async functions, middlewares and lifespans runs there as well. It
is stopped while a sync function runs, so that the function may install signal handlers and start its own event loop,
as in a script. A second thread reads the pipe; when the parent dies, it kills this process and all that it started.
`rowlock.worker.processes.cleanup` cleans up after each job. The parent's side is `rowlock.worker.processes.children`.
Messages are JSON and never pickles, because unpickling can run code.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from functools import cache, partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from rowlock.client.client import Client
from rowlock.client.context import Report
from rowlock.client.tasks.task import Task
from rowlock.core.config import Settings
from rowlock.core.error_text import clean
from rowlock.core.job import Claimed
from rowlock.core.job import running as current
from rowlock.core.outcome import AttemptEnd, Failed
from rowlock.store.read.job_logs import MOST_TEXT
from rowlock.worker.attempt.attempt import LiveAttempt
from rowlock.worker.attempt.classify import end_of
from rowlock.worker.attempt.executor import Invoker
from rowlock.worker.attempt.threads import returned_or_raised
from rowlock.worker.processes.cleanup import Leftovers
from rowlock.worker.processes.locate import NotImportable, find

PROGRESS_SECONDS = 0.05
RECORD_LIMIT = 100_000  # characters of one log record
log = logging.getLogger("rowlock.worker")
PR_SET_PDEATHSIG = 1


class ChildProgress:
    """Sends the running attempt's latest progress to the parent, at most twenty times a second."""

    def __init__(self, send: Callable[..., None]) -> None:
        self._send, self._wake, self._lock = send, threading.Event(), threading.Lock()
        self._latest: tuple[int | None, str | None, str | None] | None = None
        self._running: LiveAttempt | None = None
        threading.Thread(target=self._repeat, name="rowlock-progress", daemon=True).start()

    def reporter(self, running: LiveAttempt) -> Report:
        """The function behind `ctx.progress` of one attempt. It does nothing after the attempt has ended, so that a
        leftover thread cannot report progress for the next attempt."""
        self._running = running

        def report(percent: int | None, phase: str | None, message: str | None) -> None:
            with self._lock:
                if self._running is not running:
                    return
                if percent is None and self._latest is not None:
                    percent = self._latest[0]
                self._latest = (percent, _short(phase), _short(message))
            self._wake.set()

        return report

    def end(self) -> None:
        """The attempt has ended: send its last progress and accept no more."""
        with self._lock:
            self._flush()
            self._running = None

    def _flush(self) -> None:
        latest, self._latest = self._latest, None
        if latest is not None:
            self._send("progress", *latest)

    def _repeat(self) -> None:
        pause = threading.Event()
        while self._wake.wait():
            self._wake.clear()
            with self._lock:
                self._flush()
            pause.wait(PROGRESS_SECONDS)


def _short(text: str | None) -> str | None:
    return None if text is None else clean(str(text), 2000)


class ToParent(logging.Handler):
    """Sends log records to the parent, which logs them."""

    def __init__(self, send: Callable[..., None]) -> None:
        super().__init__()
        self._send, self._pid = send, os.getpid()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if os.getpid() != self._pid:  # a fork must not write to the pipe: messages would be garbled
                os.write(2, f"{self.format(record)[:RECORD_LIMIT]}\n".encode(errors="backslashreplace"))
                return
            self._send("log", record.levelno, record.name, self.format(record)[:RECORD_LIMIT])
        except Exception:
            self.handleError(record)


def main(control: Connection, output: Connection, parent: int, folder: str, settings: str) -> None:
    """Set up signals, output and folder of a new child process, then run jobs until the message to exit."""
    os.setsid()  # a process group, to kill this process together with all that it started
    for name in ("TERM", "HUP", "QUIT", "ALRM", "CHLD", "USR1", "USR2"):
        signal.signal(getattr(signal, f"SIG{name}"), signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches both processes; the parent decides what it means
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    die_with_parent()
    if os.getppid() != parent:
        os._exit(1)
    os.set_inheritable(control.fileno(), False)
    for descriptor in (1, 2):
        os.dup2(output.fileno(), descriptor)
    output.close()
    # Line-buffered: a process that is killed must not lose what it has printed.
    sys.stdout = os.fdopen(1, "w", 1, "utf-8", "backslashreplace", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, "utf-8", "backslashreplace", closefd=False)
    os.chdir(folder)
    multiprocessing.current_process().daemon = False  # daemonic processes aren't allowed to have children
    Host(control, settings, Leftovers(folder, die_with_parent)).run()


def die_with_parent() -> None:
    """Make sure that this process dies after its parent, even while C code holds the GIL and the thread that reads the
    pipe cannot run: the kernel sends SIGHUP. Its handler is C's alarm(), called with the signal's number, 1, so that
    one second later SIGALRM kills this process, unless the thread has killed the process group before."""
    if sys.platform == "linux":
        import ctypes

        libc = ctypes.CDLL(None)
        libc.signal(signal.SIGHUP, libc.alarm)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGHUP, 0, 0, 0)


class Host:
    def __init__(self, control: Connection, settings: str, leftovers: Leftovers) -> None:
        self._control, self._settings, self._leftovers = control, settings, leftovers
        self._pid = os.getpid()
        self._sending = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._inbox: asyncio.Queue[list[Any]] = asyncio.Queue()
        self._between: deque[Callable[[], None]] = deque()  # functions to call while the event loop is stopped
        self._tasks: dict[str, Task[..., Any, Any]] = {}
        self._invokers: dict[Client, Invoker] = {}  # for the apps whose lifespans are open
        self._exits = AsyncExitStack()
        self.progress = ChildProgress(self.send)

    def run(self) -> None:
        """Run the event loop until the message to exit. Whenever it stops, call the waiting sync functions."""
        logging.getLogger().addHandler(ToParent(self.send))
        threading.Thread(target=self._watch, name="rowlock-watch", daemon=True).start()
        serving = self._loop.create_task(self._serve())
        serving.add_done_callback(lambda _: self._loop.stop())
        while not serving.done():
            self._loop.run_forever()
            while self._between:
                self._between.popleft()()
        serving.result()

    def send(self, *message: Any) -> None:
        """Send a message to the parent, from any thread. In a process that a job has forked, do nothing."""
        if os.getpid() != self._pid:
            return
        data = json.dumps(message).encode()
        with self._sending:
            self._control.send_bytes(data)

    def _watch(self) -> None:
        try:
            while True:
                message = json.loads(self._control.recv_bytes())
                self._loop.call_soon_threadsafe(self._inbox.put_nowait, message)
        except BaseException:  # above all EOFError: the parent is gone
            if os.getpgrp() == os.getpid():
                os.killpg(os.getpid(), signal.SIGKILL)
            os._exit(1)

    async def between_turns(self, function: Callable[[], Any]) -> Any:
        """Run a function in the main thread while the event loop is stopped."""
        answer: asyncio.Future[tuple[Any, BaseException | None]] = self._loop.create_future()

        def work() -> None:
            value, raised = returned_or_raised(function)
            self.end_fork(raised)
            if not answer.done():
                answer.set_result((value, raised))

        self._between.append(work)
        self._loop.stop()
        value, raised = await answer
        if raised is not None:
            raise raised
        return value

    def end_fork(self, raised: BaseException | None) -> None:
        """Exit if this is a process that a job has forked: it must not report the job's outcome a second time."""
        if os.getpid() == self._pid:
            return
        code = 0
        if raised is not None:
            code = raised.code if isinstance(raised, SystemExit) and isinstance(raised.code, int) else 1
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        os._exit(code & 0xFF)

    async def _serve(self) -> None:
        self.send("ready")
        while (message := await self._inbox.get()) != ["exit"]:
            if message[0] == "import":
                for name, where in message[1].items():  # an import error is reported when the task has a job
                    with suppress(NotImportable):
                        self._tasks[name] = await self.between_turns(partial(find, name, where))
                self.send("imported")
                continue
            self.send("began")
            answer = await self._answer(*message)
            self.end_fork(None)
            if left := self._left_behind():
                self.send("spent", left)
            self.send(*answer)
        await self._exits.aclose()
        for app in self._invokers:
            await app.close()

    def _left_behind(self) -> str | None:
        try:
            return self._leftovers.after_job()
        except Exception as error:  # the clean-up failed; the job's own outcome still counts
            return f"a process that could not be cleaned up ({error!r})"

    async def _answer(
        self, fields: list[Any], name: str, where: list[list[str]], levels: dict[str, int]
    ) -> tuple[Any, ...]:
        for logger, level in levels.items():
            logging.getLogger(logger).setLevel(level)
        try:
            if name not in self._tasks:
                self._tasks[name] = await self.between_turns(partial(find, name, where))
        except NotImportable as error:
            self._leftovers.before_job()
            return ("unknown", str(error))
        attempt = LiveAttempt(Claimed(*fields))
        work = self._loop.create_task(self._run(attempt, self._tasks[name]))
        await asyncio.wait({work})
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        self.progress.end()
        end = Failed("CANCELLED_ITSELF", "the handler cancelled its own task") if work.cancelled() else work.result()
        if end is None:
            return ("lost",) if attempt.reason == "lost" else ("settled",)
        return ("end", type(end).__name__, dataclasses.astuple(end))

    async def _run(self, attempt: LiveAttempt, task: Task[..., Any, Any]) -> AttemptEnd | None:
        app = task.app
        try:
            invoker = self._invokers.get(app) or await self._open(app)
            self._leftovers.before_job()
            if app.settings.traces.enabled:
                from rowlock.signals.traces import continue_trace

                continue_trace(attempt.job.traceparent)
            current.set((app, attempt.job))
            with memory_limit(task.options.memory_mb):
                return await invoker.call(attempt, task)
        except BaseException as error:
            return end_of(app, attempt, error)

    async def _open(self, app: Client) -> Invoker:
        """Open an app's lifespans, once. If one raises, the next job tries again."""
        app.configure(Settings.model_validate_json(self._settings))
        resources: dict[str, Any] = {}
        async with AsyncExitStack() as opening:
            for lifespan in app.lifespans:
                resources |= await opening.enter_async_context(asynccontextmanager(lifespan)())
            self._exits.push_async_callback(opening.pop_all().aclose)
        invoker = self._invokers[app] = Invoker(
            app, resources, self.progress.reporter, self._call_blocking, self._keeper, stopping=None
        )
        return invoker

    async def _call_blocking(self, attempt: LiveAttempt, function: Callable[[], Any]) -> Any:
        return await self.between_turns(function)  # in the main thread; the parent enforces the timeout

    def _keeper(self, job: Claimed) -> Callable[[str, str], None]:
        """The function behind `ctx.log`: sends the line to the parent, which writes it to the database."""
        return lambda level, message: self.send("line", level, clean(message, MOST_TEXT))


@contextmanager
def memory_limit(megabytes: int | None) -> Iterator[None]:
    """Limit the address space to its current size plus `megabytes`: a job that needs more gets a MemoryError."""
    if megabytes is None:
        yield
        return
    try:
        import resource

        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        before = resource.getrlimit(resource.RLIMIT_AS)
        limit = now + megabytes * 2**20
        if before[1] != resource.RLIM_INFINITY:
            limit = min(limit, before[1])
        resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
    except (ImportError, AttributeError, OSError, ValueError) as error:
        _warn_once(f"memory_mb has no effect on this system: {error}")
        yield
        return
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@cache
def _warn_once(text: str) -> None:
    log.warning(text)
