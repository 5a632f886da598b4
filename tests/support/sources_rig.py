"""Jobs with a source on a store under test: short words for policy, claims in turns, and how attempts end."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from rowlock.core.config import WorkerSettings
from rowlock.core.job import MIN_PRIORITY, Claimed, NewJob
from rowlock.core.outcome import Failed
from rowlock.core.source import Fault
from rowlock.governance.sources import Sources
from rowlock.store import Store, jobs, turns
from rowlock.store.adding import NewRow
from rowlock.store.jobs import Lane, Marks
from rowlock.work.turns import Turns
from support.rig import KEEP, LEASE, Rig, token
from support.stores import empty

EVERY_PRIORITY = MIN_PRIORITY - 1


def sources(rig: Rig) -> Sources:
    """What operators use."""

    async def store() -> Store:
        return rig.store

    return Sources(store)


async def cleared(rig: Rig) -> Rig:
    """The same with no row but the classes that a new database has: cheaper than a new one."""
    await empty(rig)
    for table in ("batch_counts", "batches", "sources"):
        await rig.fetch(f"DELETE FROM {{t}}{table}")
    await rig.fetch("INSERT INTO {t}sources (name) VALUES ('domain'), ('api')")
    return rig


async def enqueue_each(rig: Rig, names: Sequence[str], task: str = "t", **options: Any) -> None:
    """One job of each of these sources, at once."""
    rows = [NewRow(rig.new_id(), "{}", None, name) for name in names]
    await rig.store.run(jobs.enqueue_rows(rows, NewJob(task=task, **options)))


async def take_turns(
    rig: Rig,
    n: int = 1,
    cursor: str = "",
    *,
    tasks: Sequence[str] = ("t",),
    queues: Sequence[str] = ("default",),
    worker: str = "worker-1",
    lease: float = LEASE,
    look: int = 32,
) -> turns.Taken:
    """One look and one claim of all that it showed, open or not: the claim must know by itself."""
    lanes = [(queue, task) for queue in queues for task in tasks]
    heads = await rig.store.run(turns.look(lanes, cursor, look, EVERY_PRIORITY))
    if not heads:
        return turns.Taken([], False, None)
    return await rig.store.run(turns.take(worker, token(), heads, [Lane(*lane) for lane in lanes], n, lease))


async def claim_turns(rig: Rig, n: int = 1, cursor: str = "", **how: Any) -> list[Claimed]:
    """Claim until there are `n`, or no more; the round goes on where the last claim ended."""
    claimed: list[Claimed] = []
    while len(claimed) < n:
        taken = await take_turns(rig, n - len(claimed), cursor, **how)
        if not taken.jobs:
            break
        claimed += taken.jobs
        cursor = taken.last_source or ""
    return claimed


class Worker:
    """The sources as a worker goes round them."""

    def __init__(self, rig: Rig, tasks: Sequence[str] = ("t",), name: str = "worker-1") -> None:
        self._turns = Turns(rig.store, WorkerSettings(), name, tasks)
        self.looks = 0

    async def claim(self, n: int = 1, most_looks: int = 60) -> list[Claimed]:
        """Look on until something is claimed, or there is nothing to look for."""

        claimed: list[Claimed] = []

        async def run(_: str, claim: Callable[[], Awaitable[turns.Taken]]) -> turns.Taken:
            taken = await claim()
            claimed.extend(taken.jobs)
            return taken

        for self.looks in range(1, most_looks + 1):
            more = await self._turns.claim(n, run)
            if claimed or not more:
                return claimed
        raise AssertionError(f"{self.looks} looks, and no end")


async def fail(
    rig: Rig,
    *claimed: Claimed,
    fault: Fault | None = "source",
    code: str = "HTTP_503",
    retry_after: float | None = None,
    permanent: bool = False,
) -> None:
    """These attempts fail, one after the other, by the source's fault unless told otherwise."""
    for job in claimed:
        end = Failed(code, "no", fault=fault, retry_after=retry_after, permanent=permanent)
        assert await rig.settle(job, end) == "applied"


async def succeed(rig: Rig, *claimed: Claimed) -> None:
    """These attempts succeed, all at once, by the way that a worker's successes go."""
    marks = Marks(sources=[(job.source, job.source_epoch or 0) for job in claimed if job.source is not None])
    done = [(job.id, job.token, None) for job in claimed]
    assert await rig.store.run(jobs.succeed_marked(done, KEEP, marks))


async def open_breaker(rig: Rig, source: str, failures: int = 5) -> None:
    """Let jobs of a source fail until it is left alone."""
    await rig.enqueue_many(failures, source=source, priority=-100, max_attempts=1)
    claimed = await claim_turns(rig, failures)
    assert [job.source for job in claimed] == [source] * failures
    await fail(rig, *claimed)
