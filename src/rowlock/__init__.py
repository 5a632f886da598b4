"""Rowlock: durable background work on the database you already have.

SQLite when you start, PostgreSQL when many machines work, the same behaviour on both. The names are imported when they
are first used, so that `rowlock --help` does not wait for what it does not need.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rowlock.api.asker import Caller
    from rowlock.app import Rowlock
    from rowlock.client.batch import Batch
    from rowlock.client.context import Context
    from rowlock.client.handle import JobHandle
    from rowlock.client.handlers import BaseHandler, get_handler, handler
    from rowlock.client.tasks import Task
    from rowlock.client.version import __version__
    from rowlock.contrib.answer_cache import AnswerCache
    from rowlock.contrib.web_addresses import link_key, price_key
    from rowlock.core.clock import FakeClock
    from rowlock.core.errors import (
        BatchNotFound,
        ConfigError,
        HandlerNotFoundError,
        InvalidArguments,
        JobCancelled,
        JobDead,
        JobNotFound,
        KeyConflict,
        LeaseLost,
        NotAllowed,
        Permanent,
        ResultsUnavailable,
        Retry,
        RowlockError,
        ScheduleNotFound,
        SchemaError,
        Snooze,
        SourceError,
        StorageFull,
        StoreError,
        StoreUnavailable,
        TaskNotFound,
        TransactionTooLong,
        WorkerNotFound,
    )
    from rowlock.core.job import Attempt, Finished
    from rowlock.core.links import canonical_url, host_of
    from rowlock.core.policy import Backoff, exponential, fixed
    from rowlock.core.schedule import Schedule
    from rowlock.core.states import Outcome, State
    from rowlock.signals.job_fields import JobFields
    from rowlock.store.app_schema import Migrations
    from rowlock.store.batches import EndedBatch
    from rowlock.store.engines.engine import Session
    from rowlock.store.engines.filesystem import network_filesystem
    from rowlock.store.reads import FinishedStats, QueueStats, Stats
    from rowlock.worker.lease import Lease
    from rowlock.worker.pool import WorkerPool
    from rowlock.worker.public_web import (
        AddressRefused,
        WebTarget,
        is_public_address,
        public_address,
        public_socket,
        system_resolve,
        web_target,
    )

_MODULES = {
    "core.clock": ("FakeClock",),
    "worker.public_web": (
        "AddressRefused",
        "WebTarget",
        "is_public_address",
        "public_address",
        "public_socket",
        "system_resolve",
        "web_target",
    ),
    "contrib.web_addresses": ("link_key", "price_key"),
    "core.links": ("canonical_url", "host_of"),
    "core.errors": (
        "BatchNotFound",
        "ConfigError",
        "HandlerNotFoundError",
        "InvalidArguments",
        "JobCancelled",
        "JobDead",
        "JobNotFound",
        "KeyConflict",
        "LeaseLost",
        "NotAllowed",
        "Permanent",
        "ResultsUnavailable",
        "Retry",
        "RowlockError",
        "ScheduleNotFound",
        "SchemaError",
        "Snooze",
        "SourceError",
        "StorageFull",
        "StoreError",
        "StoreUnavailable",
        "TaskNotFound",
        "TransactionTooLong",
        "WorkerNotFound",
    ),
    "core.job": ("Attempt", "Finished"),
    "core.policy": ("Backoff", "exponential", "fixed"),
    "core.schedule": ("Schedule",),
    "core.states": ("Outcome", "State"),
    "contrib.answer_cache": ("AnswerCache",),
    "signals.job_fields": ("JobFields",),
    "store.app_schema": ("Migrations",),
    "store.batches": ("EndedBatch",),
    "store.engines.engine": ("Session",),
    "store.engines.filesystem": ("network_filesystem",),
    "store.reads": ("FinishedStats", "QueueStats", "Stats"),
    "api.asker": ("Caller",),
    "app": ("Rowlock",),
    "client.batch": ("Batch",),
    "client.context": ("Context",),
    "client.handle": ("JobHandle",),
    "client.handlers": ("BaseHandler", "get_handler", "handler"),
    "worker.lease": ("Lease",),
    "worker.pool": ("WorkerPool",),
    "client.tasks": ("Task",),
    "client.version": ("__version__",),
}
_PLACES = {name: f"rowlock.{module}" for module, names in _MODULES.items() for name in names}

__all__ = [
    "AddressRefused",
    "AnswerCache",
    "Attempt",
    "Backoff",
    "BaseHandler",
    "Batch",
    "BatchNotFound",
    "Caller",
    "ConfigError",
    "Context",
    "EndedBatch",
    "FakeClock",
    "Finished",
    "FinishedStats",
    "HandlerNotFoundError",
    "InvalidArguments",
    "JobCancelled",
    "JobDead",
    "JobFields",
    "JobHandle",
    "JobNotFound",
    "KeyConflict",
    "Lease",
    "LeaseLost",
    "Migrations",
    "NotAllowed",
    "Outcome",
    "Permanent",
    "QueueStats",
    "ResultsUnavailable",
    "Retry",
    "Rowlock",
    "RowlockError",
    "Schedule",
    "ScheduleNotFound",
    "SchemaError",
    "Session",
    "Snooze",
    "SourceError",
    "State",
    "Stats",
    "StorageFull",
    "StoreError",
    "StoreUnavailable",
    "Task",
    "TaskNotFound",
    "TransactionTooLong",
    "WorkerNotFound",
    "WebTarget",
    "WorkerPool",
    "__version__",
    "canonical_url",
    "exponential",
    "fixed",
    "get_handler",
    "handler",
    "host_of",
    "is_public_address",
    "link_key",
    "network_filesystem",
    "price_key",
    "public_address",
    "public_socket",
    "system_resolve",
    "web_target",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'rowlock' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_PLACES[name]), name)
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
