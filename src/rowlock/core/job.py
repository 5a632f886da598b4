"""A job as plain records: what is enqueued, what a claim returns, what a reader sees."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from typing_extensions import TypedDict

from rowlock.core.policy import Transition
from rowlock.core.states import FINAL, State

MIN_PRIORITY, MAX_PRIORITY = -100, 100
MAX_ARGS_BYTES = 256 * 1024
MAX_RESULT_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class NewJob:
    """Everything about a job that is not its id or arguments: many jobs of one bulk share it."""

    task: str
    queue: str = "default"
    priority: int = 0
    owner: str | None = None
    source: str | None = None
    tags: tuple[str, ...] = ()
    max_attempts: int = 5
    backoff: str | None = None
    timeout_seconds: float | None = None
    delay: float = 0.0
    run_after: datetime | None = None
    expires_at: datetime | None = None
    on_success: str | None = None
    on_dead: str | None = None
    on_lost: str | None = None
    keep_seconds: float | None = None
    batch_id: str | None = None
    unique: str | None = None  # how its key holds: until_done, while_queued, forever or window
    window: float | None = None  # for how long, of the last


class Claimed(NamedTuple):
    """A job under a live lease: what the worker needs to run and settle it. A tuple, because it is the hot path."""

    id: str
    task: str
    queue: str
    priority: int
    args: str
    owner: str | None
    source: str | None
    source_epoch: int | None  # of the source's breaker, when this attempt was claimed
    batch_id: str | None
    unique_mode: str | None
    attempt: int
    max_attempts: int
    releases: int
    losses: int
    convictions: int
    backoff: str | None
    timeout_seconds: float | None
    on_success: str | None
    on_dead: str | None
    on_lost: str | None
    cancel_requested: bool
    token: str
    worker: str


class Settlement(NamedTuple):
    """A transition for one leased job, with the follow-up jobs that must be written with it."""

    id: str
    token: str
    transition: Transition
    follow_ups: tuple[tuple[str, str, NewJob], ...] = ()  # (id, args, options)


class Finished(TypedDict):
    """What a follow-up task (`on_success`, `on_dead`) gets as its one argument `finished`."""

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
    """One row, as a reader sees it."""

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
    # Columns that hold what cannot be read, such as a time after the year 9999. They are shown as they are stored, but
    # times as the nearest one that there is.
    unreadable: tuple[str, ...] = ()

    @property
    def final(self) -> bool:
        """Whether nothing more will happen to it, unless an operator retries it."""
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
