"""Options of the long-running verbs: worker settings, logging, and the id of the parent process."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any

import typer

# Hidden: a supervisor or reloader passes its own process id to the child process that it starts.
Parent = Annotated[int | None, typer.Option("--parent", hidden=True)]


def _setting(help: str, metavar: str = "N") -> Any:
    return typer.Option(metavar=metavar, help=help)


# Every value is text here: Settings checks it, so that errors read alike for flags, environment and file.
@dataclass(frozen=True, slots=True)
class PoolOptions:
    """The `worker.…` settings that `rowlock up` takes."""

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
        """The options that were given, as settings; the rest is left to environment, file and defaults."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {f"worker.{key}": value for key, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True)
class WorkerOptions(PoolOptions):
    """All `worker.…` settings, as options of `rowlock worker`."""

    processes: Annotated[str | None, _setting("Worker processes; two or more get a supervisor")] = None
    poll_interval_seconds: Annotated[str | None, _setting("Longest time between two polls", "SECONDS")] = None
    claim_batch_size: Annotated[str | None, _setting("Most jobs that one claim takes")] = None
    heartbeat_seconds: Annotated[str | None, _setting("How often leases are renewed", "SECONDS")] = None
    lease_seconds: Annotated[str | None, _setting("How long a lease lasts without a heartbeat", "SECONDS")] = None
    sweep_seconds: Annotated[str | None, _setting("How often the worker looks for expired leases", "SECONDS")] = None
    wakeups: Annotated[
        bool | None, typer.Option("--wakeups/--no-wakeups", help="New jobs wake an idle worker, or it only polls")
    ] = None


@dataclass(frozen=True, slots=True)
class LogOptions:
    log_level: Annotated[str, typer.Option(envvar="ROWLOCK_LOG_LEVEL", help="debug, info, warning or error")] = "info"
    log_format: Annotated[str, typer.Option(envvar="ROWLOCK_LOG_FORMAT", help="text (or console), or json")] = "text"
