"""Options of the long-running verbs: worker settings, logging, and the id of the parent process."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any

import typer


def _setting(flag: str, help: str, metavar: str = "N") -> Any:
    return typer.Option(flag, metavar=metavar, help=help)


# Every value is text here: Settings checks it, so that errors read alike for flags, environment and file.
Queues = Annotated[str | None, _setting("--queues", "Queues to claim jobs from", "A,B")]
PoolSize = Annotated[str | None, _setting("--pool-size", "Slots: how many jobs one process runs at the same time")]
PollInterval = Annotated[str | None, _setting("--poll-interval-seconds", "Longest time between two polls", "SECONDS")]
ClaimBatch = Annotated[str | None, _setting("--claim-batch-size", "Most jobs that one claim takes")]
ShutdownTimeout = Annotated[
    str | None, _setting("--shutdown-timeout-seconds", "How long a stopping worker waits for its jobs", "SECONDS")
]
Heartbeat = Annotated[str | None, _setting("--heartbeat-seconds", "How often leases are renewed", "SECONDS")]
LeaseSeconds = Annotated[
    str | None, _setting("--lease-seconds", "How long a lease lasts without a heartbeat", "SECONDS")
]
Sweep = Annotated[str | None, _setting("--sweep-seconds", "How often the worker looks for expired leases", "SECONDS")]
Processes = Annotated[str | None, _setting("--processes", "Worker processes; two or more get a supervisor")]
Wakeups = Annotated[
    bool | None, typer.Option("--wakeups/--no-wakeups", help="New jobs wake an idle worker, or it only polls")
]
MetricsPort = Annotated[
    str | None,
    _setting("--metrics-port", "Port of /metrics, /livez and /readyz; each further process gets the next one"),
]
MetricsHost = Annotated[
    str | None, _setting("--metrics-host", "Address to listen on for --metrics-port [default: 127.0.0.1]", "ADDRESS")
]
LogLevel = Annotated[str, typer.Option("--log-level", envvar="ROWLOCK_LOG_LEVEL", help="debug, info, warning or error")]
LogFormat = Annotated[str, typer.Option("--log-format", envvar="ROWLOCK_LOG_FORMAT", help="text (or console), or json")]
# Hidden: a supervisor or reloader passes its own process id to the child process that it starts.
Parent = Annotated[int | None, typer.Option("--parent", hidden=True)]


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """The `worker.…` settings that `rowlock up` takes."""

    queues: Queues = None
    pool_size: PoolSize = None
    shutdown_timeout_seconds: ShutdownTimeout = None
    metrics_port: MetricsPort = None
    metrics_host: MetricsHost = None

    def flags(self) -> dict[str, Any]:
        """The options that were given, as settings; the rest is left to environment, file and defaults."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {f"worker.{key}": value for key, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True)
class WorkerOptions(PoolOptions):
    """All `worker.…` settings, as options of `rowlock worker`."""

    processes: Processes = None
    poll_interval_seconds: PollInterval = None
    claim_batch_size: ClaimBatch = None
    heartbeat_seconds: Heartbeat = None
    lease_seconds: LeaseSeconds = None
    sweep_seconds: Sweep = None
    wakeups: Wakeups = None


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The log level and the log format."""

    log_level: LogLevel = "info"
    log_format: LogFormat = "text"
