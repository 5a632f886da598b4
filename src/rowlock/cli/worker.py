"""`rowlock worker`: run your tasks until told to stop, in one process or in several."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, NoReturn

import typer

from rowlock.cli import worker_options as given
from rowlock.cli.failures import explain
from rowlock.cli.logs import configure_logs, flush_logs
from rowlock.cli.loop import run_async
from rowlock.cli.options import AppOption, ConfigOption, DatabaseOption
from rowlock.cli.target import Target

if TYPE_CHECKING:
    from rowlock.work.app import Rowlock

PARENT_SECONDS = 1.0


def worker(
    app: AppOption = None,
    config: ConfigOption = None,
    database: DatabaseOption = None,
    queues: given.Queues = None,
    pool_size: given.PoolSize = None,
    processes: given.Processes = None,
    poll_interval_seconds: given.PollInterval = None,
    claim_batch_size: given.ClaimBatch = None,
    shutdown_timeout_seconds: given.ShutdownTimeout = None,
    heartbeat_seconds: given.Heartbeat = None,
    lease_seconds: given.Lease = None,
    sweep_seconds: given.Sweep = None,
    wakeups: given.Wakeups = None,
    log_level: given.LogLevel = "info",
    log_format: given.LogFormat = "text",
    parent: given.Parent = None,
) -> None:
    """Run jobs. The first SIGTERM, SIGHUP or Ctrl-C finishes what runs, the second gives it back, the third ends."""
    configure_logs(log_level, log_format)
    flags = given.worker_flags(
        queues=queues,
        pool_size=pool_size,
        processes=processes,
        poll_interval_seconds=poll_interval_seconds,
        claim_batch_size=claim_batch_size,
        shutdown_timeout_seconds=shutdown_timeout_seconds,
        heartbeat_seconds=heartbeat_seconds,
        lease_seconds=lease_seconds,
        sweep_seconds=sweep_seconds,
        wakeups=wakeups,
    )
    opened = Target(app, config, database).open_code("worker", flags)
    wanted = opened.settings.worker.processes
    if wanted > 1:
        raise typer.Exit(_supervise(wanted))
    work(opened, parent=parent)


def _supervise(wanted: int) -> int:
    from rowlock.cli.children import same_command
    from rowlock.cli.supervisor import Supervisor

    return run_async(Supervisor(same_command("--processes", "1"), wanted).run())


def work(app: Rowlock, *, parent: int | None = None, everything: bool = False) -> NoReturn:
    """Run one worker in this process, with `everything` also migrations and a dispatcher, then end the process."""

    async def until_it_ends() -> None:
        code = 0
        try:
            await _work(app, parent, everything)
        except BaseException as error:
            code = explain(error)
        # From inside the loop, which would wait for its tasks: one that swallows its cancel, or a thread that ignores
        # its timeout, must not keep the process. Its job is back in the queue already.
        flush_logs()
        os._exit(code)

    run_async(until_it_ends())
    raise AssertionError("unreachable")


async def _work(app: Rowlock, parent: int | None, everything: bool) -> None:
    import asyncio

    from rowlock.work.lifecycle import run_everything, run_worker

    if everything:
        await app.migrate()
    watching = asyncio.ensure_future(_stop_with(parent)) if parent else None
    async with app:
        await (run_everything if everything else run_worker)(app, processes=1)
    if watching:
        watching.cancel()


async def _stop_with(parent: int) -> None:
    """An orphan stops: whoever started it can no longer ask it to."""
    import asyncio

    while os.getppid() == parent:
        await asyncio.sleep(PARENT_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
