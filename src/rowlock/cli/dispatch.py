"""`rowlock dispatch`: fire the ticks of schedules until told to stop."""

from __future__ import annotations

from rowlock.cli.logs import configure_logs
from rowlock.cli.options import grouped_options
from rowlock.cli.target import Target
from rowlock.cli.worker_options import LogOptions


@grouped_options
def dispatch(target: Target, logs: LogOptions) -> None:
    """Fire the ticks of schedules. Run as many dispatchers as you like; each tick fires once."""
    configure_logs(logs)
    target.run(lambda app: app.run_dispatcher())
