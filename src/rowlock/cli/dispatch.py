"""`rowlock dispatch`: create the jobs of due ticks until a signal stops it."""

from __future__ import annotations

from rowlock.cli.logs import configure_logs
from rowlock.cli.options import grouped_options
from rowlock.cli.target import Target
from rowlock.cli.worker_options import LogOptions


@grouped_options
def dispatch(target: Target, logs: LogOptions) -> None:
    """Create the jobs of schedules when they are due. Several dispatchers may run; each tick still fires once."""
    configure_logs(logs)
    target.run(lambda app: app.run_dispatcher())
