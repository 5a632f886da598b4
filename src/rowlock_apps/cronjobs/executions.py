"""Executions in the document's words: waiting, running and ended ones, and the history of each.

Workers claim and settle executions by themselves, under a lease. Here are the questions about them, and the one thing
that an operator does to them, `reset_to_pending`. `by_hand.py` has the queries for a loop of your own."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from rowlock import InvalidArguments, JobNotFound, NotAllowed, Rowlock
from rowlock_apps.cronjobs.app import app as default_app
from rowlock_apps.cronjobs.sql import moment, query

OLDEST = "00000000-0000-0000-0000-000000000000"
MOST = 100_000  # executions in one answer


class Status(StrEnum):
    """The status of an execution, in the words of the document."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"

    @property
    def final(self) -> bool:
        """Nothing more happens to it by itself."""
        return self not in (Status.PENDING, Status.RUNNING)


@dataclass(frozen=True, slots=True)
class Execution:
    """A row of `job_executions`, with the values of its cron job when it was made."""

    id: str
    job_id: str
    scheduled_time: datetime
    status: Status
    started_at: datetime | None
    finished_at: datetime | None
    retry_count: int
    error_message: str | None
    result: Any
    created_at: datetime
    handler_name: str
    handler_params: dict[str, Any]
    max_retry: int
    timeout_seconds: float | None
    worker: str | None


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened to an execution, named by the document's query for it."""

    query: str
    status: Status
    retry_count: int
    at: datetime
    error_message: str | None = None


async def get_pending_executions(limit: int = 10, *, app: Rowlock = default_app) -> list[Execution]:
    """Waiting executions, at most `limit`, the earliest ticks first. This only reads; it claims nothing."""
    return await _read(app, "get_pending_executions", _whole(limit))


async def get_executions(
    *,
    job_id: str | None = None,
    status: Status | str | None = None,
    newer_than: str | None = None,
    limit: int = 100,
    app: Rowlock = default_app,
) -> list[Execution]:
    """The newest executions that fit, newest first; `newer_than` is the id of another one."""
    return await _read(app, "get_executions", _name(job_id), _status(status), _id(newer_than), _whole(limit))


async def get_execution(execution_id: str, *, app: Rowlock = default_app) -> Execution:
    """One execution; JobNotFound when there is none."""
    job = await app.job(execution_id)  # raises a clear error for an invalid id
    found = await _read(app, "get_execution", job.id)
    if not found:
        raise JobNotFound(execution_id)
    return found[0]


async def get_in_state(name: str, execution_id: str, *, app: Rowlock = default_app) -> Execution | None:
    """One execution, if its status is one that the document's query `name` wants; JobNotFound when there is none."""
    there = await get_execution(execution_id, app=app)
    found = await _read(app, name, there.id)
    return found[0] if found else None


async def reset_to_pending(execution_id: str, *, app: Rowlock = default_app) -> Execution:
    """Send a FAILED or TIMEOUT execution back for one more try; its history stays."""
    if await get_in_state("reset_to_pending", execution_id, app=app) is None:
        there = await get_execution(execution_id, app=app)
        raise NotAllowed(f"execution {execution_id} is {there.status}; only FAILED and TIMEOUT ones can be sent back")
    await app.retry(execution_id)
    return await get_execution(execution_id, app=app)


async def history(execution_id: str, *, app: Rowlock = default_app) -> list[Step]:
    now = await get_execution(execution_id, app=app)
    story = _Story()
    for attempt in await app.attempts(now.id):
        began = attempt.started_at or attempt.finished_at
        story.attempt(attempt.outcome, began, attempt.finished_at, attempt.error_message)
    story.present(now)
    return story.steps


class _Story:
    """Turns attempts, of which each has a claim and an outcome, into steps."""

    ENDS = {"failed": Status.FAILED, "timed_out": Status.TIMEOUT, "cancelled": Status.FAILED}
    QUERIES = {"failed": "fail_execution", "timed_out": "timeout_execution", "cancelled": "fail_execution"}

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._retries = 0

    def attempt(self, outcome: str, began: datetime, ended: datetime, error_message: str | None) -> None:
        """Add an attempt that did not succeed."""
        self._claimed(began)
        if outcome in self.ENDS:
            self._add(self.QUERIES[outcome], self.ENDS[outcome], ended, error_message)
            return
        # Given back at a shutdown, or its worker died: PENDING again, and no retry used up.
        self._add("reset_to_pending", Status.PENDING, ended, error_message)

    def present(self, now: Execution) -> None:
        """The present state, which the rows of the attempts do not show."""
        began, ended = now.started_at or now.created_at, now.finished_at or now.created_at
        if now.status is Status.PENDING:
            self._pending_again()
        elif now.status is Status.RUNNING:
            self._claimed(began)
        elif now.status is Status.SUCCESS:
            self._claimed(began)
            self._add("complete_execution", Status.SUCCESS, ended)
        elif not self.steps or not self.steps[-1].status.final or now.retry_count > self._retries:
            # Cancelled while it waited, perhaps for a retry; or lost too often.
            self._pending_again()
            self._add("fail_execution", now.status, ended, now.error_message)

    def _claimed(self, at: datetime) -> None:
        self._pending_again()
        self._add("claim_execution", Status.RUNNING, at)

    def _pending_again(self) -> None:
        """The step after a failure with tries left: the retry was decided when the failure was written."""
        if self.steps and self.steps[-1].status.final:
            self._retries += 1
            self._add("reset_to_pending", Status.PENDING, self.steps[-1].at)

    def _add(self, name: str, status: Status, at: datetime, error_message: str | None = None) -> None:
        self.steps.append(Step(name, status, self._retries, at, error_message))


async def _read(app: Rowlock, name: str, *args: Any) -> list[Execution]:
    return [_execution(*row) for row in await app.fetch(query(name), *args)]


def _execution(*row: Any) -> Execution:
    values = dict(zip(Execution.__slots__, row, strict=True))
    for name in ("scheduled_time", "started_at", "finished_at", "created_at"):
        values[name] = None if values[name] is None else moment(values[name])
    values["status"] = Status(values["status"])
    values["handler_params"] = json.loads(values["handler_params"])
    values["result"] = None if values["result"] is None else json.loads(values["result"])
    return Execution(**values)


def _status(given: Status | str | None) -> str | None:
    if given is None:
        return None
    try:
        return str(Status(given))
    except ValueError:
        raise InvalidArguments(f"status must be one of {', '.join(Status)}, not {given!r}") from None


def _name(job_id: str | None) -> str | None:
    if job_id is not None and (not isinstance(job_id, str) or re.search(r"[\x00\ud800-\udfff]", job_id)):
        raise InvalidArguments(f"job_id must be the name of a cron job, not {job_id!r:.100}")
    return job_id


def _id(newer_than: str | None) -> str:
    if newer_than is None:
        return OLDEST
    try:
        return str(UUID(newer_than))
    except (AttributeError, TypeError, ValueError):
        raise InvalidArguments(f"newer_than must be the id of an execution, not {newer_than!r:.100}") from None


def _whole(limit: int) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST:
        raise InvalidArguments(f"limit must be a whole number from 1 to {MOST}, not {limit!r}")
    return limit
