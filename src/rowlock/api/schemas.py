"""The JSON objects of the API, made from jobs and events: field names, status words, cursors of pages."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Self
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from rowlock.api.live.events import Event
from rowlock.api.problems import Refusal
from rowlock.core.job import Attempt, Job
from rowlock.core.states import FINAL, State
from rowlock.store.engine.ids import valid_id

NO_NUL = r"^[^\x00]*$"  # PostgreSQL can neither store nor compare text with a NUL character


class Status(StrEnum):
    """A job's state in the words of the API: a job that waits for its next try is QUEUED, a dead one FAILED."""

    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


STATUS = {
    State.QUEUED: Status.QUEUED,
    State.RETRYABLE: Status.QUEUED,
    State.RUNNING: Status.RUNNING,
    State.SUCCEEDED: Status.SUCCEEDED,
    State.DEAD: Status.FAILED,
    State.CANCELLED: Status.CANCELLED,
}

END_TYPES = {State.SUCCEEDED: "job.completed", State.DEAD: "job.failed", State.CANCELLED: "job.cancelled"}


class Shape(BaseModel):
    """Base class: field names are camelCase in JSON."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", from_attributes=True)

    @classmethod
    def of(cls, record: object, zone: ZoneInfo) -> Self:
        """A record of the library as the API shows it, with times in this zone. A field whose attribute has another
        name there names it as its `validation_alias`."""
        return cls.model_validate(record, context=zone)


def _sendable(value: Any) -> Any:
    """A result that can be sent as UTF-8: JSON may contain a lone surrogate, UTF-8 cannot."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.loads(json.dumps(value, ensure_ascii=False).encode(errors="replace"))
    return value


Moment = Annotated[datetime, AfterValidator(lambda moment, info: moment.astimezone(info.context))]
StatusOf = Annotated[Status, BeforeValidator(STATUS.__getitem__), Field(validation_alias="state")]


class JobShape(Shape):
    """One job."""

    job_id: str = Field(validation_alias="id", examples=["01a1e816-66e9-7021-9c64-716195c1e13d"])
    job_type: str = Field(validation_alias="task", examples=["export"], description="The name of its task")
    status: StatusOf
    done: bool = Field(
        validation_alias="final", description="Whether the job has ended: it changes no more unless it is retried"
    )
    progress: Annotated[int, BeforeValidator(lambda percent: percent or 0)] = Field(ge=0, le=100, description="Percent")
    phase: str | None = None
    message: str | None = None
    result: Annotated[Any, BeforeValidator(_sendable)] = Field(
        default=None, description="What the task returned, if it was small enough to store as JSON"
    )
    result_uri: str | None = Field(default=None, description="The file that it made, below the results folder")
    checksum: str | None = Field(default=None, validation_alias="result_checksum", examples=["sha256:9f86d0…"])
    error_code: str | None = None
    error_message: str | None = None
    attempt: int
    created_at: Moment
    started_at: Moment | None = None
    ended_at: Moment | None = Field(default=None, validation_alias="finished_at")


class JobPage(Shape):
    """One page of jobs, newest first."""

    items: list[JobShape]
    page: int | None = Field(default=None, description="The number of this page, from 0; null with a cursor")
    size: int
    has_more: bool
    next_cursor: str | None = Field(default=None, description="Send it as `cursor` for the next page")


class NewJobShape(Shape):
    """A job to create."""

    job_type: str = Field(min_length=1, max_length=200, examples=["export"])
    args: dict[str, Any] = Field(default_factory=dict, examples=[{"size": 3}])
    watch: bool = Field(default=False, description="Also return a token that can read only this job, valid for an hour")
    webhook: str | None = Field(
        default=None,
        min_length=1,
        max_length=2000,
        examples=["https://shop.example/hooks/jobs"],
        description="Where to POST a signed message when the job has ended (Standard Webhooks)",
    )


class CreatedShape(Shape):
    """A job that was created, or that an earlier request with the same Idempotency-Key created."""

    job_id: str
    watch_token: str | None = None


class CancelShape(Shape):
    """The result of a cancel: `CANCELLED`, or `CANCELLING` while a worker stops the job."""

    job_id: str
    status: str = Field(examples=["CANCELLED"])


class AttemptShape(Shape):
    """One attempt that did not succeed."""  # without the name of the worker's machine

    attempt: int
    outcome: str = Field(examples=["failed"])
    started_at: Moment | None
    ended_at: Moment = Field(validation_alias="finished_at")
    error_code: str | None
    error_message: str | None


class DeliveryShape(Shape):
    """The delivery of a job's webhook, for one end of the job."""

    delivery_id: str = Field(description="The id of the delivery's own job, sent as the header `webhook-id`")
    status: Status
    done: bool
    attempt: int
    next_attempt_at: datetime | None = Field(default=None, description="When a waiting delivery is tried next")
    created_at: datetime
    ended_at: datetime | None = None
    error_code: str | None = Field(default=None, examples=["HTTP_500"])
    error_message: str | None = None
    attempts: list[AttemptShape] = Field(description="The attempts that failed, in order")


class ExplainShape(Shape):
    """Why a job is not running."""

    job_id: str
    status: StatusOf
    reason: str = Field(examples=["time"])
    text: str
    also: list[str]
    waits_until: Moment | None


def delivery_shape(job: Job, attempts: Sequence[Attempt], zone: ZoneInfo) -> DeliveryShape:
    """The delivery of a webhook as the API shows it: without its address, which may have a secret in its query."""
    return DeliveryShape(
        delivery_id=job.id,
        status=STATUS[job.state],
        done=job.final,
        attempt=job.attempt,
        next_attempt_at=None if job.final or job.state is State.RUNNING else job.run_after.astimezone(zone),
        created_at=job.created_at.astimezone(zone),
        ended_at=job.finished_at and job.finished_at.astimezone(zone),
        error_code=job.error_code,
        error_message=job.error_message,
        attempts=[AttemptShape.of(attempt, zone) for attempt in attempts],
    )


def event_data(event: Event, zone: ZoneInfo) -> dict[str, Any]:
    return _message(event, event.type, event.job_id, event.at, zone)


def end_data(job: Job, zone: ZoneInfo) -> dict[str, Any]:
    """The last event of a job that has ended, rebuilt from the job itself."""
    return _message(job, END_TYPES[job.state], job.id, job.finished_at or job.updated_at, zone)


def _message(about: Event | Job, kind: str, job_id: str, at: datetime, zone: ZoneInfo) -> dict[str, Any]:
    return {
        "type": kind,
        "jobId": job_id,
        "jobType": about.task,
        "status": STATUS[about.state],
        "done": about.state in FINAL,
        "attempt": about.attempt,
        "progress": about.progress or 0,  # a success is stored with 100
        "phase": about.phase,
        "message": about.message,
        "resultUri": about.result_uri,
        "checksum": about.result_checksum,
        "errorCode": about.error_code,
        "errorMessage": about.error_message,
        "at": at.astimezone(zone).isoformat(),
    }


def cursor_of(job_id: str) -> str:
    """The cursor of the page that ended with this job, as opaque text."""
    return base64.urlsafe_b64encode(f"job:{job_id}".encode()).decode().rstrip("=")


def read_cursor(text: str) -> str:
    """The id of the job with which the page of this cursor ended."""
    with suppress(ValueError):
        plain = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
        if plain.startswith("job:") and (job_id := valid_id(plain.removeprefix("job:"))) is not None:
            return job_id
    raise Refusal("INVALID_CURSOR", "give nextCursor of an earlier answer, or none for the first page")
