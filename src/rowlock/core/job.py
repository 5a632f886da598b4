"""Jobs as records: an enqueue inserts a `NewJob`, a claim returns a `Claimed`, a read returns a `Job`."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple

from typing_extensions import TypedDict

from rowlock.core.option_checks import MAX_PRIORITY as MAX_PRIORITY
from rowlock.core.option_checks import MIN_PRIORITY as MIN_PRIORITY
from rowlock.core.options import JobOptions, parameters
from rowlock.core.policy import Transition
from rowlock.core.states import FINAL, State

# Set for each attempt, with the app whose worker runs it. Asyncio tasks and threads that a handler starts inherit it.
running: ContextVar[tuple[object, Claimed] | None] = ContextVar("rowlock_running", default=None)
MAX_ARGS_BYTES = 256 * 1024
MAX_RESULT_BYTES = 64 * 1024


def running_job(app: object = None) -> Claimed | None:
    """The job that is running in this context, or None; with `app`, only if that app runs it."""
    found = running.get()
    return found[1] if found is not None and (app is None or found[0] is app) else None


@dataclass(frozen=True)
class NewJob(JobOptions):
    """What all jobs of one enqueue have in common: task and options. Their ids, arguments and keys are in
    `store.jobs.enqueue.NewRow`."""

    task: str

    @cached_property  # a task has one NewJob for all of its jobs
    def parameters(self) -> dict[str, Any]:
        """The task and the options by column, for the statements that insert jobs."""
        return {"task": self.task, **parameters(self)}


class Claimed(NamedTuple):
    """A job under a live lease: what the worker needs to run and settle it. A tuple, because claims are the hot path;
    the order is that of the part `claimed` in store/jobs/claim.sql."""

    id: str
    task: str
    queue: str = "default"
    priority: int = 0
    args: str = "{}"
    owner: str | None = None
    source: str | None = None
    source_epoch: int | None = None  # of the source's breaker, when this attempt was claimed
    batch_id: str | None = None
    unique_mode: str | None = None
    attempt: int = 1
    max_attempts: int = 5
    releases: int = 0
    losses: int = 0
    convictions: int = 0
    losses_in_row: int = 0  # these four: see core.policy.Streaks
    probation: int = 0
    sigterms_in_row: int = 0
    disconnects_in_row: int = 0
    backoff: str | None = None
    timeout_seconds: float | None = None
    on_success: str | None = None
    on_dead: str | None = None
    on_lost: str | None = None
    cancel_requested: bool = False
    traceparent: str | None = None  # of the span that created it
    waited: float = 0.0  # seconds between the time it could start and its claim
    token: str = ""
    worker: str = ""


class Settlement(NamedTuple):
    """A leased job and the transition that ends its attempt."""

    job: Claimed
    transition: Transition


class Finished(TypedDict):
    """The job that has ended: the only argument, `finished`, of a follow-up task (`on_success`, `on_dead`)."""

    job_id: str
    task: str
    owner: str | None
    state: str
    attempt: int
    args: dict[str, Any]
    result: Any
    error_code: str | None
    error_message: str | None


@dataclass(frozen=True, slots=True)
class Job:
    """A job, as reads return it."""

    id: str
    task: str
    queue: str
    state: State
    priority: int
    args: Any
    owner: str | None
    source: str | None
    tags: tuple[str, ...]
    batch_id: str | None
    schedule_id: str | None
    tick: datetime | None
    attempt: int
    max_attempts: int
    releases: int
    losses: int
    backoff: Any
    timeout_seconds: float | None
    run_after: datetime
    expires_at: datetime | None
    lease_token: str | None
    locked_by: str | None
    locked_at: datetime | None
    heartbeat_at: datetime | None
    lease_expires_at: datetime | None
    settled_token: str | None
    cancel_requested_at: datetime | None
    progress: int | None
    phase: str | None
    message: str | None
    result: Any
    result_uri: str | None
    result_checksum: str | None
    error_code: str | None
    error_message: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    updated_at: datetime
    # Columns whose values cannot be converted, such as a time after the year 9999. They are shown as stored; a time is
    # shown as the nearest one that Python can represent.
    unreadable: tuple[str, ...] = ()

    @property
    def final(self) -> bool:
        """Whether the job has ended for good, unless an operator retries it."""
        return self.state in FINAL


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt that did not succeed."""

    job_id: str
    attempt: int
    outcome: str
    worker: str | None
    started_at: datetime | None
    finished_at: datetime
    error_code: str | None
    error_message: str | None
    traceback: str | None = None
