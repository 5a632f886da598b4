"""Two claimers meet on one limit, statement by statement. Neither an old look nor an old count lets in one too many."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from rowlock.core.claiming.actions import ClaimResult
from rowlock.core.claiming.ranges import Sighting
from rowlock.store import Store
from rowlock.store.engine.operation import Operation
from rowlock.store.sources.sources import set_policy
from support.each import each
from support.races.interleave import GATE, Actor, closed_gate, orders, play, rewrite
from support.rigs.rig import Rig
from support.rigs.source_claims import LIMITS, LOCKS, Limit, claim, count_first, meetings, prepare, seen, started

pytestmark = pytest.mark.parametrize("engine", ["postgres"])  # SQLite has one writer: nothing meets

BEFORE_THE_GATE = f"pg_advisory_xact_lock_shared({GATE})::text = ''"
LOCKED = {name: limit for name, limit in LIMITS.items() if not limit.new}  # a new source's row is held by its insert
Mutant = Callable[[Operation[ClaimResult], Sequence[Sighting]], Operation[ClaimResult]]


@contextmanager
def rewritten(store: Any, *changes: tuple[str, str, str]) -> Iterator[None]:
    """For the block, this store has statements that are changed: name, pattern, what stands there instead."""
    queries = store._queries
    for change in changes:
        rewrite(store, *change)
    yield
    store._queries = queries


async def the_limit_holds(
    rig: Rig, other: Store, watcher: Any, limit: Limit, plays: Iterable[str], mutant: Mutant = lambda op, heads: op
) -> None:
    """In each order, with looks that both came before, no more start than may; and some do."""
    heads = [await seen(rig.store, task) for task in limit.tasks]
    for order in plays:
        a = Actor(rig.store, mutant(claim("a", heads[0]), heads[0]))
        b = Actor(other, mutant(claim("b", heads[1]), heads[1]))
        answers = await play(watcher, order, a, b)
        running = await started(watcher, limit)
        assert running == sum(len(answer.jobs) for answer in answers), order
        assert running <= limit.most, f"{order}: {running} exceed {limit.most}"
        assert running, f"{order}: nobody got anything"


async def test_two_claimers_of_one_source_in_every_order_keep_to_its_concurrency(
    rig: Rig, other: Store, watcher: Any
) -> None:
    limit = LIMITS["concurrency"]
    await prepare(rig, limit, watcher)
    await the_limit_holds(rig, other, watcher, limit, orders(limit.steps, 3))  # whoever comes second has only three


@each("name", LIMITS, afresh=True)
async def test_two_claimers_that_meet_at_every_statement_keep_to_a_limit(
    rig: Rig, other: Store, watcher: Any, name: str
) -> None:
    limit = LIMITS[name]
    await prepare(rig, limit, watcher)
    await the_limit_holds(rig, other, watcher, limit, meetings(limit.steps, limit.steps))


@each("name", LOCKED, afresh=True)
async def test_a_claim_that_does_not_lock_is_caught(rig: Rig, other: Store, watcher: Any, name: str) -> None:
    limit = LIMITS[name]
    await prepare(rig, limit, watcher)
    unlocked = (limit.lock, LOCKS[limit.lock], "")
    with rewritten(rig.store, unlocked), rewritten(other, unlocked):
        with pytest.raises(AssertionError, match="exceed"):
            await the_limit_holds(rig, other, watcher, limit, meetings(limit.steps, limit.steps))


@each("name", LIMITS, afresh=True)
async def test_a_claim_that_counts_before_it_locks_is_caught(rig: Rig, other: Store, watcher: Any, name: str) -> None:
    limit = LIMITS[name]
    await prepare(rig, limit, watcher)
    with pytest.raises(AssertionError, match="exceed"):
        await the_limit_holds(rig, other, watcher, limit, meetings(limit.steps, limit.steps), count_first)


async def late_and_first(rig: Rig, other: Store, watcher: Any, limit: Limit) -> ClaimResult:
    """What `late` gets, which stands between its snapshot and its lock while another claims all and commits."""
    heads = [await seen(rig.store, task) for task in limit.tasks]
    async with closed_gate(watcher) as somebody_waits:
        late = asyncio.create_task(other.run(claim("late", heads[1])))
        await somebody_waits()
        first = await rig.store.run(claim("first", heads[0]))
        assert len(first.jobs) == limit.most
    return await late


@each("name", LOCKED, afresh=True)
async def test_a_claimer_held_between_its_snapshot_and_its_lock_keeps_to_a_limit(
    rig: Rig, other: Store, watcher: Any, name: str
) -> None:
    limit = LOCKED[name]
    await prepare(rig, limit, watcher, 10)
    with rewritten(other, (limit.lock, "WHERE name", f"WHERE {BEFORE_THE_GATE} AND name")):
        assert (await late_and_first(rig, other, watcher, limit)).jobs == []
    assert await started(watcher, limit) == limit.most


@each("name", LOCKED, afresh=True)
async def test_a_claim_that_locks_and_counts_in_one_statement_is_caught(
    rig: Rig, other: Store, watcher: Any, name: str
) -> None:
    limit = LOCKED[name]
    await prepare(rig, limit, watcher, 10)
    guarded = f"SELECT name FROM rowlock.sources WHERE {BEFORE_THE_GATE} AND name LIKE 'api%' ORDER BY name FOR UPDATE"
    with rewritten(
        other,
        (limit.lock, LOCKS[limit.lock], ""),
        ("gates", r"\A", f"WITH locked AS MATERIALIZED ({guarded})\n"),
        ("gates", r"AS named\(source\)", "AS named(source) CROSS JOIN (SELECT count(*) FROM locked) first"),
    ):
        assert (await late_and_first(rig, other, watcher, limit)).jobs
    assert await started(watcher, limit) > limit.most


@each("before", [{}, {"concurrency": 9}], ids=["from none", "beside another"])
@each("name", ["concurrency", "total", "rate"], afresh=True)
async def test_a_limit_that_is_set_between_a_look_and_a_claim_holds(
    rig: Rig, other: Store, watcher: Any, name: str, before: dict[str, int]
) -> None:
    limit = LIMITS[name]
    await prepare(rig, limit._replace(policy={"api": before, "api:t": {}, "api:u": {}}), watcher)
    heads = [await seen(rig.store, task) for task in limit.tasks]
    for changed, changes in limit.policy.items():
        await rig.store.run(set_policy(changed, changes))
    for order in meetings(limit.steps, limit.steps):
        a, b = Actor(rig.store, claim("a", heads[0])), Actor(other, claim("b", heads[1]))
        await play(watcher, order, a, b)
        running = await started(watcher, limit)
        assert running <= limit.most, f"{order}: {running} exceed {limit.most}"
