"""`rowlock dispatch`: fire the ticks of schedules until told to stop."""

from __future__ import annotations

from rowlock.cli import worker_options as given
from rowlock.cli.logs import configure_logs
from rowlock.cli.loop import run_async
from rowlock.cli.options import AppOption, ConfigOption, DatabaseOption
from rowlock.cli.target import Target


def dispatch(
    app: AppOption = None,
    config: ConfigOption = None,
    database: DatabaseOption = None,
    log_level: given.LogLevel = "info",
    log_format: given.LogFormat = "text",
) -> None:
    """Fire the ticks of schedules. Run as many dispatchers as you like; each tick fires once."""
    configure_logs(log_level, log_format)
    opened = Target(app, config, database).open()

    async def work() -> None:
        async with opened:
            await opened.run_dispatcher()

    run_async(work())
