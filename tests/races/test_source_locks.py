"""Who waits for whom around a source: claims pass over what is busy, wait for a class, and nobody waits in a circle."""

import asyncio
from typing import Any

import pytest

from rowlock.core.job import Claimed
from rowlock.core.outcome import Failed
from rowlock.store import Store
from rowlock.store.engine.operation import Operation
from rowlock.store.jobs import settle
from rowlock.store.sources.sources import set_policy
from support.each import each
from support.races.interleave import Actor, play
from support.rigs.rig import KEEP, Rig, settlement
from support.rigs.source_claims import all_meetings, claim, finish, seen

pytestmark = pytest.mark.parametrize("engine", ["postgres"])  # SQLite has one writer: nothing meets

SOURCES = ("api:a", "api:b")


async def two_sources(rig: Rig, count: int, *, total: int | None = None, **policy: float) -> None:
    for source in SOURCES:
        await rig.enqueue_many(count, source=source)
        await rig.store.run(set_policy(source, policy))
    await rig.store.run(set_policy("api", {"total": total}))


async def stopped_before(actor: Actor, watcher: Any, statements: int) -> None:
    """Let it run so many statements."""
    for _ in range(statements):
        assert await actor.reach_a_stop(watcher)
        actor.move_on()
    assert await actor.reach_a_stop(watcher)


async def test_a_claimer_that_holds_a_source_leaves_the_other_sources_to_others(
    rig: Rig, other: Store, watcher: Any
) -> None:
    await two_sources(rig, 9, concurrency=2)
    a, b = await seen(rig.store)
    for statements in range(1, 5):  # from its lock to just before its commit
        holder = Actor(rig.store, claim("holder", [a]))
        await stopped_before(holder, watcher, statements)
        async with asyncio.timeout(5):  # less than any lock timeout: nobody waits
            beside = await other.run(claim("beside", [a, b], 4))
        assert {job.source for job in beside.jobs} == {"api:b"}
        assert len(beside.jobs) == 2
        assert {job.source for job in (await finish(holder, watcher)).jobs} == {"api:a"}
        await watcher.execute("DELETE FROM rowlock.jobs_live WHERE state = 'running'")


async def test_a_class_with_a_total_is_waited_for_and_what_is_left_of_it_is_used(
    rig: Rig, other: Store, watcher: Any
) -> None:
    await two_sources(rig, 9, total=3)
    a, b = await seen(rig.store)
    holder = Actor(rig.store, claim("holder", [a], 4))
    await stopped_before(holder, watcher, 1)
    waiting = Actor(other, claim("waiting", [b], 4))
    assert await waiting.reach_a_stop(watcher)
    waiting.move_on()
    assert not await waiting.reach_a_stop(watcher), "it did not wait"
    assert len((await finish(holder, watcher)).jobs) == 2
    assert len((await finish(waiting, watcher)).jobs) == 1


async def test_a_claim_of_a_class_without_a_total_does_not_wait_for_its_row(rig: Rig, watcher: Any) -> None:
    await two_sources(rig, 3, concurrency=2)
    transaction = watcher.transaction()
    await transaction.start()
    await watcher.execute("SELECT 1 FROM rowlock.sources WHERE name = 'api' FOR UPDATE")
    async with asyncio.timeout(5):
        assert len((await rig.store.run(claim("w", await seen(rig.store), 4))).jobs) == 4
    await transaction.rollback()


async def running(rig: Rig, count: int) -> list[Claimed]:
    """So many jobs of each source, under a live lease; the last source's come first."""
    taken = await rig.store.run(claim("before", await seen(rig.store), count * len(SOURCES)))
    assert len(taken.jobs) == count * len(SOURCES)
    return sorted(taken.jobs, key=lambda job: job.source or "", reverse=True)


def failures(held: list[Claimed]) -> Operation[Any]:
    return settle.apply([settlement(job, Failed("HTTP_503", "no", fault="source")) for job in held], KEEP)


def successes(held: list[Claimed]) -> Operation[Any]:
    return settle.succeed([(job.id, job.token, None) for job in held], KEEP, held)


@each("outcome, steps", [(failures, 7), (successes, 3)], ids=["failures", "successes"], afresh=True)
async def test_a_claim_and_the_outcomes_of_its_sources_both_get_through(
    rig: Rig, other: Store, watcher: Any, outcome: Any, steps: int
) -> None:
    await two_sources(rig, 600, total=8, concurrency=3, rate=600.0, burst=1000, threshold=10_000)
    for order in all_meetings(7, steps):
        held = await running(rig, 1)
        rig.clock.move(2)  # so that a success is written to its source
        a = Actor(rig.store, claim("a", await seen(rig.store), 4))
        b = Actor(other, outcome(held))
        _, answer = await play(watcher, order, a, b)  # a circle would be an error of one of them
        assert answer, order
        counted = "SELECT source, count(*) FROM rowlock.jobs_live WHERE state = 'running' GROUP BY source"
        assert all(count <= 3 for _, count in await watcher.fetch(counted)), order
        await watcher.execute("DELETE FROM rowlock.jobs_live WHERE state = 'running'")


@each(
    "kinds",
    [(failures, failures), (failures, successes), (successes, successes)],
    ids=["both failures", "failures and successes", "both successes"],
    afresh=True,
)
async def test_outcomes_of_the_same_sources_in_either_order_do_not_wait_in_a_circle(
    rig: Rig, other: Store, watcher: Any, kinds: tuple[Any, Any]
) -> None:
    """Each source has an epoch of its own, as after a while all have."""
    await two_sources(rig, 600, threshold=10_000)
    await watcher.execute("UPDATE rowlock.sources SET epoch = 7 WHERE name = 'api:b'")
    steps = {failures: 7, successes: 4}
    for order in all_meetings(steps[kinds[0]], steps[kinds[1]]):
        held = await running(rig, 2)
        rig.clock.move(2)
        a = Actor(rig.store, kinds[0]([held[0], held[2]]))
        b = Actor(other, kinds[1]([held[3], held[1]]))
        answers = await play(watcher, order, a, b)
        assert all(answers), order
