"""Limits of sources: exact for all workers, derived from the running rows, and rates that no clock refills twice."""

from collections import Counter
from datetime import timedelta

import pytest

from rowlock.core.job import Claimed
from rowlock.core.outcome import AttemptEnd, Cancelled, Failed, Released, Succeeded, TimedOut
from rowlock.core.times import FakeClock
from rowlock.store import Store, queues
from rowlock.store.jobs.claim import Range
from support.each import each
from support.rigs import rig as sourced
from support.rigs.rig import LEASE, TABLES, Rig, token
from support.rigs.sources import claim_turns, cleared, open_breaker, sources, succeed


@pytest.fixture
def database(used_database: str) -> str:
    return used_database


@pytest.fixture
async def rig(store: Store, clock: FakeClock) -> Rig:
    return await cleared(Rig(store, clock))


def by_source(claimed: list[Claimed]) -> dict[str | None, int]:
    return dict(Counter(job.source for job in claimed))


@each("others", ["none", "plain jobs", "another priority"], afresh=True)
async def test_a_queue_that_is_paused_after_the_look_gives_no_job(rig: Rig, others: str) -> None:
    """A worker claims by what its last look has shown, up to a few seconds later."""
    await rig.enqueue_many(3, source="api:a", queue="slow")
    if others == "another priority":
        await rig.enqueue_many(2, source="api:b", queue="slow", priority=1)
    seen = await rig.store.run(sourced.look([("slow", "t")]))
    await rig.store.run(queues.pause("slow"))
    plain = [Range("slow", "t")] if others == "plain jobs" else []
    claim = sourced.claim_from("worker-1", token(), seen, plain, 10, LEASE)
    assert (await rig.store.run(claim)).jobs == []
    await rig.store.run(queues.resume("slow"))
    assert [job.source for job in (await rig.store.run(claim)).jobs][:3] == ["api:a"] * 3


# Concurrency


async def test_the_concurrency_of_a_source_holds_over_several_workers(rig: Rig) -> None:
    await sources(rig).set("api:a", concurrency=2)
    ids = await rig.enqueue_many(5, source="api:a")
    first, second = await claim_turns(rig, 1), await claim_turns(rig, 9, worker="worker-2")
    assert [job.id for job in first + second] == ids[:2]
    assert await claim_turns(rig, 9) == await claim_turns(rig, 9, worker="worker-3") == []
    await succeed(rig, first[0])
    assert [job.id for job in await claim_turns(rig, 9)] == [ids[2]]
    assert (await sources(rig).get("api:a")).running == 2


async def test_a_source_that_nobody_has_set_is_not_limited(rig: Rig) -> None:
    await rig.enqueue_many(20, source="svc:new")
    await rig.enqueue_many(20, source="api:new")
    assert by_source(await claim_turns(rig, 100)) == {"svc:new": 20, "api:new": 20}


async def test_a_classs_limit_is_each_sources_unless_it_has_its_own(rig: Rig) -> None:
    await sources(rig).set("domain", concurrency=2)
    await sources(rig).set("domain:fast", concurrency=4)
    for name in ("domain:fast", "domain:x", "domain:y", "api:z"):
        await rig.enqueue_many(6, source=name)
    assert by_source(await claim_turns(rig, 100)) == {"domain:fast": 4, "domain:x": 2, "domain:y": 2, "api:z": 6}
    await sources(rig).set("domain:fast", concurrency=None)
    assert await claim_turns(rig, 100) == []


async def test_a_classs_total_holds_on_top_of_each_sources_limit(rig: Rig) -> None:
    await sources(rig).set("api", concurrency=2, total=3)
    for name in ("api:a", "api:b", "api:c", "domain:d"):
        await rig.enqueue_many(4, source=name)
    claimed = await claim_turns(rig, 100)
    running = by_source(claimed)
    assert running.pop("domain:d") == 4
    assert sum(running.values()) == 3
    assert max(running.values()) <= 2
    ended = next(job for job in claimed if job.source != "domain:d")
    await succeed(rig, ended)
    assert len(await claim_turns(rig, 100)) == 1
    assert (await sources(rig).get("api")).running == 3


