"""Every error that Rowlock raises on purpose.

RowlockError
├── ConfigError                 a setting is wrong; names its value and where it was set
├── InvalidArguments            arguments or options cannot be stored, or do not fit the task
├── TaskNotFound                no task of that name in this app
│   └── HandlerNotFoundError    no @handler class of that name
├── JobNotFound                 no job with that id
├── BatchNotFound               no batch with that id
├── ScheduleNotFound            no schedule of that name
├── WorkerNotFound              no worker with that id
├── NotAllowed                  the state of the job or batch does not permit that
├── KeyConflict                 a transaction that this one cannot see changed a key or batch
├── LeaseLost                   this attempt no longer holds its job
├── JobDead, JobCancelled       raised by `job.wait()`
├── ResultsUnavailable          the object storage of results cannot be reached, or refuses requests
└── StoreError                  the database refused or failed
    ├── StoreUnavailable        the database cannot be reached now; nothing is known to be lost
    ├── TransactionConflict     a serialization failure or a deadlock; the transaction was rolled back
    ├── TooSlow                 a read exceeded its time limit and was ended
    ├── StorageFull             the disk is full; reads still work
    ├── SchemaError             migrations are missing, or newer than this code can use
    │   └── UnreleasedSchema    the database was made by a version of Rowlock before 0.1
    ├── UnsupportedFilesystem   SQLite on a network filesystem
    └── TransactionTooLong      a transaction was open (SQLite) or idle (PostgreSQL) for too long

Handlers raise `Retry`, `Snooze`, `Permanent` and `SourceError` to choose what happens next; these are not failures of
Rowlock.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

LARGEST = 2**31 - 1  # the largest number in an INTEGER column
API = ("api", "the job API needs more packages")


@contextmanager
def needs(extra: str, what: str) -> Iterator[None]:
    """Wraps a block of imports: if a library is missing, raises a ConfigError that names the extra to install."""
    try:
        yield
    except ImportError as error:
        raise ConfigError(f'{what}: pip install "rowlock[{extra}]"') from error


class RowlockError(Exception):
    """Base of every error that Rowlock raises on purpose."""


class ConfigError(RowlockError):
    """A setting is unknown or has a wrong value."""


class InvalidArguments(RowlockError, ValueError):
    """Arguments or options cannot be stored, or do not fit the task. `fields` lists the wrong arguments, each with the
    reason; it is empty if the error is not about individual arguments."""

    fields: tuple[tuple[str, str], ...] = ()


class TaskNotFound(RowlockError, LookupError):
    """No task of that name is registered in this app."""


class HandlerNotFoundError(TaskNotFound):
    """No @handler class of that name is registered."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no handler named {name!r}; import the module that has @handler({name!r})")


class JobNotFound(RowlockError, LookupError):
    """No job with that id."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"no job with id {job_id}")
        self.job_id = job_id


class BatchNotFound(RowlockError, LookupError):
    """No batch with that id."""

    def __init__(self, batch_id: str) -> None:
        super().__init__(f"no batch with id {batch_id}")
        self.batch_id = batch_id


class ScheduleNotFound(RowlockError, LookupError):
    """No schedule of that name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no schedule named {name!r}")
        self.name = name


class WorkerNotFound(RowlockError, LookupError):
    """No worker with that id."""

    def __init__(self, worker_id: str) -> None:
        super().__init__(f"no worker with id {worker_id!r}; workers that have stopped are no longer listed")
        self.worker_id = worker_id


class NotAllowed(RowlockError):
    """The state of the job or batch does not permit that."""


class KeyConflict(RowlockError):
    """Another transaction took the key or id, or changed the batch, and the snapshot of this transaction (REPEATABLE
    READ or SERIALIZABLE) does not show that. Run this transaction again."""


class LeaseLost(RowlockError):
    """This attempt no longer holds its job: another attempt does, or the job is over. `job_id` and `token` name the
    lease."""

    def __init__(self, message: str, job_id: str | None = None, token: str | None = None) -> None:
        super().__init__(message)
        self.job_id, self.token = job_id, token


