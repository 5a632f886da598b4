"""Sources in the hands of operators: policy as data, pause and resume, health as S4.27 names it, block candidates."""

from datetime import timedelta

import pytest

from rowlock.core.errors import InvalidArguments
from rowlock.core.outcome import Failed, Succeeded
from rowlock.core.sources.admission import UNLIMITED
from rowlock.core.sources.policy import Policy
from rowlock.core.times import FakeClock
from rowlock.store import Store
from support.each import each
from support.rigs.rig import Rig, settlement
from support.rigs.sources import claim_turns, cleared, fail, open_breaker, sources, succeed

COOLDOWN = 300


@pytest.fixture
def database(used_database: str) -> str:
    return used_database


@pytest.fixture
async def rig(store: Store, clock: FakeClock) -> Rig:
    return await cleared(Rig(store, clock))


# Policy


async def test_settings_are_changed_one_by_one_and_taken_back_with_none(rig: Rig) -> None:
    await sources(rig).set("api:ebay", concurrency=4, rate="30/min", burst=5)
    changed = await sources(rig).set("api:ebay", concurrency=2, threshold=3, cooldown=timedelta(minutes=1), factor=2)
    assert changed.policy == Policy(concurrency=2, rate=30.0, burst=5, threshold=3, cooldown=60.0, factor=2.0)
    assert (await sources(rig).set("api:ebay", rate=None, burst=None)).policy.rate is None
    await sources(rig).reset("api:ebay")
    assert (await sources(rig).get("api:ebay")).policy == Policy()


async def test_the_shipped_limit_of_domains_is_lifted_only_by_unlimited(rig: Rig) -> None:
    shipped = Policy(concurrency=2)
    assert (await sources(rig).reset("domain")).policy == shipped
    await sources(rig).declare({"domain": {"total": 50}})
    assert (await sources(rig).get("domain")).policy == Policy(concurrency=2, total=50)
    await sources(rig).declare({"domain": {"concurrency": "unlimited"}})
    assert (await sources(rig).get("domain")).concurrency == UNLIMITED
    assert (await sources(rig).set("domain", afresh=True, rate="1/s")).policy == Policy(concurrency=2, rate=60.0)
    assert (await sources(rig).set("domain", concurrency=7, rate=None)).policy == Policy(concurrency=7)
    assert (await sources(rig).set("domain", concurrency=None)).policy == shipped
    assert (await sources(rig).reset("api")).policy == Policy()


async def test_a_source_shows_the_limits_of_its_class_where_it_has_none(rig: Rig) -> None:
    await sources(rig).set("domain", concurrency=2, rate="60/min")
    await sources(rig).set("domain:a", rate="1/min")
    source = await sources(rig).get("domain:a")
    assert (source.concurrency, source.rate_limit_per_minute, source.policy.concurrency) == (2, 1.0, None)


@each(
    "name, wrong, said",
    [
        ("svc:a", {"concurrency": 2}, "api, domain"),
        ("api:a", {"concurrency": -1}, "concurrency"),
        ("api:a", {"rate": "30"}, "unit"),
        ("api:a", {"burst": 3, "rate": "-1/min"}, "rate"),
        ("api:a", {"total": 5}, "total"),
        ("api:a", {"colour": 5}, "colour"),
        ("", {"concurrency": 5}, "api:ebay"),
    ],
)
async def test_bad_input_is_a_clear_error_and_changes_nothing(
    rig: Rig, name: str, wrong: dict[str, object], said: str
) -> None:
    before = await rig.everything(("sources",))
    with pytest.raises(InvalidArguments) as caught:
        await sources(rig).set(name, **wrong)
    assert said in str(caught.value)
    assert await rig.everything(("sources",)) == before


@each("verb", ["pause", "resume", "get", "reset"])
async def test_a_name_that_nobody_has_used_is_an_error_that_shows_it(rig: Rig, verb: str) -> None:
    before = await rig.everything(("sources",))
    with pytest.raises(InvalidArguments, match="svc:typo"):
        await getattr(sources(rig), verb)("svc:typo")
    with pytest.raises(InvalidArguments, match="svc"):
        await getattr(sources(rig), verb)("svc")
    assert await rig.everything(("sources",)) == before


