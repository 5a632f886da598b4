"""Rowlock: durable background work on the database you already have.

SQLite when you start, PostgreSQL when many machines work, the same behaviour on both.
"""

from rowlock.core.clock import FakeClock
from rowlock.core.errors import (
    ConfigError,
    HandlerNotFoundError,
    InvalidArguments,
    JobCancelled,
    JobDead,
    JobNotFound,
    LeaseLost,
    NotAllowed,
    Permanent,
    Retry,
    RowlockError,
    SchemaError,
    Snooze,
    StorageFull,
    StoreError,
    StoreUnavailable,
    TaskNotFound,
    TransactionTooLong,
)
from rowlock.core.job import Finished
from rowlock.core.policy import Backoff, exponential, fixed
from rowlock.core.states import Outcome, State
from rowlock.work.app import Rowlock
from rowlock.work.context import Context
from rowlock.work.handle import JobHandle
from rowlock.work.handlers import BaseHandler, get_handler, handler
from rowlock.work.pool import WorkerPool
from rowlock.work.tasks import Task

__all__ = [
    "Backoff",
    "BaseHandler",
    "ConfigError",
    "Context",
    "FakeClock",
    "Finished",
    "HandlerNotFoundError",
    "InvalidArguments",
    "JobCancelled",
    "JobDead",
    "JobHandle",
    "JobNotFound",
    "LeaseLost",
    "NotAllowed",
    "Outcome",
    "Permanent",
    "Retry",
    "Rowlock",
    "RowlockError",
    "SchemaError",
    "Snooze",
    "State",
    "StorageFull",
    "StoreError",
    "StoreUnavailable",
    "Task",
    "TaskNotFound",
    "TransactionTooLong",
    "WorkerPool",
    "exponential",
    "fixed",
    "get_handler",
    "handler",
]
