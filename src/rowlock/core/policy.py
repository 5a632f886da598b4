"""Decides what follows the end of an attempt. Only `decide` knows about tries, backoff, poison and cancels, and it
allows only the state changes in the table of `core.states`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, assert_never

from rowlock.core.errors import InvalidArguments, NotAllowed, seconds
from rowlock.core.outcome import AttemptEnd, Cancelled, Failed, Lost, ReleaseCause, Released, Succeeded, TimedOut
from rowlock.core.sources.admission import Fault
from rowlock.core.states import Outcome, State, allowed
from rowlock.core.tracebacks import Trace

if TYPE_CHECKING:
    from rowlock.core.job import Claimed

DAY = 86_400.0
POISON_CONVICTIONS = 2  # that make a job dead, with the code POISON
MAX_LOSSES = 10  # a job lost this often in a row is dead, even without convictions, or it would be restarted for ever
PROBATION = 100  # attempts that must come back before a loss is forgotten


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before the next try. Jitter never shortens a fixed delay. The values are checked here, so that
    `delay` can be stored whatever the number of tries."""

    kind: str
    base: float
    cap: float
    factor: float = 2.0

    def __post_init__(self) -> None:
        if self.kind not in ("fixed", "exponential"):
            raise InvalidArguments(f"the kind of a backoff must be 'fixed' or 'exponential', not {self.kind!r:.100}")
        for name in ("base", "cap"):
            object.__setattr__(self, name, seconds(getattr(self, name), f"the {name} of a backoff"))
        if isinstance(self.factor, bool) or not isinstance(self.factor, (int, float)) or not 1 <= self.factor <= 100:
            raise InvalidArguments(f"the factor of a backoff must be between 1 and 100, not {self.factor!r:.100}")

    def delay(self, tries: int, draw: float) -> float:
        """Seconds before the next try after `tries` tries; `draw` in [0, 1) is the jitter."""
        if self.kind == "fixed":
            return self.base * (1 + 0.2 * draw)
        # The exponent is capped so that attempt 60 does not overflow.
        full = min(self.cap, self.base * self.factor ** min(max(tries, 1) - 1, 20))
        return full * (0.5 + 0.5 * draw)

    def to_json(self) -> str:
        return json.dumps({"kind": self.kind, "base": self.base, "cap": self.cap, "factor": self.factor})

    @staticmethod
    def from_json(text: str | None) -> Backoff:
        """The backoff in a job's row. If the row has none, or another program wrote an unusable one, the default: an
        attempt must be settled whatever its row contains."""
        if not text:
            return DEFAULT_BACKOFF
        try:
            return checked_backoff(text)
        except (TypeError, ValueError, LookupError, RecursionError):
            return DEFAULT_BACKOFF


def checked_backoff(stored: Any) -> Backoff:
    """A backoff from its stored form, which is a JSON object or its text; raises if it is unusable."""
    given = json.loads(stored) if isinstance(stored, str) else stored
    cap = given["base"] if given["kind"] == "fixed" else DAY
    return Backoff(**({"cap": cap} | given))


def fixed(seconds_: float | timedelta = 0, *, seconds: float = 0, minutes: float = 0, hours: float = 0) -> Backoff:
    """Always the same delay, plus a jitter of up to a fifth of it, so that jobs that failed together don't all start
    again at the same moment."""
    extra = seconds_.total_seconds() if isinstance(seconds_, timedelta) else seconds_
    total = _positive(extra + seconds + minutes * 60 + hours * 3600, "fixed()")
    return Backoff("fixed", total, total)


def exponential(base: float | timedelta = 10, cap: float | timedelta = DAY, factor: float = 2.0) -> Backoff:
    """`base`, then `factor` times as long after each try, up to `cap`. The real delay is random, between 50 and 100 %
    of that."""
    return Backoff("exponential", _positive(base, "exponential(base=)"), _positive(cap, "exponential(cap=)"), factor)


def _positive(value: float | timedelta, what: str) -> float:
    number = seconds(value, what)
    if number <= 0:
        raise InvalidArguments(f"{what} needs a delay greater than zero, not {value!r}")
    return number


DEFAULT_BACKOFF = exponential()


class Streaks(NamedTuple):
    """Counts since the last attempt that came back (succeeded, failed, timed out or snoozed), or since an operator's
    retry. They are columns of jobs_live, as are `losses` and `releases`, the totals over the job's life from which its
    tries are computed. The totals have no limits, because a job that snoozes for months would reach any limit.

    `losses_in_row` above 0 makes the job a suspect, which runs in quarantine. Quarantine ends with the first attempt
    that comes back, so that one `kill -9` does not slow a job for the rest of its life. But take a job that kills every
    second worker: it behaves in quarantine, gets out, kills the next worker, and so on. If it snoozes in between, that
    never ends, because neither snoozes nor losses count as tries. So a loss also starts a probation, which ends after
    PROBATION attempts that come back; several losses in a row start one, because the later ones show nothing new about
    the job. A loss on probation raises `probation` above PROBATION, and until it has fallen to PROBATION again, all of
    the job's attempts run in quarantine. A death in quarantine is a conviction, which stays until an operator's
    retry."""

    losses_in_row: int = 0
    probation: int = 0
    sigterms_in_row: int = 0
    disconnects_in_row: int = 0