async def test_a_config_is_written_unless_an_operator_has_set_it_since(rig: Rig) -> None:
    told = {"svc:a": {"rate": "1/s"}, "svc": {"concurrency": 3}, "domain": {"concurrency": 2}}
    await sources(rig).set("domain", concurrency=7)
    await sources(rig).declare(told)
    assert (await sources(rig).get("domain")).policy == Policy(concurrency=7)
    assert (await sources(rig).get("svc:a")).policy == Policy(rate=60.0)
    await sources(rig).declare({"svc": {"burst": 2}})
    assert (await sources(rig).get("svc")).policy == Policy(burst=2), "a config says all of it"
    await sources(rig).reset("domain")
    await sources(rig).declare(told)
    assert (await sources(rig).get("domain")).policy == Policy(concurrency=2)


# Pause and resume


@each("name", ["api:a", "api"], afresh=True)
async def test_a_pause_holds_until_it_is_resumed_and_running_jobs_go_on(rig: Rig, name: str) -> None:
    await rig.enqueue_many(9, source="api:a")
    (running,) = await claim_turns(rig, 1)
    assert (await sources(rig).pause(name)).enabled is False
    rig.clock.move(timedelta(days=30))
    assert await claim_turns(rig, 9) == []
    await succeed(rig, running)
    assert await claim_turns(rig, 9) == [], "a success of a job from before does not end it"
    assert (await sources(rig).resume(name)).enabled is True
    assert len(await claim_turns(rig, 9)) == 8


@each("name", ["api:a", "api"], afresh=True)
async def test_a_pause_for_a_time_ends_by_itself_or_by_hand(rig: Rig, name: str) -> None:
    await rig.enqueue_many(9, source="api:a")
    (running,) = await claim_turns(rig, 1)
    paused = await sources(rig).pause(name, timedelta(hours=1))
    assert paused.paused_until == rig.clock.now() + timedelta(hours=1)
    await succeed(rig, running)
    rig.clock.move(3599)
    assert await claim_turns(rig, 9) == []
    rig.clock.move(1)
    assert len(await claim_turns(rig, 2)) == 2
    await sources(rig).pause(name, 3600)
    assert await claim_turns(rig, 9) == []
    await sources(rig).resume(name)
    assert len(await claim_turns(rig, 9)) == 6


@each("verb", ["pause", "resume"])
async def test_an_unknown_class_is_an_error_that_lists_the_known_ones(rig: Rig, verb: str) -> None:
    with pytest.raises(InvalidArguments, match="no class 'ebay'; known: api, domain"):
        await getattr(sources(rig), verb)("ebay")


async def test_a_class_that_only_a_waiting_job_names_can_be_paused(rig: Rig) -> None:
    await rig.enqueue(source="svc:a")
    await sources(rig).pause("svc")
    assert await claim_turns(rig, 9) == []


async def test_a_paused_class_pauses_no_other(rig: Rig) -> None:
    await sources(rig).pause("api")
    for name in ("api:a", "domain:a"):
        await rig.enqueue(source=name)
    assert [job.source for job in await claim_turns(rig, 9)] == ["domain:a"]


async def test_resume_closes_a_breaker(rig: Rig) -> None:
    await open_breaker(rig, "api:a")
    await rig.enqueue_many(9, source="api:a")
    assert await claim_turns(rig, 9) == []
    resumed = await sources(rig).resume("api:a")
    assert (resumed.failure_streak, resumed.opened_at, resumed.paused_until) == (0, None, None)
    assert len(await claim_turns(rig, 9)) == 9


async def test_an_operators_pause_outlasts_a_probe_that_succeeds(rig: Rig) -> None:
    await open_breaker(rig, "api:a")
    await rig.enqueue_many(9, source="api:a")
    rig.clock.move(COOLDOWN)
    (probe,) = await claim_turns(rig, 9)
    await sources(rig).pause("api:a", timedelta(hours=1))
    await succeed(rig, probe)
    assert await claim_turns(rig, 9) == []
    rig.clock.move(timedelta(hours=1))
    assert len(await claim_turns(rig, 9)) == 8


