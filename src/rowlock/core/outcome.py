"""How an attempt ended, as values. The worker makes one for each attempt; `policy.decide` says what follows."""

from __future__ import annotations

from dataclasses import dataclass, field

from rowlock.core.source import Fault
from rowlock.core.tracebacks import Trace


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The handler returned; `result` is its JSON text, or None."""

    result: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The handler raised. `after` (seconds) or `backoff` (JSON) overrides the job's own backoff; `permanent` means no
    further try. `fault` is set when the failure counts against the job's source; `retry_after` is for how long that
    source asked to get no requests."""

    code: str
    message: str
    after: float | None = None
    permanent: bool = False
    backoff: str | None = None
    fault: Fault | None = None
    retry_after: float | None = None
    trace: Trace | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The attempt took longer than its timeout."""

    timeout: float


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The attempt was stopped because the job's cancel was requested."""


@dataclass(frozen=True, slots=True)
class Released:
    """Given back to the queue: shutdown, snooze, or a lease that may have run out. Uses up no try."""

    after: float
    reason: str = "released"


@dataclass(frozen=True, slots=True)
class Lost:
    """The lease ran out, or (`convicted`) the job's quarantine child process died. Uses up no try."""

    worker: str = ""
    convicted: bool = False
    detail: str = ""


AttemptEnd = Succeeded | Failed | TimedOut | Cancelled | Released | Lost
