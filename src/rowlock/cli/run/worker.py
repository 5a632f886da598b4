"""`rowlock worker` runs jobs, in one process or in several, and `rowlock dispatch` fires ticks; both until a signal."""

from __future__ import annotations

import os
import signal
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, NoReturn

import typer

from rowlock.cli.kit.failures import explain
from rowlock.cli.kit.logs import configure_logs, flush_logs
from rowlock.cli.kit.loop import run_async
from rowlock.cli.kit.target import Target
from rowlock.cli.kit.worker_options import LogOptions, Parent, WorkerOptions

if TYPE_CHECKING:
    from rowlock.app import Rowlock

PARENT_SECONDS = 1.0


def worker(target: Target, options: WorkerOptions, logs: LogOptions, parent: Parent = None) -> None:
    """Run jobs. A first SIGTERM, SIGHUP or Ctrl-C lets running jobs finish, a second releases them, a third exits."""
    configure_logs(logs)
    app = target.open_code("worker", options.flags())
    wanted = app.settings.worker.processes
    if wanted > 1:
        raise typer.Exit(_supervise(wanted, app.settings.worker.metrics_port))
    work(app, parent)


def dispatch(target: Target, logs: LogOptions) -> None:
    """Create the jobs of schedules when they are due. Several dispatchers may run; each tick still fires once."""
    configure_logs(logs)
    target.run(lambda app: app.run_dispatcher())


def _supervise(wanted: int, metrics_port: int | None) -> int:
    from rowlock.cli.kit.subprocesses import same_command
    from rowlock.cli.run.supervisor import Supervisor

    def command(number: int) -> list[str]:
        own = () if metrics_port is None else ("--metrics-port", str(metrics_port + number - 1))
        return same_command("--processes", "1", *own)

    return run_async(Supervisor(command, wanted).run())


def work(app: Rowlock, parent: int | None, beside: AbstractAsyncContextManager[None] | None = None) -> NoReturn:
    """Run one worker in this process, then end the process. With `beside`, a context that is open while the worker runs
    (the API, a bridge), the process does everything: it also migrates first and runs a dispatcher."""

    async def until_it_ends() -> None:
        code = 0
        try:
            await _work(app, parent, beside)
        except BaseException as error:
            code = explain(error)
        # Exit here: closing the event loop would wait for an asyncio task that swallows its cancellation, and for a
        # thread that ignores its timeout. Their jobs are already back in the queue.
        flush_logs()
        os._exit(code)

    run_async(until_it_ends())
    raise AssertionError("unreachable")


async def _work(app: Rowlock, parent: int | None, beside: AbstractAsyncContextManager[None] | None) -> None:
    import asyncio

    from rowlock.worker.lifecycle import run_everything, run_worker

    if beside is not None:
        await app.migrate()
    watching = asyncio.ensure_future(_stop_with(parent)) if parent else None
    async with app, beside or nullcontext():
        await (run_worker if beside is None else run_everything)(app, processes=1)
    if watching:
        watching.cancel()


async def _stop_with(parent: int) -> None:
    """Stop this process when its parent (supervisor or reloader) has died: nobody else would stop it."""
    import asyncio

    while os.getppid() == parent:
        await asyncio.sleep(PARENT_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
