"""Whose turn it is among jobs with and without a source: priority strictly first, then round, then the oldest."""

from collections import Counter
from datetime import timedelta

import pytest

from rowlock.core.claiming import survey
from rowlock.core.claiming.plan import NO_PLAIN_SECONDS
from rowlock.core.claiming.ranges import Position
from rowlock.core.times import FakeClock
from rowlock.store import Store, queues
from support.each import each
from support.rigs.rig import Rig, look
from support.rigs.sources import Worker, claim_turns, cleared, enqueue_each, sources, succeed, take_turns


@pytest.fixture
def database(used_database: str) -> str:
    return used_database


@pytest.fixture
async def rig(store: Store, clock: FakeClock) -> Rig:
    return await cleared(Rig(store, clock))


async def one_by_one(rig: Rig, count: int, cursor: str = "") -> list[str | None]:
    """The sources of `count` claims for one slot each."""
    order = []
    for _ in range(count):
        taken = await take_turns(rig, 1, cursor)
        order += [job.source for job in taken.jobs]
        cursor = taken.last_source or ""
    return order


async def block(rig: Rig, count: int, priority: int) -> list[str]:
    """Sources that let nobody in, with jobs that would come first."""
    await sources(rig).set("domain", concurrency=0)
    names = [f"domain:{n:04}" for n in range(count)]
    await enqueue_each(rig, names, priority=priority)
    return names


# Order


@each("n", [1, 2, 5, 50], afresh=True)
async def test_jobs_of_a_better_priority_are_claimed_first_with_or_without_a_source(rig: Rig, n: int) -> None:
    await rig.enqueue_many(4, source="api:a", priority=5)
    await rig.enqueue_many(4, priority=0)
    await rig.enqueue_many(4, source="api:b", priority=-5)
    await rig.enqueue_many(4, source="api:a", priority=-5)
    order: list[int] = []
    cursor = ""
    while (taken := await take_turns(rig, n, cursor)).jobs:
        order += [job.priority for job in taken.jobs]
        cursor = taken.last_source or ""
    assert order == [-5] * 8 + [0] * 4 + [5] * 4


async def test_within_a_priority_each_source_has_one_turn_and_the_jobs_without_one_have_one_together(rig: Rig) -> None:
    for source in ("api:c", None, "api:a", "domain:b"):
        await rig.enqueue_many(4, source=source)
    order = await one_by_one(rig, 12)
    assert {tuple(sorted(map(str, order[at : at + 4]))) for at in (0, 4, 8)} == {("None", "api:a", "api:c", "domain:b")}
    assert order[:4] == order[4:8] == order[8:], "in the same order each time round"


async def test_jobs_without_a_source_have_one_turn_whatever_their_task_or_queue(rig: Rig) -> None:
    for task in ("t", "u", "v"):
        await rig.enqueue_many(8, task=task)
    await rig.enqueue_many(8, source="api:a", task="u")
    turns_of = []
    cursor = ""
    for _ in range(8):
        taken = await take_turns(rig, 1, cursor, tasks=("t", "u", "v"))
        cursor = taken.last_source or ""
        turns_of += [job.source for job in taken.jobs]
    assert Counter(turns_of) == {"api:a": 4, None: 4}


