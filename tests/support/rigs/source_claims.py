"""Claims of jobs with a source, as two sessions of one PostgreSQL make them: limits, looks, orders, and a mutant."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from rowlock.core.claiming.actions import ClaimResult
from rowlock.core.claiming.ranges import Sighting
from rowlock.store import Store
from rowlock.store.engine.operation import Call, Operation, Steps
from rowlock.store.sources.sources import set_policy
from support.races.interleave import Actor
from support.rigs.rig import Rig, claim_from, look, token

MOST = 2


class Limit(NamedTuple):
    """A limit of `most` starts, the statement that locks what guards it, and the steps of a claim that fills it."""

    policy: dict[str, dict[str, float]]
    lock: str
    steps: int
    most: int = MOST
    tasks: tuple[str, str] = ("t", "t")  # that the two claimers serve; the jobs of each have a source, api:t or api:u
    new: bool = False  # the source has no row yet


LIMITS = {
    "concurrency": Limit({"api:t": {"concurrency": MOST}}, "lock_sources", 5),
    "concurrency of a new source": Limit({"api": {"concurrency": MOST}}, "lock_sources", 6, new=True),
    "total": Limit({"api": {"total": MOST}, "api:t": {}, "api:u": {}}, "lock_classes", 6, tasks=("t", "u")),
    "rate": Limit({"api:t": {"rate": 60.0, "burst": MOST}}, "lock_sources", 6),
    "probe": Limit({"api:t": {"cooldown": 5.0}}, "lock_sources", 6, most=1),
}
LOCKS = {"lock_sources": "FOR UPDATE SKIP LOCKED", "lock_classes": "FOR UPDATE"}


async def prepare(rig: Rig, limit: Limit, watcher: Any, count: int = 1500) -> None:
    """Jobs of the limit's sources, and its policy."""
    for task in sorted(set(limit.tasks)):
        await rig.enqueue_many(count, task=task, source=f"api:{task}")
    for name, changes in limit.policy.items():
        await rig.store.run(set_policy(name, changes))
    if limit is LIMITS["probe"]:  # half open: its pause is over
        await watcher.execute("UPDATE rowlock.sources SET opened_at = $1 WHERE name = 'api:t'", rig.clock.now())


async def seen(store: Store, task: str = "t") -> list[Sighting]:
    """What a look finds."""
    return await store.run(look([("default", task)]))


def claim(worker: str, heads: Sequence[Sighting], n: int = 9) -> Operation[ClaimResult]:
    """A claim of up to `n` jobs of these sources; by default more than may start."""
    return claim_from(worker, token(), heads, [], n, 60)


async def started(watcher: Any, limit: Limit) -> int:
    """How many run; then none does, and the source is as it was."""
    await watcher.execute("UPDATE rowlock.sources SET tokens = NULL, tokens_at = NULL")
    if limit.new:
        await watcher.execute("DELETE FROM rowlock.sources WHERE name LIKE '%:%'")
    return len(await watcher.fetch("DELETE FROM rowlock.jobs_live WHERE state = 'running' RETURNING id"))


def meetings(first: int, second: int) -> Iterator[str]:
    """A stops after each of its steps while B goes on to each of its own; then A goes on to its end, and B to its."""
    for i in range(1, first):
        for j in range(1, second + 1):
            yield "A" * i + "B" * j + "A" * (first - i) + "B" * (second - j)


def all_meetings(first: int, second: int) -> Iterator[str]:
    """The same, and the other way round."""
    yield from meetings(first, second)
    yield from (order.translate(str.maketrans("AB", "BA")) for order in meetings(second, first))


def count_first(op: Operation[ClaimResult], heads: Sequence[Sighting]) -> Operation[ClaimResult]:
    """The mutant that counts before it locks."""

    def steps() -> Steps[ClaimResult]:
        counted = yield Call("gates", named=[(head.source,) for head in heads])
        inner = op.start()
        try:
            step = next(inner)
            while True:
                step = inner.send(counted if isinstance(step, Call) and step.name == "gates" else (yield step))
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]

    return replace(op, start=steps)


async def finish(actor: Actor, watcher: Any) -> Any:
    """Let it run to its end."""
    while await actor.reach_a_stop(watcher) and not actor.task.done():
        actor.move_on()
    return await actor.task
