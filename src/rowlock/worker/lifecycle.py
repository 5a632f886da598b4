"""Start, run, stop. The first stop signal drains the process, the second releases its jobs, the third exits at once."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any, Protocol, TypeVar

from rowlock.client.client import Client
from rowlock.signals.endpoint import Endpoint
from rowlock.worker.dispatcher import Dispatcher
from rowlock.worker.pool import WorkerPool
from rowlock.worker.systemd import Notifier

# A closed terminal or a lost SSH connection sends SIGHUP; Ctrl-\ and some service managers send SIGQUIT. By default
# both kill a process at once, and its jobs would have to wait until their leases run out.
ALWAYS = (signal.SIGTERM, signal.SIGINT)
UNLESS_IGNORED = (signal.SIGHUP, signal.SIGQUIT)
log = logging.getLogger("rowlock.worker")


def stop_signals() -> list[signal.Signals]:
    """The signals that stop this process. SIGHUP and SIGQUIT stay ignored if `nohup`, or a shell that started the
    process in the background, has made it ignore them."""
    not_ignored = [number for number in UNLESS_IGNORED if signal.getsignal(number) is not signal.SIG_IGN]
    return [*ALWAYS, *not_ignored]


def on_stop_signals(stop: Callable[[], None]) -> None:
    """From now on, call `stop` for each signal that stops this process."""
    loop, hung_up = asyncio.get_running_loop(), False

    def hang_up() -> None:
        """Count the first SIGHUP only: when a terminal is closed, both the kernel and the shell send one."""
        nonlocal hung_up
        if not hung_up:
            hung_up = True
            stop()

    for number in stop_signals():
        loop.add_signal_handler(number, hang_up if number == signal.SIGHUP else stop)


class Terminal:
    """The standard streams that were a terminal at the start."""

    def __init__(self, descriptors: Sequence[int] = (1, 2)) -> None:
        self._descriptors = [number for number in descriptors if _is_terminal(number)]

    def leave_if_closed(self) -> None:
        """Redirect output to /dev/null if the terminal is closed: otherwise every `print()` would raise, and fail jobs
        that are about to finish."""
        for number in [number for number in self._descriptors if not _is_terminal(number)]:
            self._descriptors.remove(number)
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, number)
            os.close(nowhere)


def _is_terminal(descriptor: int) -> bool:
    try:
        return os.isatty(descriptor)
    except OSError:
        return False


class Stopper:
    """Counts stop signals."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()  # set by the first signal
        self.now = asyncio.Event()  # set by the second
        self._terminal = Terminal()
        self.service = Notifier()

    def __call__(self) -> None:
        self._terminal.leave_if_closed()
        if not self.asked.is_set():
            log.info("stopping: finishing running jobs (signal again to release them now)")
            self.service.stopping()
            self.asked.set()
        elif not self.now.is_set():
            log.info("stopping now: releasing running jobs")
            self.now.set()
        else:
            os._exit(1)

    async def run(self, work: Coroutine[Any, Any, None], *beside: asyncio.Future[None]) -> None:
        """Report the process as ready, and run `work` until it ends, a signal comes or a task in `beside` ends. Raises
        the error that ends `work`."""
        self.service.ready()
        working, asked = asyncio.ensure_future(work), asyncio.ensure_future(self.asked.wait())
        ends: set[asyncio.Future[Any]] = {working, asked, *beside}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.cancel()
        if working.done():
            working.result()


@contextmanager
def signals() -> Iterator[Stopper]:
    """Handle the stop signals inside a block, then restore the previous handlers."""
    stopper, loop = Stopper(), asyncio.get_running_loop()
    previous = {number: signal.getsignal(number) for number in stop_signals()}
    on_stop_signals(stopper)
    try:
        yield stopper
    finally:
        stopper.service.close()
        for number, handler in previous.items():
            loop.remove_signal_handler(number)
            if handler is not None:
                signal.signal(number, handler)


async def run_worker(app: Client, **changes: Any) -> None:
    """Run a worker until a signal stops it."""
    with signals() as stopper:
        await serve(WorkerPool(app, **changes), stopper)


class Startable(Protocol):
    """A worker, a dispatcher or a bridge."""

    async def start(self) -> None: ...
    async def join(self) -> None: ...
    async def stop(self) -> None: ...


P = TypeVar("P", bound=Startable)


@asynccontextmanager
async def started(part: P) -> AsyncIterator[P]:
    """Start a worker, a dispatcher or a bridge, and stop it when the block ends."""
    await part.start()
    try:
        yield part
    finally:
        await part.stop()


async def run_until_signal(app: Client, part: Startable) -> None:
    """Run a dispatcher or a bridge until a signal stops it."""
    settings = app.settings.worker
    with signals() as stopper, ExitStack() as shown:
        if settings.metrics_port is not None:
            where = settings.metrics_host, settings.metrics_port
            endpoint = Endpoint(*where, app.meters, live=lambda: None, ready=lambda: None)
            shown.callback(endpoint.close)
        async with started(part):
            await stopper.run(part.join())


async def run_everything(app: Client, **changes: Any) -> None:
    """Run a worker and a dispatcher until a signal stops them. If the dispatcher dies, stop the worker: otherwise a
    process that does half of its work would look healthy."""
    with signals() as stopper:
        async with started(Dispatcher(app)) as dispatcher:
            firing = asyncio.ensure_future(dispatcher.join())
            await serve(WorkerPool(app, **changes), stopper, firing)
            if firing.done():
                firing.result()


async def serve(pool: WorkerPool, stopper: Stopper, *beside: asyncio.Future[None]) -> None:
    """Start a worker, run it until a signal comes or a task in `beside` ends, and stop it."""
    await pool.start()
    try:
        await stopper.run(pool.join(), *beside)
    finally:
        hurrying = asyncio.ensure_future(_hurry(pool, stopper))
        try:
            await pool.stop()
        finally:
            hurrying.cancel()


async def _hurry(pool: WorkerPool, stopper: Stopper) -> None:
    await stopper.now.wait()
    pool.hurry()
