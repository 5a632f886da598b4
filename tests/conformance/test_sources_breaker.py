"""The circuit breaker, pauses and refusals: what outcomes and operators do to a source."""

from datetime import timedelta

import pytest

from rowlock.core.outcome import AttemptEnd, Cancelled, Failed, Released, Succeeded, TimedOut
from rowlock.core.times import FakeClock
from rowlock.store import Store
from rowlock.store.upkeep.clock_repair import put_sources_right
from rowlock.store.upkeep.retention import forget
from support.each import each
from support.rigs.rig import LEASE, Rig, settlement
from support.rigs.sources import claim_turns, cleared, fail, open_breaker, sources, succeed

COOLDOWN = 300
SAYS_NOTHING: dict[str, AttemptEnd] = {
    "a handler bug": Failed("ValueError", "bug"),
    "a bug without a further try": Failed("ValueError", "bug", permanent=True),
    "a cancel": Cancelled(),
    "a release": Released(0),
}


@pytest.fixture
def database(used_database: str) -> str:
    return used_database


@pytest.fixture
async def rig(store: Store, clock: FakeClock) -> Rig:
    return await cleared(Rig(store, clock))


async def half_open(rig: Rig, source: str = "api:a", **settings: object) -> None:
    """A source whose breaker has been open for its cooldown, with jobs that wait."""
    await sources(rig).set("api:a", **settings)
    await open_breaker(rig, source)
    await rig.enqueue_many(30, source=source)
    assert await claim_turns(rig, 9) == []
    rig.clock.move(COOLDOWN)


# Opening


async def test_five_failures_in_a_row_that_the_source_caused_open_it_for_five_minutes(rig: Rig) -> None:
    await rig.enqueue_many(30, source="api:a")
    await fail(rig, *await claim_turns(rig, 4))
    first = await claim_turns(rig, 1)
    assert len(first) == 1, "four are not five"
    assert (await sources(rig).get("api:a")).failure_streak == 4
    now = rig.clock.now()
    await fail(rig, *first, code="HTTP_502")
    assert await claim_turns(rig, 9) == []
    source = await sources(rig).get("api:a")
    assert (source.failure_streak, source.opened_at, source.last_failure_at) == (5, now, now)
    assert source.paused_until == now + timedelta(minutes=5)
    assert source.last_error is not None
    assert source.last_error.startswith("HTTP_502")
    rig.clock.move(COOLDOWN - 0.1)
    assert await claim_turns(rig, 9) == []
    await rig.enqueue(source="api:other")
    assert [job.source for job in await claim_turns(rig, 9)] == ["api:other"]


async def test_permanent_failures_and_timeouts_count_for_the_breaker(rig: Rig) -> None:
    await rig.enqueue_many(30, source="api:a")
    *dead, late = await claim_turns(rig, 5)
    await fail(rig, *dead, permanent=True)
    await rig.settle(late, TimedOut(30))
    assert await claim_turns(rig, 9) == []


@each("settled", [True, False], ids=["settle", "succeed_marked"], afresh=True)
async def test_a_success_resets_the_count_of_failures(rig: Rig, settled: bool) -> None:
    await rig.enqueue_many(30, source="api:a")
    for _ in range(3):
        await fail(rig, *await claim_turns(rig, 4))
        (job,) = await claim_turns(rig, 1)
        await (rig.succeed(job) if settled else succeed(rig, job))
        assert (await sources(rig).get("api:a")).failure_streak == 0


@each("name", SAYS_NOTHING, afresh=True)
async def test_ends_that_the_source_did_not_cause_do_not_count_for_the_breaker(rig: Rig, name: str) -> None:
    await rig.enqueue_many(30, source="api:a")
    await fail(rig, *await claim_turns(rig, 4))
    for job in await claim_turns(rig, 6):
        await rig.settle(job, SAYS_NOTHING[name])
    lost = await claim_turns(rig, 6, lease=1)
    rig.clock.move(2)
    assert len(await rig.reclaim()) == len(lost) == 6
    assert (await sources(rig).get("api:a")).failure_streak == 4
    assert len(await claim_turns(rig, 2)) == 2