class JobDead(RowlockError):
    """The job failed for good: its state is `dead`."""

    def __init__(self, job_id: str, code: str | None, message: str | None) -> None:
        super().__init__(f"job {job_id} is dead: {code or 'ERROR'}: {message or 'no message'}")
        self.job_id, self.code, self.message = job_id, code, message


class JobCancelled(RowlockError):
    """The job was cancelled."""

    def __init__(self, job_id: str, code: str | None = None) -> None:
        super().__init__(f"job {job_id} was cancelled" + (f" ({code})" if code else ""))
        self.job_id, self.code = job_id, code


class ResultsUnavailable(RowlockError):
    """The object storage of results cannot be reached, or refuses requests."""


class StoreError(RowlockError):
    """The database refused or failed."""


class StoreUnavailable(StoreError):
    """The database cannot be reached now."""

    may_have_happened = False  # True: the connection broke after the request was sent, so it may have been carried out


class TransactionConflict(StoreError):
    """Another transaction changed or locked rows that this one needs (a serialization failure or a deadlock). This
    transaction was rolled back as a whole. Run it again."""


class TooSlow(StoreError):
    """A read exceeded its time limit and was ended."""


class StorageFull(StoreError):
    """The disk is full: reads work, writes are refused until there is space."""


class SchemaError(StoreError):
    """The database's schema is missing, or older or newer than this code can use."""


class UnreleasedSchema(SchemaError):
    """The database was made by a version of Rowlock before 0.1."""


class UnsupportedFilesystem(StoreError):
    """SQLite's locks do not hold on a network filesystem."""


class TransactionTooLong(StoreError):
    """A transaction was rolled back because it held SQLite's only writer lock for too long, or sat idle on PostgreSQL
    for too long."""


def seconds(value: float | timedelta, what: str) -> float:
    """A duration, given in seconds or as a timedelta, as non-negative finite seconds."""
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise InvalidArguments(f"{what} must be seconds or a timedelta, not {value!r}")
    if not 0 <= number <= 3_200_000_000:
        raise InvalidArguments(f"{what} must be between 0 s and 100 years, not {value!r}")
    return float(number)


def whole(value: object, what: str, least: int, most: int = LARGEST) -> int:
    """A whole number that an INTEGER column can hold, from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        range_ = f"from {least}" if most == LARGEST else f"from {least} to {most:,}"
        raise InvalidArguments(f"{what} must be a whole number {range_}, not {value!r}")
    return value


def at_most(limit: int) -> int:
    """Check `limit=`, the most rows to read. The two engines disagree on what LIMIT 0 and below mean."""
    return whole(limit, "limit", 1)


class Retry(Exception):
    """Raise to fail this attempt and try again after the given time, if tries are left."""

    after: float | None = None  # a class attribute too, for subclasses that do not call `Retry.__init__`
    code: str = "RETRY"

    def __init__(
        self, reason: str = "retry asked for", *, after: float | timedelta | None = None, code: str = "RETRY"
    ) -> None:
        super().__init__(reason)
        self.after = None if after is None else seconds(after, "Retry(after=)")
        self.code = code


class Snooze(Exception):
    """Raise to run this job again after the given time. The attempt doesn't count as a try."""

    def __init__(self, after: float | timedelta, reason: str = "snoozed") -> None:
        super().__init__(reason)
        self.after = seconds(after, "Snooze")


class Permanent(Exception):
    """Raise to make this job dead at once, because trying again is pointless."""

    code: str = "PERMANENT"

    def __init__(self, reason: str, *, code: str = "PERMANENT") -> None:
        super().__init__(reason)
        self.code = code


class SourceError(Exception):
    """Raise when the job's source failed rather than the handler: the attempt fails, and the failure counts against the
    source's circuit breaker. `retry_after` is for how long the source asked not to be called by anyone."""

    code: str = "SOURCE_ERROR"
    retry_after: float | None = None

    def __init__(
        self, reason: str, *, code: str = "SOURCE_ERROR", retry_after: float | timedelta | None = None
    ) -> None:
        super().__init__(reason)
        self.code = code
        self.retry_after = None if retry_after is None else seconds(retry_after, "SourceError(retry_after=)")
