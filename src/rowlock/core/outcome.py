"""How an attempt ended, as a value. The worker creates one for each attempt; `policy.decide` decides what follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from rowlock.core.sources.admission import Fault
from rowlock.core.tracebacks import Trace


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The handler returned; `result` is its JSON text, or None."""

    result: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The handler raised. `after` (seconds) or `backoff` (JSON) overrides the job's own backoff; `permanent` means that
    the job is not tried again. `fault` is set if the failure counts against the job's source; `retry_after` is for how
    many seconds that source asked to get no requests. `told` has the messages for an error tracker, without values of
    arguments: one for each exception of the trace, or a single one if there is no trace."""

    code: str
    message: str
    after: float | None = None
    permanent: bool = False
    backoff: str | None = None
    fault: Fault | None = None
    retry_after: float | None = None
    trace: Trace | None = field(default=None, compare=False, repr=False)
    told: Sequence[str] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The attempt took longer than its timeout."""

    timeout: float


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The attempt was stopped because somebody cancelled the job."""


# Why an attempt was released. `asked`: the handler, or the program that holds the lease, asked for it (a snooze), so
# the attempt came back. `stopped`: its worker stopped it or never started it. `sigterm`: a SIGTERM from outside ended
# its child process. `disconnect`: its transaction was rolled back, because the connection broke, the disk was full or
# another transaction conflicted with it.
ReleaseCause = Literal["asked", "stopped", "sigterm", "disconnect"]


@dataclass(frozen=True, slots=True)
class Released:
    """Given back to the queue: a shutdown, a snooze, or a lease that may have expired. Doesn't count as a try."""

    after: float
    reason: str = "released"
    cause: ReleaseCause = "asked"


@dataclass(frozen=True, slots=True)
class Lost:
    """The lease expired, or (`convicted`) the job's quarantine process died. Doesn't count as a try."""

    worker: str = ""
    convicted: bool = False
    detail: str = ""


AttemptEnd = Succeeded | Failed | TimedOut | Cancelled | Released | Lost