async def test_an_operators_pause_makes_no_cooldown_shorter(rig: Rig) -> None:
    await open_breaker(rig, "api:a")
    await rig.enqueue_many(9, source="api:a")
    await sources(rig).pause("api:a", 10)
    rig.clock.move(11)
    assert await claim_turns(rig, 9) == []


# Health


async def test_a_success_writes_the_sources_row_at_most_once_a_second(rig: Rig) -> None:
    await rig.enqueue_many(30, source="api:a")
    await rig.enqueue_many(30, source="api:b")
    written = []
    start = rig.clock.now()
    for _ in range(9):
        rig.clock.move(0.25)
        await succeed(rig, *await claim_turns(rig, 2))
        seen = await sources(rig).get("api:a")
        assert seen.last_success_at is not None
        written.append((seen.last_success_at - start).total_seconds())
    assert written == [0.25] * 4 + [1.25] * 4 + [2.25]


async def test_a_success_settled_together_with_another_sources_failure_writes_its_time_once_a_second(rig: Rig) -> None:
    await rig.enqueue_many(5, source="api:down")
    await rig.enqueue_many(5, source="api:up")
    start = rig.clock.now()
    for seconds in (0, 0.25):
        rig.clock.move(seconds)
        down, up = sorted(await claim_turns(rig, 2), key=lambda job: str(job.source))
        await rig.settle_all([settlement(down, Failed("E", "no", fault="source")), settlement(up, Succeeded())])
    assert (await sources(rig).get("api:down")).failure_streak == 2
    assert (await sources(rig).get("api:up")).last_success_at == start


async def test_the_table_has_the_fields_of_a_source_by_their_names(rig: Rig) -> None:
    await sources(rig).set("api:a", rate="30/min", burst=9)
    await open_breaker(rig, "api:a")
    fields = "name, enabled, failure_streak, last_success_at, last_failure_at, paused_until, rate_limit_per_minute"
    rows = await rig.fetch(f"SELECT {fields} FROM {{t}}sources ORDER BY name")
    (row,) = [row for row in rows if row[0] == "api:a"]
    assert (bool(row[1]), row[2], row[3], row[6]) == (True, 5, None, 30.0)
    assert None not in (row[4], row[5])


# Refusals


async def test_refusals_in_a_row_make_a_block_candidate_and_a_success_ends_it(rig: Rig) -> None:
    await rig.enqueue_many(9, source="domain:shut")
    await rig.enqueue_many(9, source="domain:fine")
    for job in await claim_turns(rig, 8):
        if job.source == "domain:shut":
            await fail(rig, job, fault="refusal", code="CAPTCHA", permanent=True)
        else:
            await succeed(rig, job)
    now = rig.clock.now()
    (candidate,) = await sources(rig).list(refused=2)
    assert (candidate.name, candidate.refusals, candidate.refusal_code) == ("domain:shut", 4, "CAPTCHA")
    assert (candidate.refused_at, candidate.enabled, candidate.failure_streak) == (now, True, 0)
    assert await sources(rig).list(refused=5) == []
    (job,) = [job for job in await claim_turns(rig, 2) if job.source == "domain:shut"]
    await succeed(rig, job)
    assert await sources(rig).list(refused=1) == []


@each("name", ["domain:shut", "domain"], afresh=True)
async def test_block_after_refusals_in_a_row_disable_the_source(rig: Rig, name: str) -> None:
    await sources(rig).set(name, block_after=3)
    await rig.enqueue_many(9, source="domain:shut")
    first, second, third = await claim_turns(rig, 3)
    await fail(rig, first, second, fault="refusal", code="HTTP_403", permanent=True)
    assert (await sources(rig).get("domain:shut")).enabled
    await fail(rig, third, fault="refusal", code="HTTP_403", permanent=True)
    assert not (await sources(rig).get("domain:shut")).enabled
    rig.clock.move(timedelta(days=30))
    assert await claim_turns(rig, 9) == []
    await sources(rig).resume("domain:shut")
    assert len(await claim_turns(rig, 9)) == 6
    assert await sources(rig).list(refused=1) == []