NO_STREAKS = Streaks()


def suspect(job: Claimed) -> bool:
    """Whether the job's next attempt runs in quarantine."""
    return job.losses_in_row > 0 or job.probation > PROBATION


@dataclass(frozen=True, slots=True)
class Transition:
    """What is written at the end of an attempt: the job's next state, delay, error and counters. Raises NotAllowed if
    the table of states does not have this change."""

    state: State
    outcome: Outcome
    delay: float = 0.0
    result: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    released: int = 0
    lost: int = 0
    convicted: int = 0
    streaks: Streaks = NO_STREAKS  # of a job that will run again
    fault: Fault | None = None  # counts against the job's source
    retry_after: float | None = None
    trace: Trace | None = field(default=None, compare=False, repr=False)  # the exceptions that the attempt raised
    told: Sequence[str] = field(default=(), compare=False, repr=False)  # their messages for an error tracker

    def __post_init__(self) -> None:
        if self.state not in allowed(State.RUNNING, self.outcome):
            raise NotAllowed(f"a running job whose attempt ended {self.outcome!s} cannot become {self.state!s}")


SUCCESS = Transition(State.SUCCEEDED, Outcome.SUCCEEDED)  # shared by all successes without a result, which most are
CANCELLED = Transition(State.CANCELLED, Outcome.CANCELLED, error_code="CANCELLED")


def decide(job: Claimed, end: AttemptEnd, draw: float) -> Transition:
    """The transition of `job` after its attempt has ended with `end`; `draw` in [0, 1) is the jitter."""
    match end:
        case Succeeded(result):
            return SUCCESS if result is None else Transition(State.SUCCEEDED, Outcome.SUCCEEDED, result=result)
        case Cancelled():
            return CANCELLED
        case Failed():
            return _after_failure(job, Outcome.FAILED, end, draw)
        case TimedOut(timeout):
            overran = Failed("TIMEOUT", f"timed out after {timeout:g} s", fault="source")
            return _after_failure(job, Outcome.TIMED_OUT, overran, draw)
        case Released(after, reason, cause):
            if job.cancel_requested:
                return CANCELLED
            streaks = _after_release(job, cause)
            return Transition(
                State.QUEUED, Outcome.RELEASED, delay=after, error_message=reason, released=1, streaks=streaks
            )
        case Lost():
            return _after_loss(job, end, draw)
    assert_never(end)


def tries_used(job: Claimed) -> int:
    """Attempts that count against `max_attempts`: all but those that were released (deploy, snooze) or lost."""
    return job.attempt - job.releases - job.losses


def _came_back(job: Claimed) -> Streaks:
    return Streaks(probation=max(job.probation - 1, 0)) if job.probation else NO_STREAKS


def _after_release(job: Claimed, cause: ReleaseCause) -> Streaks:
    if cause == "asked":
        return _came_back(job)
    # The attempt was stopped or never started, so it shows nothing about what it would have done to its worker.
    return Streaks(
        job.losses_in_row,
        job.probation,
        job.sigterms_in_row + (cause == "sigterm"),
        job.disconnects_in_row + (cause == "disconnect"),
    )


def _after_failure(job: Claimed, outcome: Outcome, end: Failed, draw: float) -> Transition:
    used = tries_used(job)
    failed = Transition(
        State.DEAD,
        outcome,
        error_code=end.code,
        error_message=end.message,
        fault=end.fault,
        retry_after=end.retry_after,
        trace=end.trace,
        told=end.told,
    )
    if end.permanent or used >= job.max_attempts:
        return failed
    if end.after is not None:
        delay = end.after * (1 + 0.2 * draw)
    else:
        delay = Backoff.from_json(end.backoff or job.backoff).delay(used, draw)
    if end.retry_after is not None:
        delay = max(delay, end.retry_after * (1 + 0.2 * draw))
    return replace(failed, state=State.RETRYABLE, delay=delay, streaks=_came_back(job))


def _after_loss(job: Claimed, end: Lost, draw: float) -> Transition:
    in_row, convictions = job.losses_in_row + 1, job.convictions + int(end.convicted)
    probation = job.probation if in_row > 1 else 2 * PROBATION if job.probation else PROBATION
    worker = end.worker or "its worker"
    code, message = "WORKER_LOST", f"{worker} stopped sending heartbeats during attempt {job.attempt}"
    if end.convicted:
        code, message = (
            "CHILD_DIED",
            end.detail or f"attempt {job.attempt} ended with the death of its quarantine process",
        )
    if job.cancel_requested:
        state, code = State.CANCELLED, "CANCELLED"
    elif end.convicted and convictions >= POISON_CONVICTIONS:
        state, code = State.DEAD, "POISON"
    elif job.on_lost == "dead" or in_row >= MAX_LOSSES:
        state = State.DEAD
    else:
        state = State.RETRYABLE
    # Jitter, so that the jobs of one dead worker don't all start again at the same moment.
    delay = draw * 2.0 ** min(job.losses_in_row, 6) if state is State.RETRYABLE else 0.0
    return Transition(
        state,
        Outcome.LOST,
        delay=delay,
        error_code=code,
        error_message=message,
        lost=1,
        convicted=int(end.convicted),
        streaks=Streaks(in_row, probation, job.sigterms_in_row, job.disconnects_in_row),
    )
