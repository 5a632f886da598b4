"""Why a job with a source is not running: every reason that a source can give, by the same rules as the claim."""

from datetime import timedelta

import pytest

from rowlock.core.states import State
from rowlock.core.times import FakeClock
from rowlock.store import Store, batches, queues, workers
from rowlock.store.read.explain import Explanation, explain
from rowlock.store.upkeep.clock_repair import put_sources_right
from support.each import each
from support.rigs.rig import LEASE, TABLES, Rig
from support.rigs.sources import claim_turns, cleared, enqueue_each, fail, open_breaker, sources, succeed


@pytest.fixture
def database(used_database: str) -> str:
    return used_database


@pytest.fixture
async def rig(store: Store, clock: FakeClock) -> Rig:
    return await cleared(Rig(store, clock))


async def register(rig: Rig) -> None:
    """A worker that could run it."""
    await rig.store.run(workers.register("w1", "host", 1, "1.0", ["default"], ["t", "u"], 10, None, LEASE))


async def why(rig: Rig, job_id: str) -> Explanation:
    await register(rig)
    told = await rig.store.run(explain(job_id))
    assert told is not None
    assert (told.job_id, told.state) == (job_id, State.QUEUED)
    assert told.text.endswith(".")
    return told


async def test_explain_of_a_full_source_names_the_jobs_that_run(rig: Rig) -> None:
    await sources(rig).set("api:a", concurrency=2)
    ids = await rig.enqueue_many(3, source="api:a")
    await rig.enqueue_many(3, source="api:b")
    await claim_turns(rig, 9, worker="host-7")
    told = await why(rig, ids[2])
    assert (told.reason, told.busy_with, told.also, told.waits_until) == ("saturated", tuple(ids[:2]), (), None)
    for said in ("'api:a'", "2 of 2", ids[0], ids[1], "host-7"):
        assert said in told.text


async def test_explain_of_a_full_class_names_the_running_jobs_of_all_its_sources(rig: Rig) -> None:
    await sources(rig).set("api", total=2)
    busy = [await rig.enqueue(source="api:b"), await rig.enqueue(source="api:c")]
    await rig.enqueue(source="domain:d")
    await claim_turns(rig, 9)
    told = await why(rig, await rig.enqueue(source="api:a"))
    assert (told.reason, told.busy_with) == ("saturated", tuple(busy))
    for said in ("class 'api'", "2 of 2", *busy):
        assert said in told.text


async def test_explain_of_a_source_full_of_many_jobs_counts_all_and_names_some(rig: Rig) -> None:
    await sources(rig).set("api:a", concurrency=25)
    ids = await rig.enqueue_many(26, source="api:a")
    await claim_turns(rig, 50)
    told = await why(rig, ids[25])
    assert set(told.busy_with) < set(ids[:25])
    assert "25 of 25" in told.text
    assert "22 more" in told.text


async def test_explain_of_a_rate_limit_says_when_the_next_token_comes(rig: Rig) -> None:
    await sources(rig).set("api:a", rate="6/min", burst=2)
    ids = await rig.enqueue_many(4, source="api:a")
    await claim_turns(rig, 9)
    at = rig.clock.now() + timedelta(seconds=10)
    rig.clock.move(3)
    told = await why(rig, ids[2])
    assert (told.reason, told.busy_with) == ("rate", ())
    assert told.waits_until == at
    for said in ("'api:a'", "6/min", "00:00:10 UTC"):
        assert said in told.text
    rig.clock.move(7)
    assert (await why(rig, ids[2])).reason == "next"
    assert [job.id for job in await claim_turns(rig, 9)] == [ids[2]]


async def test_explain_of_an_open_breaker_says_until_when_and_how_to_close_it(rig: Rig) -> None:
    await open_breaker(rig, "api:a")
    job_id = await rig.enqueue(source="api:a")
    told = await why(rig, job_id)
    assert (told.reason, told.waits_until) == ("breaker", rig.clock.now() + timedelta(minutes=5))
    for said in ("'api:a'", "00:05:00 UTC", "rowlock sources resume api:a"):
        assert said in told.text
    rig.clock.move(300)
    assert (await why(rig, job_id)).reason == "next", "it may be the probe"