@each("limit", ["concurrency", "total"], afresh=True)
async def test_a_lowered_limit_admits_none_until_below_it(rig: Rig, limit: str) -> None:
    await sources(rig).set("api", **{limit: 4})
    await rig.enqueue_many(9, source="api:a")
    running = await claim_turns(rig, 9)
    assert len(running) == 4
    await sources(rig).set("api", **{limit: 2})
    for left in (3, 2):
        await succeed(rig, running.pop())
        assert len(running) == left
        assert await claim_turns(rig, 9) == []
    await succeed(rig, running.pop())
    assert len(await claim_turns(rig, 9)) == 1
    await sources(rig).set("api", **{limit: 3})
    assert len(await claim_turns(rig, 9)) == 1
    await sources(rig).set("api", **{limit: 0})
    assert await claim_turns(rig, 9) == []


@each(
    "end",
    [Succeeded(), Failed("E", "bug"), Failed("E", "no", permanent=True), TimedOut(3), Released(0), Cancelled()],
    afresh=True,
)
async def test_every_end_of_an_attempt_frees_its_slot_once(rig: Rig, end: AttemptEnd) -> None:
    await sources(rig).set("api:a", concurrency=2)
    await rig.enqueue_many(9, source="api:a")
    ended, _ = await claim_turns(rig, 9)
    assert await rig.settle(ended, end) == "applied"
    assert await rig.settle(ended, end) == "duplicate"
    assert len(await claim_turns(rig, 9)) == 1


async def test_a_lost_job_frees_its_slot_when_it_is_reclaimed_and_its_zombie_frees_none(rig: Rig) -> None:
    await sources(rig).set("api:a", concurrency=1)
    await rig.enqueue_many(3, source="api:a")
    (zombie,) = await claim_turns(rig, 9)
    rig.clock.move(LEASE + 1)
    assert await claim_turns(rig, 9) == [], "a lease that ran out counts until somebody has ended it"
    assert len(await rig.reclaim()) == 1
    (heir,) = await claim_turns(rig, 9)
    assert await rig.settle(zombie, Succeeded()) == "lost"
    assert await rig.settle(zombie, Failed("E", "no", fault="source")) == "lost"
    assert await claim_turns(rig, 9) == []
    assert (await sources(rig).get("api:a")).failure_streak == 0
    await succeed(rig, heir)
    assert len(await claim_turns(rig, 9)) == 1


async def test_a_job_takes_a_slot_again_when_it_is_tried_again(rig: Rig) -> None:
    await sources(rig).set("api:a", concurrency=1)
    await rig.enqueue(source="api:a")
    (job,) = await claim_turns(rig, 9)
    await rig.settle(job, Failed("E", "bug", after=10))
    await rig.enqueue(source="api:a")
    (other,) = await claim_turns(rig, 9)
    rig.clock.move(13)
    assert (await rig.promote())[0] == 1
    assert await claim_turns(rig, 9) == []
    await succeed(rig, other)
    (again,) = await claim_turns(rig, 9, worker="worker-2", lease=30)
    assert (again.id, again.attempt, again.worker) == (job.id, 2, "worker-2")
    row = await rig.row(job.id)
    assert (row["state"], row["attempt"], row["lease_token"], row["locked_by"]) == (
        "running",
        2,
        again.token,
        "worker-2",
    )
    assert (row["locked_at"], row["lease_expires_at"]) == (rig.clock.now(), rig.clock.now() + timedelta(seconds=30))


# Rate


