"""`rowlock worker` runs jobs, in one or several processes, and `rowlock dispatch` fires ticks, until a signal."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from rowlock.cli.kit.failures import explain
from rowlock.cli.kit.logs import LogOptions, configure_logs, flush_logs
from rowlock.cli.kit.options import given
from rowlock.cli.kit.target import Target, run_async

if TYPE_CHECKING:
    from rowlock.app import Rowlock

PARENT_SECONDS = 1.0

# Hidden: a supervisor or reloader passes its process id to its children.
Parent = Annotated[int | None, typer.Option("--parent", hidden=True)]


def _setting(help: str, metavar: str = "N") -> Any:
    return typer.Option(metavar=metavar, help=help)


# All values are text here. Settings validates them, so that flags, environment and file give the same errors.
@dataclass(frozen=True, slots=True)
class PoolOptions:
    """The `worker.…` settings that are options of `rowlock up`."""

    queues: Annotated[str | None, _setting("Queues to claim jobs from", "A,B")] = None
    pool_size: Annotated[str | None, _setting("Slots: how many jobs one process runs at the same time")] = None
    shutdown_timeout_seconds: Annotated[
        str | None, _setting("How long a stopping worker waits for its jobs", "SECONDS")
    ] = None
    metrics_port: Annotated[
        str | None, _setting("Port of /metrics, /livez and /readyz; each further process gets the next one")
    ] = None
    metrics_host: Annotated[
        str | None, _setting("Address to listen on for --metrics-port [default: 127.0.0.1]", "ADDRESS")
    ] = None

    def flags(self) -> dict[str, Any]:
        return {f"worker.{name}": value for name, value in given(self).items()}


@dataclass(frozen=True, slots=True)
class WorkerOptions(PoolOptions):
    """All `worker.…` settings, as options of `rowlock worker`."""

    processes: Annotated[str | None, _setting("Worker processes; two or more get a supervisor")] = None
    poll_interval_seconds: Annotated[str | None, _setting("Longest time between two polls", "SECONDS")] = None
    claim_batch_size: Annotated[str | None, _setting("Maximum number of jobs per claim")] = None
    heartbeat_seconds: Annotated[str | None, _setting("How often leases are renewed", "SECONDS")] = None
    lease_seconds: Annotated[str | None, _setting("How long a lease lasts without a heartbeat", "SECONDS")] = None
    sweep_seconds: Annotated[str | None, _setting("How often the worker looks for expired leases", "SECONDS")] = None
    wakeups: Annotated[
        bool | None, typer.Option("--wakeups/--no-wakeups", help="Let new jobs wake an idle worker, or only poll")
    ] = None


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
    from rowlock.cli.run.supervisor import Supervisor, same_command

    def command(number: int) -> list[str]:
        own = () if metrics_port is None else ("--metrics-port", str(metrics_port + number - 1))
        return same_command("--processes", "1", *own)

    return run_async(Supervisor(command, wanted).run())


def work(app: Rowlock, parent: int | None, *beside: AbstractAsyncContextManager[None]) -> NoReturn:
    """Run one worker in this process, then exit the process. If there are contexts `beside` it (the API, a bridge),
    they are open while the worker runs, and the process also migrates first and runs a dispatcher."""

    async def until_it_ends() -> None:
        code = 0
        try:
            await _work(app, parent, beside)
        except BaseException as error:
            code = explain(error)
        # Exit here: closing the event loop would wait for tasks that swallow their cancellation and for threads that
        # ignore their timeout. Their jobs are already back in the queue.
        flush_logs()
        os._exit(code)

    run_async(until_it_ends())
    raise AssertionError("unreachable")


async def _work(app: Rowlock, parent: int | None, beside: Sequence[AbstractAsyncContextManager[None]]) -> None:
    import asyncio

    from rowlock.worker.lifecycle import run_everything, run_worker

    if beside:
        await app.migrate()
    watching = asyncio.ensure_future(_stop_with(parent)) if parent else None
    async with app, AsyncExitStack() as stack:
        for each in beside:
            await stack.enter_async_context(each)
        await (run_everything if beside else run_worker)(app, processes=1)
    if watching:
        watching.cancel()


async def _stop_with(parent: int) -> None:
    """Stop this process when its parent (supervisor or reloader) has died, because nothing else would."""
    import asyncio

    while os.getppid() == parent:
        await asyncio.sleep(PARENT_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