async def test_threshold_and_cooldown_are_settings_of_a_source_or_its_class(rig: Rig) -> None:
    await sources(rig).set("api", threshold=2, cooldown=60)
    await sources(rig).set("api:b", threshold=3)
    for name, failures in (("api:a", 2), ("api:b", 3)):
        await open_breaker(rig, name, failures - 1)
        assert (await sources(rig).get(name)).opened_at is None
        await open_breaker(rig, name, 1)
        assert (await sources(rig).get(name)).paused_until == rig.clock.now() + timedelta(seconds=60)


async def test_outcomes_of_jobs_claimed_before_the_breaker_opened_are_ignored(rig: Rig) -> None:
    await rig.enqueue_many(30, source="api:a")
    early = await claim_turns(rig, 9)
    await fail(rig, *early[:5])
    opened = await sources(rig).get("api:a")
    rig.clock.move(COOLDOWN - 1)
    await fail(rig, early[5])
    await succeed(rig, early[6])
    late = await sources(rig).get("api:a")
    assert (late.failure_streak, late.opens, late.opened_at) == (5, 1, opened.opened_at)
    assert late.paused_until == opened.paused_until
    rig.clock.move(1)
    (probe,) = await claim_turns(rig, 9)
    await fail(rig, early[7])
    await succeed(rig, early[8])
    assert await claim_turns(rig, 9) == [], "still half open, with its one probe"
    await succeed(rig, probe)
    assert len(await claim_turns(rig, 9)) == 9


# The probe


async def test_after_the_cooldown_exactly_one_job_tries_it_out(rig: Rig) -> None:
    await half_open(rig)
    assert len(await claim_turns(rig, 9)) == 1
    for worker in ("worker-1", "worker-2"):
        assert await claim_turns(rig, 9, worker=worker) == []
    rig.clock.move(LEASE - 1)
    assert await claim_turns(rig, 9) == []


@each("way", ["settle", "succeed_marked", "with a failure of another source"], afresh=True)
async def test_a_successful_probe_closes_the_breaker(rig: Rig, way: str) -> None:
    await half_open(rig, factor=2)
    await rig.enqueue(source="api:b", priority=-5)
    other, probe = await claim_turns(rig, 9)
    if way == "settle":
        await rig.succeed(probe)
    elif way == "succeed_marked":
        await succeed(rig, probe)
    else:
        failed = Failed("HTTP_503", "no", fault="source")
        await rig.settle_all([settlement(other, failed), settlement(probe, Succeeded())])
    source = await sources(rig).get("api:a")
    assert (source.failure_streak, source.opened_at, source.paused_until) == (0, None, None)
    assert source.last_success_at == rig.clock.now()
    running = await claim_turns(rig, 9)
    assert len(running) == 9
    await fail(rig, *running[:4])
    assert len(await claim_turns(rig, 1)) == 1, "and the count starts anew"
    await fail(rig, running[4])
    assert (await sources(rig).get("api:a")).paused_until == rig.clock.now() + timedelta(seconds=COOLDOWN)


@each("factor, lengths", [(None, [300, 300, 300]), (2, [600, 1200, 2400])], afresh=True)
async def test_a_probe_that_fails_opens_it_again_for_longer_if_so_set(
    rig: Rig, factor: float | None, lengths: list[int]
) -> None:
    await half_open(rig, factor=factor)
    for length in lengths:
        (probe,) = await claim_turns(rig, 9)
        await fail(rig, probe)
        assert (await sources(rig).get("api:a")).paused_until == rig.clock.now() + timedelta(seconds=length)
        rig.clock.move(length - 1)
        assert await claim_turns(rig, 9) == []
        rig.clock.move(1)
    await succeed(rig, *await claim_turns(rig, 9))
    await open_breaker(rig, "api:a")
    assert (await sources(rig).get("api:a")).paused_until == rig.clock.now() + timedelta(seconds=300)


