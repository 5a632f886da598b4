"""Start, run, stop: signals to a worker. The first drains, the second gives everything back now, the third exits.

Which signals these are is in `rowlock.worker.stop_signals`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from rowlock.signals.meters import serve_meters
from rowlock.worker.dispatcher import Dispatcher
from rowlock.worker.pool import WorkerPool
from rowlock.worker.stop_signals import Terminal, on_stop_signals, stop_signals
from rowlock.worker.systemd import Notifier

if TYPE_CHECKING:
    from rowlock.client.client import Client

log = logging.getLogger("rowlock.worker")


class Stopper:
    """Counts signals and says how hard to stop."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.now = asyncio.Event()
        self._terminal = Terminal()
        self.service = Notifier()

    def __call__(self) -> None:
        self._terminal.leave_if_closed()
        if not self.asked.is_set():
            log.info("stopping: finishing what runs (signal again to give it back now)")
            self.service.stopping()
            self.asked.set()
        elif not self.now.is_set():
            log.info("stopping now: everything that runs is given back")
            self.now.set()
        else:
            os._exit(1)

    async def run(self, work: Coroutine[Any, Any, None], *beside: asyncio.Future[None]) -> None:
        """Say that the process is ready, and let `work` go on until a signal comes or a task beside it ends. Raises the
        error that ends `work`."""
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
    """Catch the stop signals for the time of a block, and put the old handlers back."""
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


@contextmanager
def metrics_shown(app: Client) -> Iterator[None]:
    """Show the numbers of a process without a worker on the metrics port, if the settings give one."""
    settings = app.settings.worker
    if settings.metrics_port is None:
        yield
        return
    where = settings.metrics_host, settings.metrics_port
    endpoint = serve_meters(*where, app.meters, live=lambda: None, ready=lambda: None)
    try:
        yield
    finally:
        endpoint.close()


class Part(Protocol):
    """A worker, a dispatcher or a bridge."""

    async def start(self) -> None: ...
    async def join(self) -> None: ...
    async def stop(self) -> None: ...


P = TypeVar("P", bound=Part)


@asynccontextmanager
async def started(part: P) -> AsyncIterator[P]:
    """Start a worker, a dispatcher or a bridge, and stop it when the block ends."""
    await part.start()
    try:
        yield part
    finally:
        await part.stop()


async def run_until_signal(app: Client, part: Part) -> None:
    """Run a dispatcher or a bridge until a signal stops it."""
    with signals() as stopper, metrics_shown(app):
        async with started(part):
            await stopper.run(part.join())


async def run_everything(app: Client, **changes: Any) -> None:
    """Run a worker and a dispatcher until a signal stops them. If the dispatcher dies, the worker stops, too: a process
    that does half of its work would look healthy."""
    with signals() as stopper:
        async with started(Dispatcher(app)) as dispatcher:
            firing = asyncio.ensure_future(dispatcher.join())
            await serve(WorkerPool(app, **changes), stopper, firing)
            if firing.done():
                firing.result()


async def serve(pool: WorkerPool, stopper: Stopper, *beside: asyncio.Future[None]) -> None:
    """Start a worker, run it until a signal comes or the task beside it ends, and stop it."""
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
