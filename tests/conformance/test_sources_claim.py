"""The claim of jobs with a source: all or nothing, by its own moment, by what holds then and not at its look."""

import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from rowlock.core.claiming.actions import ClaimResult
from rowlock.core.claiming.ranges import Sighting
from rowlock.core.times import FakeClock
from rowlock.store import Store, open_store
from rowlock.store.engine.operation import Operation
from rowlock.store.engine.store import StoreOptions
from rowlock.store.jobs.claim import Range
from support.each import each
from support.races.interleave import Actor, play, watching
from support.rigs import rig as sourced
from support.rigs.rig import LEASE, Rig, moment, token
from support.rigs.sources import claim_turns, cleared, open_breaker, sources, succeed

LANE = ("default", "t")
postgres_only = pytest.mark.parametrize("engine", ["postgres"], indirect=True)


@pytest.fixture
def database(used_database: str) -> str:
    return used_database


@pytest.fixture
async def rig(store: Store, clock: FakeClock) -> Rig:
    return await cleared(Rig(store, clock))


async def look(rig: Rig) -> list[Sighting]:
    return await rig.store.run(sourced.look([LANE]))


def take(heads: list[Sighting], n: int = 9) -> Operation[ClaimResult]:
    return sourced.claim_from("worker-1", token(), heads, [Range(*LANE)], n, LEASE)


async def test_a_claim_that_is_rolled_back_has_taken_nothing(rig: Rig) -> None:
    await sources(rig).set("api:a", rate="60/min", burst=2, concurrency=2)
    await rig.enqueue_many(3, source="api:a")
    heads = await look(rig)

    class Undone(Exception):
        pass

    with pytest.raises(Undone):
        async with rig.store.transaction() as tx:
            assert (await tx.run(take(heads))).jobs
            raise Undone
    assert len(await claim_turns(rig, 9)) == 2


async def test_a_claim_for_several_sources_takes_of_each_no_more_than_its_own_limit(rig: Rig) -> None:
    await sources(rig).set("api:a", concurrency=1)
    await sources(rig).set("api:b", concurrency=5)
    for source in ("api:a", "api:b"):
        await rig.enqueue_many(5, source=source)
    taking = sourced.claim_from("worker-1", token(), await look(rig), [], 9, LEASE)
    claimed = (await rig.store.run(taking)).jobs
    assert sum(job.source == "api:a" for job in claimed) == 1


async def test_tokens_and_claims_go_by_the_clock_at_the_write_not_at_the_transactions_start(database: str) -> None:
    store = await open_store(database)
    try:
        rig = await cleared(Rig(store, FakeClock()))  # its store goes by the database's own clock
        await sources(rig).set("api:a", rate="60/min", burst=2)
        await rig.enqueue_many(2, source="api:a")
        heads = await look(rig)
        async with store.transaction() as tx:
            await tx.fetch("SELECT 1")
            began = time.time()
            assert (await tx.run(take(heads))).jobs
        rows = await rig.fetch("SELECT tokens_at FROM {t}sources WHERE name = 'api:a'")
        rows += await rig.fetch("SELECT locked_at FROM {t}jobs_live WHERE state = 'running'")
        for (written,) in rows:
            at = moment(written)
            assert at is not None
            assert at.timestamp() >= began - 0.001
    finally:
        await store.close()


CHANGES: dict[str, tuple[Callable[[Rig], Awaitable[object]], int]] = {
    "a limit": (lambda rig: sources(rig).set("api:a", concurrency=1), 1),
    "a limit of its class": (lambda rig: sources(rig).set("api", concurrency=1), 1),
    "a total": (lambda rig: sources(rig).set("api", total=1), 1),
    "a rate": (lambda rig: sources(rig).set("api:a", rate="60/min", burst=1), 1),
    "a pause": (lambda rig: sources(rig).pause("api:a", 60), 0),
    "a pause of its class": (lambda rig: sources(rig).pause("api"), 0),
    "a breaker": (lambda rig: open_breaker(rig, "api:a"), 0),
}


@each("limited", [False, True], ids=["free before", "limited before"])
@each("name", CHANGES, afresh=True)
async def test_a_limit_changed_between_look_and_claim_holds_for_the_claim(rig: Rig, name: str, limited: bool) -> None:
    change, most = CHANGES[name]
    if limited:
        await sources(rig).set("api", concurrency=7, rate="1/s", burst=9)
    await rig.enqueue_many(9, source="api:a")
    heads = await look(rig)
    await change(rig)
    assert len((await rig.store.run(take(heads))).jobs) <= most
    if most:
        assert len(await claim_turns(rig, 9)) <= most
        assert (await sources(rig).get("api:a")).running == most, "and the next look finds what is free"


async def test_a_look_from_before_a_breaker_closed_takes_no_second_probe(rig: Rig) -> None:
    await open_breaker(rig, "api:a")
    await rig.enqueue_many(9, source="api:a")
    rig.clock.move(timedelta(minutes=5))
    heads = await look(rig)
    (probe,) = (await rig.store.run(take(heads))).jobs
    assert (await rig.store.run(take(heads))).jobs == []
    await succeed(rig, probe)
    assert len((await rig.store.run(take(heads))).jobs) > 1


@postgres_only
@each("order", ["A" * 9 + "B" * 9, "AB" * 9, "AAAABBBB" * 3, "AAAAABBBBB" * 2], afresh=True)
async def test_a_total_that_is_set_between_looks_and_claims_holds_for_two_at_once(
    rig: Rig, database: str, clock: FakeClock, order: str
) -> None:
    other = await open_store(database, StoreOptions(clock=clock))
    try:
        await sources(rig).set("api", concurrency=5)
        await rig.enqueue_many(3, source="api:a")
        await rig.enqueue_many(3, source="api:b")
        first, second = await look(rig)
        await sources(rig).set("api", total=1)
        async with watching(database) as watcher:
            await play(watcher, order, Actor(rig.store, take([first])), Actor(other, take([second])))
        assert (await sources(rig).get("api")).running <= 1
    finally:
        await other.close()