async def test_explain_says_that_another_job_is_the_probe_of_the_source(rig: Rig) -> None:
    await open_breaker(rig, "api:a")
    first, second = await rig.enqueue_many(2, source="api:a")
    rig.clock.move(300)
    (probe,) = await claim_turns(rig, 9)
    assert probe.id == first
    told = await why(rig, second)
    assert told.reason == "probe"
    assert "'api:a'" in told.text
    await succeed(rig, probe)
    assert (await why(rig, second)).reason == "next"


async def test_a_retry_after_is_a_pause_until_its_end(rig: Rig) -> None:
    first, second = await rig.enqueue_many(2, source="api:a")
    (job,) = await claim_turns(rig, 1)
    assert job.id == first
    await fail(rig, job, code="HTTP_429", retry_after=90)
    told = await why(rig, second)
    assert (told.reason, told.waits_until) == ("stopped", rig.clock.now() + timedelta(seconds=90))
    assert "00:01:30 UTC" in told.text


@each("name", ["api:a", "api"], afresh=True)
@each("seconds", [60, None], afresh=True)
async def test_explain_of_a_paused_source_says_until_when_and_how_to_resume_it(
    rig: Rig, name: str, seconds: int | None
) -> None:
    await sources(rig).pause(name, seconds)
    job_id = await rig.enqueue(source="api:a")
    told = await why(rig, job_id)
    until = None if seconds is None else rig.clock.now() + timedelta(seconds=seconds)
    assert (told.reason, told.waits_until) == ("stopped", until)
    assert f"`rowlock sources resume {name}`" in told.text, "what it says must help"
    await sources(rig).resume(name)
    assert (await why(rig, job_id)).reason == "next"


async def test_explain_says_that_a_source_is_stopped_because_it_refused_too_often(rig: Rig) -> None:
    await sources(rig).set("api:a", block_after=1)
    ids = await rig.enqueue_many(2, source="api:a")
    await fail(rig, *await claim_turns(rig, 1), fault="refusal", code="HTTP_403", permanent=True)
    told = await why(rig, ids[1])
    assert (told.reason, told.waits_until) == ("stopped", None)
    assert "rowlock sources resume api:a" in told.text


async def test_explain_names_the_nearest_reason_first_and_the_closed_source_among_the_others(rig: Rig) -> None:
    await sources(rig).set("api:a", concurrency=0)
    later = await rig.enqueue(source="api:a", delay=60)
    told = await why(rig, later)
    assert (told.reason, told.also) == ("time", ("saturated",))
    now = await rig.enqueue(source="api:a")
    await rig.store.run(queues.pause("default"))
    told = await why(rig, now)
    assert (told.reason, told.also) == ("paused", ("saturated",))


async def test_explain_gives_a_jobs_place_among_the_jobs_of_its_source(rig: Rig) -> None:
    ids = await rig.enqueue_many(4, source="api:b")
    assert [(await why(rig, job_id)).reason for job_id in ids] == ["next", "line", "line", "line"]
    told = await why(rig, ids[3])
    assert (told.place, told.place_exact) == (3, True)
    assert told.text.startswith("3 ready jobs of its source 'api:b' come first in line for 10 slots")


@each("other", ["api:a", "api:c", None], afresh=True)
async def test_explain_says_that_other_sources_of_the_priority_take_turns_with_the_job(
    rig: Rig, other: str | None
) -> None:
    ids = await rig.enqueue_many(4, source="api:b")
    await rig.enqueue_many(50, source=other)
    told = [await why(rig, ids[n]) for n in (0, 3)]
    assert [(one.reason, one.place, one.place_exact) for one in told] == [("line", 0, False), ("line", 3, False)]
    assert told[0].text.startswith("Others of its priority take turns with it in line")
    assert "3 ready jobs of its source 'api:b' come first, and others take turns with it, in line" in told[1].text


@each("other", ["api:a", "api:c", None], afresh=True)
async def test_jobs_of_a_better_priority_come_first_whatever_their_source(rig: Rig, other: str | None) -> None:
    (job_id,) = await rig.enqueue_many(1, source="api:b")
    await rig.enqueue_many(50, source=other, priority=-1)
    told = await why(rig, job_id)
    assert (told.reason, told.place, told.place_exact) == ("line", 50, False)
    assert told.text.startswith("Up to 50 ready jobs come first in line")


