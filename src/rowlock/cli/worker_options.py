"""The options of the verbs that run a worker: every `worker.…` setting, and logging."""

from __future__ import annotations

from typing import Annotated, Any

import typer


def _setting(flag: str, help: str, metavar: str = "N") -> Any:
    return typer.Option(flag, metavar=metavar, help=help)


# All of them as text: the settings check them, with one wording for flags, environment and file.
Queues = Annotated[str | None, _setting("--queues", "Queues to take jobs from", "A,B")]
PoolSize = Annotated[str | None, _setting("--pool-size", "Jobs that one process runs at the same time")]
PollInterval = Annotated[str | None, _setting("--poll-interval-seconds", "Longest sleep of an idle worker", "SECONDS")]
ClaimBatch = Annotated[str | None, _setting("--claim-batch-size", "Most jobs that one claim takes")]
ShutdownTimeout = Annotated[
    str | None, _setting("--shutdown-timeout-seconds", "How long a stop waits for running jobs", "SECONDS")
]
Heartbeat = Annotated[str | None, _setting("--heartbeat-seconds", "How often leases are renewed", "SECONDS")]
Lease = Annotated[str | None, _setting("--lease-seconds", "How long a lease lasts without a beat", "SECONDS")]
Sweep = Annotated[str | None, _setting("--sweep-seconds", "How often leases that ran out are looked for", "SECONDS")]
Processes = Annotated[str | None, _setting("--processes", "Worker processes; more than one are supervised")]
Wakeups = Annotated[bool | None, typer.Option("--wakeups/--no-wakeups", help="Be woken by new jobs, or only poll")]
LogLevel = Annotated[str, typer.Option("--log-level", help="debug, info, warning or error")]
LogFormat = Annotated[str, typer.Option("--log-format", help="text or json")]
# How a child learns who started it; not for people.
Parent = Annotated[int | None, typer.Option("--parent", hidden=True)]


def worker_flags(**given: Any) -> dict[str, Any]:
    """Options as settings: what was not given is left to environment, file and defaults."""
    return {f"worker.{key}": value for key, value in given.items() if value is not None}
