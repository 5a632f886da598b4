"""The document's queries by which a worker moves its execution on, for a loop of your own.

The pool needs none of them. A claim returns a lease, and only the holder of the lease can complete, fail or time out
the execution: a loop whose lease has expired (`lease.beat()` renews it) gets LeaseLost and changes nothing.
`lease.run()` takes all of these steps at once; `Executor.execute` uses it."""

from __future__ import annotations

from typing import Any

from rowlock import Lease, Rowlock
from rowlock_apps.cronjobs.app import app as default_app
from rowlock_apps.cronjobs.executions import Execution, get_execution, get_in_state


async def claim_execution(
    execution_id: str, *, worker: str | None = None, lease_seconds: float | None = None, app: Rowlock = default_app
) -> Lease | None:
    """PENDING -> RUNNING, for one caller; None for all others, and while the execution waits for its retry."""
    if await get_in_state("claim_execution", execution_id, app=app) is None:
        return None
    return await app.claim(execution_id, worker=worker, lease_seconds=lease_seconds)


async def complete_execution(lease: Lease, result: Any = None, *, app: Rowlock = default_app) -> Execution:
    """SUCCESS, with its result."""
    await lease.complete(result)
    return await _after("complete_execution", lease, app)


async def fail_execution(lease: Lease, error_message: str, *, app: Rowlock = default_app) -> Execution:
    """One more retry, so PENDING again; FAILED when max_retry is reached."""
    await lease.fail(error_message)
    return await _after("fail_execution", lease, app)


async def timeout_execution(lease: Lease, *, app: Rowlock = default_app) -> Execution:
    """One more retry, so PENDING again; TIMEOUT when max_retry is reached."""
    await lease.time_out()
    return await _after("timeout_execution", lease, app)


async def _after(name: str, lease: Lease, app: Rowlock) -> Execution:
    """The execution after a step. A worker or an operator may have changed it again before this read."""
    return await get_in_state(name, lease.job_id, app=app) or await get_execution(lease.job_id, app=app)