async def test_a_probe_that_is_lost_makes_room_for_the_next_one_when_it_is_reclaimed(rig: Rig) -> None:
    await half_open(rig)
    for _ in range(3):
        (zombie,) = await claim_turns(rig, 9)
        rig.clock.move(LEASE + 1)
        assert await claim_turns(rig, 9) == []
        assert [lost.job.id for lost in await rig.reclaim()] == [zombie.id]
    (probe,) = await claim_turns(rig, 9)
    assert await rig.settle(zombie, Succeeded()) == "lost"
    assert await claim_turns(rig, 9) == []
    await succeed(rig, probe)
    assert len(await claim_turns(rig, 9)) == 9


@each("name", SAYS_NOTHING, afresh=True)
async def test_a_probe_that_says_nothing_makes_room_for_the_next_one(rig: Rig, name: str) -> None:
    await half_open(rig)
    for _ in range(3):
        (probe,) = await claim_turns(rig, 9)
        assert await claim_turns(rig, 9) == []
        assert await rig.settle(probe, SAYS_NOTHING[name]) == "applied"


async def test_jobs_that_still_run_from_before_are_no_probes(rig: Rig) -> None:
    await rig.enqueue_many(30, source="api:a")
    await fail(rig, *(await claim_turns(rig, 20))[:5])
    rig.clock.move(COOLDOWN)
    assert len(await claim_turns(rig, 9)) == 1
    assert await claim_turns(rig, 9) == []


async def test_a_half_open_source_keeps_its_other_limits(rig: Rig) -> None:
    await sources(rig).set("api:a", concurrency=6)
    await rig.enqueue_many(30, source="api:a")
    running = await claim_turns(rig, 9)
    await fail(rig, *running[:5])
    await sources(rig).set("api:a", concurrency=1)
    rig.clock.move(COOLDOWN)
    assert await claim_turns(rig, 9) == []
    await succeed(rig, running[5])
    assert len(await claim_turns(rig, 9)) == 1


# Retry-After


async def test_one_retry_after_pauses_the_source_for_everybody(rig: Rig) -> None:
    await rig.enqueue_many(9, source="api:a")
    first, second = await claim_turns(rig, 2)
    await fail(rig, first, code="HTTP_429", retry_after=120)
    assert (await rig.row(first.id))["run_after"] >= rig.clock.now() + timedelta(seconds=120)
    await fail(rig, second, code="HTTP_429", retry_after=5)
    rig.clock.move(119)
    assert await claim_turns(rig, 9, worker="worker-2") == []
    rig.clock.move(1)
    assert len(await claim_turns(rig, 9)) == 7
    assert (await sources(rig).get("api:a")).opened_at is None


async def test_the_longer_of_retry_after_and_cooldown_holds(rig: Rig) -> None:
    for name, asked, length in (("api:a", 1000, 1000), ("api:b", 10, 300)):
        await rig.enqueue_many(5, source=name)
        *four, last = await claim_turns(rig, 5)
        await fail(rig, *four)
        await fail(rig, last, code="HTTP_429", retry_after=asked)
        source = await sources(rig).get(name)
        assert source.opened_at is not None
        assert source.paused_until == rig.clock.now() + timedelta(seconds=length)


# --- a class, and the source of its name


@each("how", ["breaker", "Retry-After", "block"], afresh=True)
async def test_a_closed_source_that_is_named_like_its_class_does_not_close_the_class(rig: Rig, how: str) -> None:
    await sources(rig).set("api", block_after=2)
    await rig.enqueue_many(5, source="api", max_attempts=1)
    claimed = await claim_turns(rig, 5)
    if how == "breaker":
        await fail(rig, *claimed)
    elif how == "Retry-After":
        await fail(rig, *claimed[:1], retry_after=60)
    else:
        await fail(rig, *claimed[:2], fault="refusal", code="HTTP_403")
    await rig.enqueue_many(2, source="api")
    await rig.enqueue_many(2, source="api:other")
    assert [job.source for job in await claim_turns(rig, 9)] == ["api:other"] * 2
    shown = {source.name: source.state(rig.clock.now()) for source in await sources(rig).list()}
    expected = {"breaker": "broken", "Retry-After": "paused", "block": "disabled"}[how]
    assert (shown["api"], shown["api:other"]) == (expected, "open")


