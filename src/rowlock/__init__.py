"""Rowlock: durable background work on the database you already have.

SQLite when you start, PostgreSQL when many machines work, the same behaviour on both. All names but the errors are
imported when they are first used, so that `rowlock --help` doesn't wait for modules that it doesn't need.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rowlock.core.errors import BatchNotFound as BatchNotFound
from rowlock.core.errors import ConfigError as ConfigError
from rowlock.core.errors import HandlerNotFoundError as HandlerNotFoundError
from rowlock.core.errors import InvalidArguments as InvalidArguments
from rowlock.core.errors import JobCancelled as JobCancelled
from rowlock.core.errors import JobDead as JobDead
from rowlock.core.errors import JobNotFound as JobNotFound
from rowlock.core.errors import KeyConflict as KeyConflict
from rowlock.core.errors import LeaseLost as LeaseLost
from rowlock.core.errors import NotAllowed as NotAllowed
from rowlock.core.errors import Permanent as Permanent
from rowlock.core.errors import ResultsUnavailable as ResultsUnavailable
from rowlock.core.errors import Retry as Retry
from rowlock.core.errors import RowlockError as RowlockError
from rowlock.core.errors import ScheduleNotFound as ScheduleNotFound
from rowlock.core.errors import SchemaError as SchemaError
from rowlock.core.errors import Snooze as Snooze
from rowlock.core.errors import SourceError as SourceError
from rowlock.core.errors import StorageFull as StorageFull
from rowlock.core.errors import StoreError as StoreError
from rowlock.core.errors import StoreUnavailable as StoreUnavailable
from rowlock.core.errors import TaskNotFound as TaskNotFound
from rowlock.core.errors import TransactionConflict as TransactionConflict
from rowlock.core.errors import TransactionTooLong as TransactionTooLong
from rowlock.core.errors import WorkerNotFound as WorkerNotFound

if TYPE_CHECKING:
    from rowlock.api.access.sender import Caller as Caller
    from rowlock.app import Rowlock as Rowlock
    from rowlock.client.context import Context as Context
    from rowlock.client.handles.batch import Batch as Batch
    from rowlock.client.handles.job import JobHandle as JobHandle
    from rowlock.client.settings import __version__ as __version__
    from rowlock.client.tasks.registry import BaseHandler as BaseHandler
    from rowlock.client.tasks.registry import get_handler as get_handler
    from rowlock.client.tasks.registry import handler as handler
    from rowlock.client.tasks.task import Task as Task
    from rowlock.core.job import Attempt as Attempt
    from rowlock.core.job import Finished as Finished
    from rowlock.core.policy import Backoff as Backoff
    from rowlock.core.policy import exponential as exponential
    from rowlock.core.policy import fixed as fixed
    from rowlock.core.schedules.schedule import Schedule as Schedule
    from rowlock.core.states import Outcome as Outcome
    from rowlock.core.states import State as State
    from rowlock.core.times import FakeClock as FakeClock
    from rowlock.signals.logs import JobFields as JobFields
    from rowlock.store.batches import EndedBatch as EndedBatch
    from rowlock.store.engine.app_schema import Migrations as Migrations
    from rowlock.store.engine.store import Session as Session
    from rowlock.store.read.counts import FinishedStats as FinishedStats
    from rowlock.store.read.counts import QueueStats as QueueStats
    from rowlock.store.read.counts import Stats as Stats
    from rowlock.worker.lease import Lease as Lease
    from rowlock.worker.pool import WorkerPool as WorkerPool

_MODULES = {
    "core.times": ("FakeClock",),
    "core.job": ("Attempt", "Finished"),
    "core.policy": ("Backoff", "exponential", "fixed"),
    "core.schedules.schedule": ("Schedule",),
    "core.states": ("Outcome", "State"),
    "signals.logs": ("JobFields",),
    "store.engine.app_schema": ("Migrations",),
    "store.batches": ("EndedBatch",),
    "store.engine.store": ("Session",),
    "store.read.counts": ("FinishedStats", "QueueStats", "Stats"),
    "api.access.sender": ("Caller",),
    "app": ("Rowlock",),
    "client.handles.batch": ("Batch",),
    "client.context": ("Context",),
    "client.handles.job": ("JobHandle",),
    "client.tasks.registry": ("BaseHandler", "get_handler", "handler"),
    "worker.lease": ("Lease",),
    "worker.pool": ("WorkerPool",),
    "client.tasks.task": ("Task",),
    "client.settings": ("__version__",),
}
_PLACES = {name: f"rowlock.{module}" for module, names in _MODULES.items() for name in names}

_ERRORS = [name for name, value in globals().items() if getattr(value, "__module__", "") == "rowlock.core.errors"]

__all__ = sorted([*_PLACES, *_ERRORS])


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'rowlock' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_PLACES[name]), name)
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
