"""Jobs with a source on a store under test: short words for policy, claims in turns, and how attempts end."""

from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

from rowlock.client.handles.sources import Sources
from rowlock.core.claiming.actions import ClaimSourced, Look
from rowlock.core.claiming.plan import Plan
from rowlock.core.claiming.ranges import PLAIN
from rowlock.core.config import WorkerSettings
from rowlock.core.job import Claimed, NewJob
from rowlock.core.outcome import Failed, Succeeded
from rowlock.core.sources.admission import Fault
from rowlock.store.jobs import enqueue, settle
from rowlock.store.jobs.claim import Range
from rowlock.store.jobs.enqueue import NewRow
from rowlock.store.sources import claim as sourced_claim
from support.rigs.rig import KEEP, LEASE, TABLES, Rig, settlement, token
from support.rigs.rig import look as look_at


def sources(rig: Rig) -> Sources:
    """What operators use."""
    app: Any = SimpleNamespace(perform=rig.store.run)
    return Sources(app)


async def cleared(rig: Rig) -> Rig:
    """The same with no row but the classes that a new database has: cheaper than a new one."""
    for table in (*TABLES, "batch_counts", "batches", "sources"):
        await rig.fetch(f"DELETE FROM {{t}}{table}")
    await rig.fetch("INSERT INTO {t}sources (name) VALUES ('domain'), ('api')")
    return rig


async def enqueue_each(rig: Rig, names: Sequence[str], task: str = "t", **options: Any) -> None:
    """One job of each of these sources, at once."""
    rows = [NewRow(rig.new_id(), "{}", None, name) for name in names]
    await rig.store.run(enqueue.enqueue_rows(rows, NewJob(task=task, **options)))


class Taken(NamedTuple):
    """What one claim brought, and the source that had the last turn."""

    jobs: list[Claimed]
    last_source: str | None


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
) -> Taken:
    """One look and one claim of all that it showed, open or not: the claim must know by itself. Turns go by name,
    after `cursor`."""
    lanes = [(queue, task) for queue in queues for task in tasks]
    heads = await rig.store.run(look_at(lanes, look))
    if not heads:
        return Taken([], None)
    heads.sort(key=lambda one: (one.position.priority, one.source <= cursor, one.source))
    order = sorted({PLAIN, *(head.source for head in heads)}, key=lambda source: (source <= cursor, source))
    plain = [Range(*lane) for lane in lanes]
    taken = await rig.store.run(sourced_claim.claim_sourced(worker, token(), heads, order, plain, n, lease))
    return Taken(taken.jobs, _last_of(taken.jobs, order))


def _last_of(claimed: Sequence[Claimed], order: Sequence[str]) -> str | None:
    """The source that had the last turn."""
    worst = max((job.priority for job in claimed), default=0)
    counts = Counter(job.source or PLAIN for job in claimed if job.priority == worst)
    most = max(counts.values(), default=0)
    return next((source for source in reversed(order) if most and counts[source] == most), None)


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
    """The sources as a worker's plan goes through them. Its clock stands still unless it is moved."""

    def __init__(self, rig: Rig, tasks: Sequence[str] = ("t",), name: str = "worker-1") -> None:
        parallel = rig.store.writers > 1
        self.plan = Plan(WorkerSettings(), tasks, [], parallel, lambda: 0.0)
        self._rig, self._name = rig, name
        self.now, self.looks, self.asked_plain = 0.0, 0, 0

    async def claim(self, n: int = 1, most_looks: int = 60, after: float = 10.0) -> list[Claimed]:
        """After so many seconds and a wake-up, look on until something is claimed, or there is nothing to look for."""
        self.now += after
        self.plan.sources.woken(self.now)
        self.looks = 0
        while self.looks < most_looks:
            action = self.plan._next_sourced(n, self.now)
            if isinstance(action, Look):
                self.looks += 1
                heads = await self._rig.store.run(sourced_claim.look(action.ranges))
                self.plan.sources.saw(action.ranges, heads, action.began, self.now)
            elif isinstance(action, ClaimSourced):
                if claimed := await self._take(action):
                    return claimed
            else:
                return []
        raise AssertionError(f"{self.looks} looks, and no end")

    async def _take(self, action: ClaimSourced) -> list[Claimed]:
        self.asked_plain += bool(action.plain)
        taken = [
            await self._rig.store.run(
                sourced_claim.claim_sourced(self._name, token(), heads, action.order, action.plain, slots, LEASE)
            )
            for heads, slots in action.parts
        ]
        self.plan.claimed_sourced(action, taken, self.now)
        return [job for one in taken for job in one.jobs]


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
    answers = await settle.settle(rig.store, [settlement(job, Succeeded()) for job in claimed], KEEP)
    assert set(answers.values()) <= {"applied"}


async def open_breaker(rig: Rig, source: str, failures: int = 5) -> None:
    """Let jobs of a source fail until it is left alone."""
    await rig.enqueue_many(failures, source=source, priority=-100, max_attempts=1)
    claimed = await claim_turns(rig, failures)
    assert [job.source for job in claimed] == [source] * failures
    await fail(rig, *claimed)