@each("n", [4, 8, 12], afresh=True)
async def test_one_claim_for_many_slots_deals_as_many_claims_for_one(rig: Rig, n: int) -> None:
    for source in ("api:c", None, "api:a", "domain:b"):
        await rig.enqueue_many(20, source=source)
    claimed = await claim_turns(rig, n)
    assert set(Counter(job.source for job in claimed).values()) == {n // 4}


async def test_a_thousand_jobs_of_one_source_do_not_delay_the_ten_of_another(rig: Rig) -> None:
    await rig.enqueue_many(1000, source="domain:big")
    await rig.enqueue_many(10, source="domain:small")
    claimed = await claim_turns(rig, 20)
    assert Counter(job.source for job in claimed) == {"domain:big": 10, "domain:small": 10}
    await rig.enqueue_many(10, source="domain:small")
    assert Counter(await one_by_one(rig, 20)) == {"domain:big": 10, "domain:small": 10}


@each("n", [1, 3, 8], afresh=True)
async def test_within_a_source_the_oldest_comes_first(rig: Rig, n: int) -> None:
    ids = await rig.enqueue_many(8, source="api:a")
    claimed = []
    while len(claimed) < 8:
        claimed += [job.id for job in (await take_turns(rig, n)).jobs]
    assert claimed == ids


@each("n", [1, 4], afresh=True)
async def test_within_a_source_the_oldest_comes_first_whatever_its_task(rig: Rig, n: int) -> None:
    ids = [*await rig.enqueue_many(5, task="u", source="api:a"), *await rig.enqueue_many(5, task="t", source="api:a")]
    claimed = []
    for _ in range(4):
        before = len(claimed)
        claimed += [job.id for job in (await take_turns(rig, n, tasks=("t", "u"))).jobs]
        assert sorted(claimed) == ids[: len(claimed)], "an older one was passed over"
        assert len(claimed) > before or len(claimed) == len(ids)


async def test_a_hundred_sources_have_each_had_a_turn_before_one_has_two(rig: Rig) -> None:
    names = [f"domain:{n:03}" for n in range(100)]
    await enqueue_each(rig, names * 2)
    worker = Worker(rig)
    for _ in range(2):
        assert sorted([(await worker.claim(1))[0].source or "" for _ in names]) == names


@each("others", [1, 40], ids=["a look sees all", "a look sees some"], afresh=True)
async def test_sources_left_over_from_a_look_never_come_before_a_better_priority(rig: Rig, others: int) -> None:
    urgent = [f"api:{n:03}" for n in range(10)]
    await enqueue_each(rig, urgent * 2, priority=-5)
    await enqueue_each(rig, [f"api:z{n:03}" for n in range(others)])
    worker = Worker(rig)
    assert [(await worker.claim(1))[0].priority for _ in range(21)] == [-5] * 20 + [0]


@each("n", [1, 2, 3], afresh=True)
async def test_a_source_whose_urgent_jobs_are_done_waits_for_the_urgent_ones_of_others(rig: Rig, n: int) -> None:
    await rig.enqueue(source="api:a", priority=-10)
    await rig.enqueue_many(20, source="api:b", priority=-10)
    await rig.enqueue_many(20, source="api:c", priority=-5)
    await rig.enqueue_many(20, source="api:a")
    await rig.enqueue_many(20)
    worker, order = Worker(rig), list[int]()
    while len(order) < 61:
        order += sorted(job.priority for job in await worker.claim(n))
    assert order == [-10] * 21 + [-5] * 20 + [0] * (len(order) - 41)


async def test_urgent_jobs_that_cannot_be_taken_do_not_hold_up_the_others(rig: Rig) -> None:
    await rig.enqueue(source="api:a", priority=-10, expires_at=rig.clock.now() + timedelta(seconds=1))
    await rig.enqueue(source="api:b", priority=-5)
    await rig.enqueue()
    rig.clock.move(2)  # no sweep has ended it yet
    worker = Worker(rig)
    assert [job.priority for _ in range(2) for job in await worker.claim(1)] == [-5, 0]


async def test_a_job_without_a_source_waits_for_urgent_sources_that_a_look_did_not_reach(rig: Rig) -> None:
    await sources(rig).set("domain", concurrency=0)
    await enqueue_each(rig, [f"domain:{n:04}" for n in range(survey.WHOLE_LOOK)], priority=-10)
    await enqueue_each(rig, [f"zeta:{n:03}" for n in range(8)], priority=-10)
    await rig.enqueue()
    worker = Worker(rig)
    assert [job.priority for _ in range(8) for job in await worker.claim(1)] == [-10] * 8


async def test_jobs_without_a_source_are_not_asked_for_at_each_claim_where_there_are_none(rig: Rig) -> None:
    await enqueue_each(rig, [f"api:{n:03}" for n in range(30)] * 4)
    worker = Worker(rig)
    for _ in range(100):
        assert await worker.claim(1, after=0.01)
    assert worker.asked_plain <= 2 * (1 + 100 * 0.01 / NO_PLAIN_SECONDS), "up to the others' priority, and all"


async def test_with_many_slots_and_more_sources_a_turn_is_two_jobs_and_no_source_has_a_second_before_all_had_one(
    rig: Rig,
) -> None:
    names = [f"api:{n:03}" for n in range(300)]
    await enqueue_each(rig, names * 6)
    worker, given = Worker(rig), Counter[str]()
    claims = 0
    while claimed := await worker.claim(100):
        claims += 1
        given.update(job.source or "" for job in claimed)
        assert max(given.values()) - min(given[name] for name in names) <= 4, "a turn, and one that is not yet over"
    assert set(given.values()) == {6}
    assert claims < 36, "half of the slots or more are used"


async def test_with_many_slots_a_better_priority_still_comes_first(rig: Rig) -> None:
    await enqueue_each(rig, [f"api:{n:03}" for n in range(300)])
    await enqueue_each(rig, [f"api:u{n:03}" for n in range(150)], priority=-5)
    worker, order = Worker(rig), list[int]()
    while claimed := await worker.claim(100):
        order += sorted(job.priority for job in claimed)
    assert order == [-5] * 150 + [0] * 300


async def test_with_many_slots_limits_hold_and_all_of_it_is_taken(rig: Rig) -> None:
    """Looks are made beside claims here, and are older than what those took."""
    await sources(rig).set("domain", concurrency=1)
    names = [f"domain:{n:03}" for n in range(250)]
    await enqueue_each(rig, names * 3)
    worker, done = Worker(rig), 0
    while claimed := await worker.claim(100):
        assert max(Counter(job.source for job in claimed).values()) == 1
        done += len(claimed)
        await succeed(rig, *claimed)
    assert done == 750


# What is not ready


async def test_jobs_of_the_future_past_their_time_or_of_a_paused_queue_have_no_turn(rig: Rig) -> None:
    await rig.enqueue(source="api:a", delay=60)
    await rig.enqueue(source="api:a", expires_at=rig.clock.now() + timedelta(seconds=1))
    await rig.enqueue(source="api:b", queue="other")
    await rig.store.run(queues.pause("other"))
    rig.clock.move(1)
    assert await claim_turns(rig, 9, queues=("default", "other")) == []
    await rig.store.run(queues.resume("other"))
    rig.clock.move(59)
    await rig.promote()
    assert len(await claim_turns(rig, 9, queues=("default", "other"))) == 2


async def test_a_worker_gets_no_jobs_of_tasks_that_it_does_not_know(rig: Rig) -> None:
    await rig.enqueue(source="api:a", task="unknown")
    assert await claim_turns(rig, 9) == []
    assert await Worker(rig).claim(9) == []


# Closed sources


async def test_a_saturated_source_is_passed_over_at_no_cost_to_the_others(rig: Rig) -> None:
    await sources(rig).set("api:a", concurrency=1)
    await rig.enqueue_many(50, source="api:a", priority=-1)
    (busy,) = await claim_turns(rig, 1)
    for source in ("api:b", None):
        await rig.enqueue_many(3, source=source)
    assert Counter(await one_by_one(rig, 6)) == {"api:b": 3, None: 3}
    await succeed(rig, busy)
    assert [job.source for job in await claim_turns(rig, 9)] == ["api:a"]


@each("start", [0, 1, 31, 40, 150, 299], afresh=True)
async def test_300_closed_sources_of_a_better_priority_do_not_hide_a_free_one(rig: Rig, start: int) -> None:
    names = await block(rig, 300, priority=-1)
    worker = Worker(rig)
    await sources(rig).set(names[start], concurrency=1)
    assert [job.source for job in await worker.claim(1)] == [names[start]]  # the round goes on from there
    await rig.enqueue_many(2, source="api:free")
    for _ in range(2):
        assert [job.source for job in await worker.claim(1)] == ["api:free"]
    for _ in range(3):
        assert await worker.claim(1) == [], "and a round through closed ones ends"
        assert worker.looks <= 20


async def test_of_three_hundred_sources_the_one_that_opens_is_found(rig: Rig) -> None:
    names = await block(rig, 300, priority=0)
    worker = Worker(rig)
    assert await worker.claim(1) == []
    for name in (names[250], names[7], names[299], names[0]):
        await sources(rig).set(name, concurrency=1)
        assert [job.source for job in await worker.claim(1)] == [name]
        assert await worker.claim(1) == []


async def test_closed_sources_of_two_tasks_hide_nothing_of_either(rig: Rig) -> None:
    await sources(rig).set("domain", concurrency=0)
    await enqueue_each(rig, [f"domain:a{n:03}" for n in range(80)], task="t", priority=-1)
    await enqueue_each(rig, [f"domain:b{n:03}" for n in range(80)], task="u", priority=-1)
    worker = Worker(rig, tasks=("t", "u"))
    assert await worker.claim(1) == []
    for task in ("t", "u", "t"):
        await rig.enqueue(task=task, source="api:free")
        assert [job.task for job in await worker.claim(1)] == [task]
        assert await worker.claim(1) == []


@each("priority", [-1, 0, 1], afresh=True)
async def test_the_round_of_one_task_does_not_end_that_of_another(rig: Rig, priority: int) -> None:
    await sources(rig).set("domain", concurrency=0)
    await enqueue_each(rig, [f"domain:a{n:03}" for n in range(80)], task="t", priority=priority)
    await enqueue_each(rig, [f"domain:b{n:03}" for n in range(80)], task="u")
    worker = Worker(rig, tasks=("t", "u"))
    for name in ("domain:b070", "domain:a070", "domain:b005"):
        await sources(rig).set(name, concurrency=1)
        rounds = [await worker.claim(1) for _ in range(5)]
        assert [job.source for claimed in rounds for job in claimed] == [name], "not found in five rounds"


# The look


async def test_a_look_goes_through_a_bounded_number_of_sources_and_on_from_there(rig: Rig) -> None:
    await enqueue_each(rig, [f"domain:{n:03}" for n in range(100)] * 2)
    seen: list[str] = []
    after: Position | None = None
    for _ in range(4):
        heads = await rig.store.run(look([("default", "t")], 25, after))
        assert len(heads) == 25
        assert [head.last for head in heads] == [False] * 24 + [True]
        seen += [head.source for head in heads]
        after = heads[-1].position
    assert seen == [f"domain:{n:03}" for n in range(100)]
    assert await rig.store.run(look([("default", "t")], 25, after)) == []
    heads = await rig.store.run(look([("default", "t")], 200, Position("default", "t", 0, "domain:090")))
    assert [head.source for head in heads] == [f"domain:{n:03}" for n in range(91, 100)]
    assert not any(head.last for head in heads)


@each("source", ["domain:099", "domain:zzz"], afresh=True)
async def test_a_look_after_the_last_source_of_a_priority_goes_on_with_the_next_priority(rig: Rig, source: str) -> None:
    await enqueue_each(rig, [f"domain:{n:03}" for n in range(100)])
    await rig.enqueue(source="domain:050", priority=1)
    heads = await rig.store.run(look([("default", "t")], 32, Position("default", "t", 0, source)))
    assert [(head.position.priority, head.source) for head in heads] == [(1, "domain:050")]


async def test_a_look_at_the_sources_changes_no_row(rig: Rig) -> None:
    await sources(rig).set("api", concurrency=1, total=2, rate="1/s")
    await rig.enqueue_many(3, source="api:a")
    tables = ("jobs_live", "sources")
    before = await rig.everything(tables)
    await rig.store.run(look([("default", "t")], 25))
    assert await rig.everything(tables) == before