@each("seconds", [None, 60.0], afresh=True)
async def test_a_class_that_an_operator_pauses_is_paused_with_all_of_its_sources(
    rig: Rig, seconds: float | None
) -> None:
    for name in ("api", "api:a", "domain:a"):
        await rig.enqueue(source=name)
    await sources(rig).pause("api", seconds)
    assert [job.source for job in await claim_turns(rig, 9)] == ["domain:a"]
    shown = {source.name: source.state(rig.clock.now()) for source in await sources(rig).list()}
    assert shown["api"] == ("disabled" if seconds is None else "paused")
    if seconds is None:
        await sources(rig).resume("api")
    else:
        rig.clock.move(seconds)
    assert {job.source for job in await claim_turns(rig, 9)} == {"api", "api:a"}


# --- a clock that was ahead

DAY = 86_400


async def test_a_bucket_fills_again_once_a_clock_that_was_ahead_is_put_right(rig: Rig) -> None:
    await sources(rig).set("api:a", rate="60/min", burst=2)
    await rig.enqueue_many(20, source="api:a")
    rig.clock.move(DAY)
    assert len(await claim_turns(rig, 9)) == 2
    rig.clock.move(-DAY)
    rig.clock.move(10)
    assert await claim_turns(rig, 9) == [], "nobody knows how long ago those two were"
    assert await rig.store.run(put_sources_right()) == ["api:a"]
    assert await rig.store.run(put_sources_right()) == []
    assert await claim_turns(rig, 9) == [], "what was taken is not given back"
    rig.clock.move(1)
    assert len(await claim_turns(rig, 9)) == 1
    rig.clock.move(60)
    assert len(await claim_turns(rig, 9)) == 2


@each("how", ["breaker", "operator", "class", "Retry-After"], afresh=True)
async def test_a_pause_lasts_as_long_as_it_was_meant_to_after_a_clock_that_was_ahead(rig: Rig, how: str) -> None:
    rig.clock.move(DAY)
    if how == "breaker":
        await open_breaker(rig, "api:a")
    elif how == "Retry-After":
        await rig.enqueue(source="api:a", max_attempts=1)
        await fail(rig, *await claim_turns(rig), retry_after=COOLDOWN)
    else:
        await sources(rig).set("api:a", concurrency=9)
        await sources(rig).pause("api:a" if how == "operator" else "api", COOLDOWN)
    rig.clock.move(-DAY)
    await rig.enqueue(source="api:a")
    assert await rig.store.run(put_sources_right()) != []
    rig.clock.move(COOLDOWN - 1)
    assert await claim_turns(rig) == []
    rig.clock.move(1)
    assert len(await claim_turns(rig)) == 1


async def test_the_clock_repair_leaves_times_that_no_wrong_clock_wrote(rig: Rig) -> None:
    await open_breaker(rig, "api:a")
    await sources(rig).set("api:b", rate="60/min")
    await rig.enqueue(source="api:b")
    assert len(await claim_turns(rig)) == 1
    await sources(rig).pause("domain", 600)
    before = await rig.everything(("sources",))
    assert await rig.store.run(put_sources_right()) == []
    assert await rig.everything(("sources",)) == before


# --- forgotten after a while


@each("how", ["Retry-After", "breaker"], afresh=True)
async def test_a_pause_that_is_over_does_not_keep_a_source_from_being_pruned(rig: Rig, how: str) -> None:
    if how == "breaker":
        await open_breaker(rig, "api:a")
    else:
        await rig.enqueue(source="api:a", max_attempts=1)
        await fail(rig, *await claim_turns(rig), retry_after=60)
    await sources(rig).pause("api:a", 31 * DAY)
    rig.clock.move(30.5 * DAY)
    assert await rig.store.run(forget("prune_sources", 10, 30 * DAY)) == 0, "it is still paused"
    rig.clock.move((31 if how == "breaker" else 1) * DAY)
    assert await rig.store.run(forget("prune_sources", 10, 30 * DAY)) == 1
