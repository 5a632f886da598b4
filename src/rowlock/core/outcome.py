"""How an attempt ended, as values. The executor classifies into one of these; `policy.decide` says what follows."""

from __future__ import annotations

from dataclasses import dataclass

from rowlock.core.source import Fault


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The handler returned; `result` is its JSON text, or None."""

    result: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The handler raised. `after` or `backoff` (its JSON) override the job's own; `permanent` means no further try.
    `fault` is set when it says something about the job's source, which asks to be left alone for `retry_after`."""

    code: str
    message: str
    after: float | None = None
    permanent: bool = False
    backoff: str | None = None
    fault: Fault | None = None
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The attempt outran its timeout."""

    timeout: float


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Somebody asked for it."""


@dataclass(frozen=True, slots=True)
class Released:
    """Given back unharmed: shutdown, snooze, lease in doubt. Uses up no try."""

    after: float
    reason: str = "released"


@dataclass(frozen=True, slots=True)
class Lost:
    """The lease ran out, or (`convicted`) the job took its quarantine child down. Uses up no try."""

    worker: str = ""
    convicted: bool = False
    detail: str = ""


AttemptEnd = Succeeded | Failed | TimedOut | Cancelled | Released | Lost
