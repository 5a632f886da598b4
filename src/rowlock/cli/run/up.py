"""`rowlock up`: migrations, worker, dispatcher, job API and bridge in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rowlock.cli.kit.logs import LogOptions, configure_logs
from rowlock.cli.kit.target import Target, run_async
from rowlock.cli.run.bridge import bridging_beside
from rowlock.cli.run.serve import ApiOptions, serving_beside
from rowlock.cli.run.worker import Parent, PoolOptions, work


def up(
    target: Target,
    pool: PoolOptions,
    api: ApiOptions,
    logs: LogOptions,
    reload: Annotated[bool, typer.Option("--reload/--no-reload", help="Restart when a .py file changes")] = False,
    reload_dir: Annotated[
        list[Path] | None, typer.Option(metavar="FOLDER", help="Watch this folder instead of the current one")
    ] = None,
    parent: Parent = None,
) -> None:
    """Run worker, dispatcher, API and dashboard in one process. Migrates first; adds a bridge if Redis is set up."""
    from rowlock.core.config import ApiSettings

    configure_logs(logs)
    if reload:
        from rowlock.cli.run.reload import Reloader
        from rowlock.cli.run.supervisor import same_command

        raise typer.Exit(run_async(Reloader(same_command("--no-reload"), reload_dir or [Path.cwd()]).run()))
    app = target.open_code("up", pool.flags() | api.flags())
    asked = app.settings.api != ApiSettings()
    work(app, parent, serving_beside(app, asked, api.login_link), bridging_beside(app))
