"""`rowlock up`: everything that an app needs, in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rowlock.cli import worker_options as given
from rowlock.cli.logs import configure_logs
from rowlock.cli.loop import run_async
from rowlock.cli.options import AppOption, ConfigOption, DatabaseOption
from rowlock.cli.target import Target
from rowlock.cli.worker import work


def up(
    app: AppOption = None,
    config: ConfigOption = None,
    database: DatabaseOption = None,
    queues: given.Queues = None,
    pool_size: given.PoolSize = None,
    shutdown_timeout_seconds: given.ShutdownTimeout = None,
    reload: Annotated[bool, typer.Option("--reload/--no-reload", help="Start again when a .py file changes")] = False,
    reload_dir: Annotated[
        list[Path] | None,
        typer.Option("--reload-dir", metavar="FOLDER", help="Watch this folder instead of the current one"),
    ] = None,
    log_level: given.LogLevel = "info",
    log_format: given.LogFormat = "text",
    parent: given.Parent = None,
) -> None:
    """Migrate the database and run your app: worker and dispatcher, in this process."""
    configure_logs(log_level, log_format)
    if reload:
        raise typer.Exit(_reload(reload_dir or [Path.cwd()]))
    flags = given.worker_flags(queues=queues, pool_size=pool_size, shutdown_timeout_seconds=shutdown_timeout_seconds)
    work(Target(app, config, database).open_code("up", flags), parent=parent, everything=True)


def _reload(folders: list[Path]) -> int:
    from rowlock.cli.children import same_command
    from rowlock.cli.reload import Reloader

    return run_async(Reloader(same_command("--no-reload"), folders).run())