async def test_explain_counts_better_priorities_and_older_jobs_of_other_tasks_of_the_source(rig: Rig) -> None:
    older = await rig.enqueue(source="api:a", task="u")
    mine = await rig.enqueue(source="api:a")
    urgent = await rig.enqueue(source="api:a", priority=-5)
    assert [(await why(rig, job_id)).place for job_id in (urgent, older, mine)] == [0, 1, 2]
    claimed = [(await claim_turns(rig, 1, tasks=("t", "u")))[0].id for _ in range(3)]
    assert claimed == [urgent, older, mine]


async def test_a_batch_waits_for_its_jobs_and_for_being_sealed(rig: Rig) -> None:
    batch_id = rig.new_id()
    await rig.store.run(batches.make(batch_id, "import", None, None))
    await enqueue_each(rig, ["api:a", "api:b"], batch_id=batch_id)
    told = await why(rig, batch_id)
    assert told.reason == "batch"
    for said in ("'import'", "2 jobs of 2", "sealed"):
        assert said in told.text


async def test_explaining_a_source_changes_nothing(rig: Rig) -> None:
    await sources(rig).set("api", concurrency=1, total=3, rate="1/s")
    await register(rig)
    ids = await rig.enqueue_many(3, source="api:a")
    await claim_turns(rig, 1)
    tables = (*TABLES, "sources")
    before = await rig.everything(tables)
    for job_id in ids:
        assert await rig.store.run(explain(job_id)) is not None
    assert await rig.everything(tables) == before


async def test_explain_names_the_pause_of_the_source_and_that_of_its_class_and_waits_for_both(rig: Rig) -> None:
    job_id = await rig.enqueue(source="api:b")
    await sources(rig).set("api:b", concurrency=3)
    await sources(rig).pause("api:b", 60)
    assert "class" not in (await why(rig, job_id)).text
    await sources(rig).pause("api", 600)
    told = await why(rig, job_id)
    assert (told.reason, told.waits_until) == ("stopped", rig.clock.now() + timedelta(seconds=600))
    for said in (
        "source 'api:b' is paused until 2026-01-01 00:01:00 UTC",
        "`rowlock sources resume api:b`",
        "class 'api' of its source 'api:b' is paused until 2026-01-01 00:10:00",
        "`rowlock sources resume api`",
    ):
        assert said in told.text


async def test_explain_of_a_pause_without_an_end_beside_one_with_an_end_waits_until_no_time(rig: Rig) -> None:
    job_id = await rig.enqueue(source="api:b")
    await sources(rig).pause("api:b", 60)
    await sources(rig).pause("api")
    told = await why(rig, job_id)
    assert (told.reason, told.waits_until) == ("stopped", None)
    assert "is paused; `rowlock sources resume api`" in told.text


async def test_explain_of_a_paused_queue_names_the_pause_of_the_source_too(rig: Rig) -> None:
    job_id = await rig.enqueue(source="api:b")
    await sources(rig).pause("api:b", 60)
    await rig.store.run(queues.pause("default"))
    told = await why(rig, job_id)
    assert (told.reason, told.also) == ("paused", ("stopped",))
    assert "queue 'default' has been paused" in told.text
    assert "source 'api:b' is paused until" in told.text


async def test_a_breaker_and_a_pause_of_the_class_are_both_named(rig: Rig) -> None:
    await open_breaker(rig, "api:b")
    (job_id,) = await rig.enqueue_many(1, source="api:b")
    await sources(rig).pause("api")
    told = await why(rig, job_id)
    assert told.reason == "breaker"
    assert "failed too often and is left alone until" in told.text
    assert "class 'api' of its source 'api:b' is paused; " in told.text


async def test_explain_says_that_a_token_bucket_was_filled_by_a_clock_that_was_ahead(rig: Rig) -> None:
    await sources(rig).set("api:b", rate="60/min")
    rig.clock.move(86_400)
    await register(rig)
    ids = await rig.enqueue_many(2, source="api:b")
    await claim_turns(rig, 1)
    rig.clock.move(-86_400)
    told = await why(rig, ids[1])
    assert (told.reason, told.waits_until) == ("rate", None)
    assert "clock that was ahead" in told.text
    await rig.store.run(put_sources_right())
    assert "the next token comes at 2026-01-01 00:00:01 UTC" in (await why(rig, ids[1])).text
