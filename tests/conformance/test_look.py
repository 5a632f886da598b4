"""Looks through jobs with any filter: pages and counts are right, in order, and of a bounded cost."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rowlock.core.errors import InvalidArguments
from rowlock.core.outcome import Failed, Succeeded
from rowlock.core.states import State
from rowlock.core.times import FakeClock
from rowlock.store import Store
from rowlock.store.read import search
from rowlock.store.read.filter import LAST_ID, Ids, JobFilter, ids_that_begin
from rowlock.store.read.search import Counted
from support.each import each
from support.rigs.rig import Rig


async def pages(store: Store, filter: JobFilter, limit: int, within: Ids | None = None) -> list[str]:
    """All that fits, page by page."""
    found, before = list[str](), None
    while True:
        page = await store.run(search.page(replace(filter, ids=within or Ids()), limit, before))
        found += page.ids
        if page.next is None:
            return found
        assert before is None or page.next < before
        before = page.next


@pytest.fixture
async def jobs(rig: Rig) -> dict[str, list[str]]:
    """Jobs in several states, mixed in the order of their ids."""
    made: dict[str, list[str]] = {"dead": [], "succeeded": [], "queued": []}
    for number in range(30):
        kind = ("dead", "succeeded", "queued")[number % 3]
        task = "even" if number % 2 == 0 else "odd"
        args = json.dumps({"url": f"https://a.example/{number}"})
        options = {"owner": "ana" if number < 6 else None, "tags": ("x",) if number == 7 else ()}
        job_id = await rig.enqueue(task, args, delay=500.0 if kind == "queued" else 0.0, **options)
        if kind != "queued":
            (job,) = await rig.claim(1, task=task)
            await rig.settle(job, Succeeded() if kind == "succeeded" else Failed("E", "no", permanent=True))
        made[kind].append(job_id)
    return made


async def test_pages_of_any_size_have_every_job_that_fits_once_and_in_order(
    store: Store, jobs: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = sorted((job for ids in jobs.values() for job in ids), reverse=True)
    for first, more in ((1_000, 20_000), (2, 3), (1, 1)):  # looks so short that pages end within them
        monkeypatch.setattr(search, "FIRST_LOOK", first)
        monkeypatch.setattr(search, "LOOK", more)
        for limit in (1, 4, 100):
            assert await pages(store, JobFilter(), limit) == everything
            for states in (("dead",), ("queued", "dead"), ("succeeded", "dead"), ("succeeded",), ("running",)):
                wanted = sorted((job for state in states for job in jobs.get(state, [])), reverse=True)
                assert await pages(store, JobFilter(states=tuple(map(State, states))), limit) == wanted


@each(
    "filter, number",
    [
        (JobFilter(task="even"), 15),
        (JobFilter(task="even", states=(State.DEAD,)), 5),
        (JobFilter(owner="ana"), 6),
        (JobFilter(owner="ana", states=(State.DEAD,)), 2),
        (JobFilter(owner="ana", states=(State.DEAD, State.SUCCEEDED)), 4),
        (JobFilter(error_code="E"), 10),
        (JobFilter(attempt=1), 20),
        (JobFilter(attempt=2), 0),
        (JobFilter(tag="x"), 1),
        (JobFilter(text="a.example/2"), 11),
        (JobFilter(schedule="nightly"), 0),
        (JobFilter(batch="00000000-0000-7000-9000-000000000001"), 0),
    ],
)
async def test_filters_and_their_counts_agree(
    store: Store, jobs: dict[str, list[str]], filter: JobFilter, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await pages(store, filter, 7)
    assert len(found) == number
    counted = await store.run(search.count(filter))
    assert all(one.exact for one in counted.values())
    assert sum(one.count for one in counted.values()) == len(found)
    with monkeypatch.context() as short:
        short.setattr(search, "LOOK", 2)
        assert await store.run(search.count(filter, looks=100)) == counted


async def test_a_count_that_stops_early_says_so(store: Store, jobs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await store.run(search.count(JobFilter(states=(State.DEAD,)), limit=4)) == {State.DEAD: Counted(4, False)}
    monkeypatch.setattr(search, "LOOK", 2)
    found = await store.run(search.count(JobFilter(states=(State.DEAD,), task="even"), looks=2))
    assert found == {State.DEAD: Counted(2, False)}


async def test_a_list_is_bounded_by_since_until_and_unchanged_since(rig: Rig, store: Store, clock: FakeClock) -> None:
    early = await rig.enqueue()
    clock.move(60)
    moment = clock.now()
    late = await rig.enqueue()
    assert await pages(store, JobFilter(since=moment), 5) == [late]
    assert await pages(store, JobFilter(until=moment), 5) == [early]
    assert await pages(store, JobFilter(unchanged_since=moment - timedelta(seconds=1)), 5) == [early]


async def test_the_first_characters_of_an_id_find_it(store: Store, jobs: dict[str, list[str]]) -> None:
    everything = sorted((job for ids in jobs.values() for job in ids), reverse=True)
    assert await pages(store, JobFilter(), 4, ids_that_begin("00000000-0000-7000-8")) == everything
    one = everything[3]
    assert await pages(store, JobFilter(), 4, ids_that_begin(one)) == [one]
    assert await pages(store, JobFilter(), 4, ids_that_begin("0001")) == []
    assert ids_that_begin("ffff").high == LAST_ID
    for wrong in ("", "123", "wxyz", "0" * 33):
        with pytest.raises(InvalidArguments, match="beginning of an id"):
            ids_that_begin(wrong)
