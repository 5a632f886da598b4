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
from typing import TYPE_CHECKING, Any

from rowlock.signals.endpoint import Answers, Endpoint
from rowlock.signals.meters import check_installed, shown
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

    async def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Say that the process is ready, and let `work` go on until a signal comes. Raises the error that ends it."""
        self.service.ready()
        working, asked = asyncio.ensure_future(work), asyncio.ensure_future(self.asked.wait())
        try:
            await asyncio.wait({working, asked}, return_when=asyncio.FIRST_COMPLETED)
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
    check_installed()
    answers = Answers(lambda accept: shown(app.meters, accept), live=lambda: None, ready=lambda: None)
    endpoint = Endpoint(settings.metrics_host, settings.metrics_port, answers)
    endpoint.start()
    try:
        yield
    finally:
        endpoint.close()


@asynccontextmanager
async def dispatching(app: Client) -> AsyncIterator[Dispatcher]:
    """A dispatcher for as long as the block lasts."""
    dispatcher = Dispatcher(app)
    await dispatcher.start()
    try:
        yield dispatcher
    finally:
        await dispatcher.stop()


async def run_dispatcher(app: Client) -> None:
    """Run a dispatcher until a signal stops it."""
    with signals() as stopper, metrics_shown(app):
        async with dispatching(app) as dispatcher:
            await stopper.run(dispatcher.join())


async def run_everything(app: Client, **changes: Any) -> None:
    """Run a worker and a dispatcher until a signal stops them. If the dispatcher dies, the worker stops, too: a process
    that does half of its work would look healthy."""
    with signals() as stopper:
        async with dispatching(app) as dispatcher:
            firing = asyncio.ensure_future(dispatcher.join())
            await serve(WorkerPool(app, **changes), stopper, firing)
            if firing.done():
                firing.result()


async def serve(pool: WorkerPool, stopper: Stopper, *beside: asyncio.Future[None]) -> None:
    """Start a worker, run it until a signal comes or the task beside it ends, and stop it."""
    await pool.start()
    stopper.service.ready()
    working = asyncio.ensure_future(pool.join())
    asked = asyncio.ensure_future(stopper.asked.wait())
    ends: set[asyncio.Future[Any]] = {working, asked, *beside}
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        hurried = asyncio.ensure_future(_hurry(pool, stopper))
        try:
            await pool.stop()
        finally:
            for task in (working, asked, hurried):
                task.cancel()
            await asyncio.gather(working, asked, hurried, return_exceptions=True)
    if working.done() and not working.cancelled():
        working.result()


async def _hurry(pool: WorkerPool, stopper: Stopper) -> None:
    await stopper.now.wait()
    pool.hurry()
