"""The measures, in the order in which they run."""

from collections.abc import Callable

from bench.measures import (
    api,
    batches,
    blocked,
    crowd,
    depth,
    drain,
    enqueue,
    idle,
    pickup,
    pinned,
    sources,
    steady,
    waiting,
    wakeups,
)
from bench.runner import Bench

MEASURES: dict[str, Callable[[Bench], None]] = {
    "drain-postgres": drain.postgres,
    "drain-sqlite": drain.sqlite,
    "enqueue-postgres": enqueue.postgres,
    "enqueue-sqlite": enqueue.sqlite,
    "pickup-postgres": pickup.postgres,
    "pickup-sqlite": pickup.sqlite,
    "delayed": pickup.delayed,
    "depth": depth.postgres,
    "pinned": pinned.postgres,
    "steady": steady.postgres,
    "waiting": waiting.postgres,
    "idle": idle.everyone,
    "memory": idle.memory,
    "wakeups": wakeups.postgres,
    "head-postgres": sources.head_postgres,
    "head-sqlite": sources.head_sqlite,
    "sources-postgres": sources.many_postgres,
    "sources-sqlite": sources.many_sqlite,
    "blocked": blocked.both,
    "crowd-postgres": crowd.postgres,
    "crowd-sqlite": crowd.sqlite,
    "batch-postgres": batches.postgres,
    "batch-sqlite": batches.sqlite,
    "api-postgres": api.postgres,
    "api-sqlite": api.sqlite,
}