async def test_a_burst_and_then_what_the_rate_brings_for_all_workers_together(rig: Rig) -> None:
    await sources(rig).set("api:a", rate="60/min", burst=3)
    await rig.enqueue_many(30, source="api:a")
    assert len(await claim_turns(rig, 2)) + len(await claim_turns(rig, 9, worker="worker-2")) == 3
    taken = []
    for seconds in (0, 0.5, 0, 0.5, 0, 1.5, 0, 0.5, 0):
        rig.clock.move(seconds)
        taken.append(len(await claim_turns(rig, 9, worker="worker-3")))
    assert taken == [0, 0, 0, 1, 0, 1, 0, 1, 0], "one for each second, no interval twice, and nothing lost"
    rig.clock.move(3600)
    assert len(await claim_turns(rig, 9)) == 3, "no more than the burst, however long it was quiet"


async def test_a_clock_that_goes_back_brings_no_token(rig: Rig) -> None:
    await sources(rig).set("api:a", rate="60/min", burst=5)
    await rig.enqueue_many(30, source="api:a")
    assert len(await claim_turns(rig, 4)) == 4
    taken = []
    for seconds in (-30, 10, 20, 1, 1):
        rig.clock.move(seconds)
        taken.append(len(await claim_turns(rig, 9)))
    assert taken == [1, 0, 0, 1, 1]


async def test_a_rate_holds_whatever_becomes_of_the_attempts(rig: Rig) -> None:
    await sources(rig).set("api", rate="60/min", burst=2)
    await rig.enqueue_many(9, source="api:a")
    released, lost = await claim_turns(rig, 9)
    await rig.settle(released, Released(0))
    assert await claim_turns(rig, 9) == [], "a token that was taken is not given back"
    await rig.lose(lost)
    assert len(await claim_turns(rig, 9)) == 2
    await rig.enqueue_many(9, source="api:b")
    assert len(await claim_turns(rig, 9)) == 2, "each source of the class has its own bucket"


async def test_the_stricter_of_rate_and_concurrency_holds(rig: Rig) -> None:
    await sources(rig).set("api:a", rate="60/min", burst=5, concurrency=2)
    await rig.enqueue_many(30, source="api:a")
    first = await claim_turns(rig, 9)
    assert len(first) == 2
    await succeed(rig, *first)
    assert len(await claim_turns(rig, 9)) == 2
    assert await claim_turns(rig, 9) == []
    await sources(rig).set("api:a", concurrency=None)
    assert len(await claim_turns(rig, 9)) == 1, "five of the burst, and no more"


# Closed


@each("why", ["saturated", "class", "rate", "paused", "disabled", "breaker", "probe"], afresh=True)
async def test_a_job_of_a_closed_source_is_left_as_it_is_and_blocks_no_other_job(rig: Rig, why: str) -> None:
    limits = {"saturated": {"concurrency": 1}, "class": {"total": 1}, "rate": {"rate": "1/min", "burst": 1}}
    await sources(rig).set("api", **limits.get(why, {}))
    if why in limits:
        await rig.enqueue(source="api:a")
        assert len(await claim_turns(rig)) == 1
    elif why in ("breaker", "probe"):
        await open_breaker(rig, "api:a")
    if why == "probe":
        rig.clock.move(timedelta(minutes=5))
        await rig.enqueue(source="api:a")
        assert len(await claim_turns(rig)) == 1
    if why in ("paused", "disabled"):
        await sources(rig).pause("api:a", 60 if why == "paused" else None)
    closed = await rig.enqueue_many(40, source="api:a", priority=-5)
    before = await rig.everything((*TABLES, "sources"))
    assert await claim_turns(rig, 9) == []
    assert await rig.everything((*TABLES, "sources")) == before
    free = [await rig.enqueue(source="domain:b"), await rig.enqueue()]
    assert {job.id for job in await claim_turns(rig, 9)} == set(free)
    rows = await rig.rows()
    assert {(rows[job_id]["state"], rows[job_id]["attempt"]) for job_id in closed} == {("queued", 0)}
