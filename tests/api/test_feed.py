"""The reader of events: it misses none, also where transactions commit in another order than they began."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from api.conftest import Api
from rowlock import State
from rowlock.api import feed
from rowlock.api.positions import MOST_MISSING, Position, Reader
from rowlock.store import events
from rowlock.store.events import Event, News
from rowlock.store.retention import forget


def event(number: int) -> Event:
    """An event with this id."""
    nothing: tuple[None, ...] = (None,) * 7
    return Event(number, f"job-{number}", "ana", "job.progress", "add", State.RUNNING, 1, *nothing, datetime.now(UTC))


STEP = st.tuples(st.booleans(), st.integers(0, 11), st.booleans())  # begin or end, which one, commit or roll back


@example([(True, 0, True)] * 3 + [(False, at, True) for at in (2, 1, 0)], 1)  # they end in the opposite order
@given(st.lists(STEP, max_size=60), st.integers(1, 4))
def test_each_event_that_is_committed_is_read_once_and_none_comes_below_the_mark(
    script: list[tuple[bool, int, bool]], at_once: int
) -> None:
    """Transactions take ids in order and end in any order, some by rolling back; the reader looks after each step, for
    a few of the missing ids at once."""
    reader, seen = Reader(0), list[int]()
    begun, running, committed = 0, list[int](), set[int]()  # transaction n takes id n
    for begins, which, commits in [*script, *[(False, 0, True)] * 60]:
        if begins:
            begun += 1
            running.append(begun)
        elif running:
            number = running.pop(which % len(running))
            committed |= {number} if commits else set()
        asked = sorted(reader.missing)[:at_once]
        visible = [event(n) for n in sorted(committed) if n > reader.newest or n in asked]
        mark = reader.mark
        fresh = reader.learn(News(visible, running_from=min(running, default=begun + 1), running_to=begun + 1), asked)
        assert all(one.id > mark for one in fresh)
        seen += [one.id for one in fresh]
    assert sorted(seen) == sorted(committed)
    assert reader.missing == {}
    assert reader.mark == max(committed, default=0)


def test_a_gap_too_wide_to_remember_is_told_and_costs_little_memory() -> None:
    reader = Reader(0)
    assert [one.id for one in reader.learn(News([event(10**12)], 1, 9))] == [10**12]
    assert reader.jumped
    assert len(reader.missing) <= MOST_MISSING


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("3.7", Position(3, 7)),
        ("0.0", Position(0, 0)),
        ("", None),
        ("3", None),
        ("3.", None),
        (".7", None),
        ("-3.7", None),
        ("3.7.9", None),
        ("٣.٧", None),
        ("3.70000000000000000000", None),
        (None, None),
    ],
)
def test_a_position_is_read_only_if_it_was_one_of_ours(text: str | None, position: Position | None) -> None:
    assert Position.read(text) == position


@pytest.mark.parametrize("engine", ["postgres"], indirect=False)
async def test_an_event_whose_transaction_commits_late_is_not_missed(api: Api, engine: str) -> None:
    ana = await api.token()
    slow, quick, later = [await api.create(ana, a=number) for number in range(3)]
    async with api.socket(ana) as socket:
        await socket.next()
        with psycopg.connect(api.app.database) as held:
            move = "WITH gone AS (DELETE FROM rowlock.jobs_live WHERE id = %s RETURNING *) {}"
            held.execute(move.format(INSERT), (slow,))  # its event has the smaller id, and waits for its commit
            await api.app.cancel(quick)
            first = await socket.next()
            held.commit()
        second = await socket.next()
        await api.app.cancel(later)
        third = await socket.next()
    assert [message["jobId"] for message in (first, second, third)] == [quick, slow, later]
    async with api.socket(ana, first["eventId"]) as socket:  # it saw the first and left before the second
        await socket.next()
        assert [(await socket.next())["jobId"] for _ in range(2)] == [slow, later]
    async with api.socket(ana, third["eventId"]) as socket:
        await socket.next()
        with pytest.raises(TimeoutError):
            await socket.next(0.5)


@pytest.mark.parametrize("engine", ["postgres"], indirect=False)
async def test_events_of_one_large_late_transaction_are_all_told(api: Api, engine: str) -> None:
    """More than the reader asks for at once: none of them may be given up before it was looked for."""
    number = feed.PAGE + 500
    async with api.app.transaction():
        for _ in range(number):
            await api.app.get_task("add").using(owner="ana").enqueue(a=1)
    quick = await api.create(await api.token("ana"), a=1)
    async with api_feed(api) as watcher:
        with psycopg.connect(api.app.database) as held:
            move = "WITH gone AS (DELETE FROM rowlock.jobs_live WHERE id <> %s RETURNING *) {}"
            held.execute(move.format(INSERT), (quick,))
            await api.app.cancel(quick)
            async with asyncio.timeout(20):
                assert [one.job_id for one, _ in await watcher.take(20.0)] == [quick]
            held.commit()
        seen = set[int]()
        async with asyncio.timeout(20):
            while len(seen) < number:
                seen |= {one.id for one, _ in await watcher.take(20.0)}
                assert not watcher.overrun


async def test_a_client_that_leaves_between_events_that_were_read_together_gets_the_rest(api: Api) -> None:
    ana = await api.token()
    jobs = [await api.create(ana, a=number) for number in range(4)]
    async with api_feed(api) as watcher:
        async with api.app.transaction():  # one commit: the reader finds all of them in one look
            for job_id in jobs:
                await api.app.cancel(job_id)
        seen = list[tuple[Event, Position]]()
        async with asyncio.timeout(20):
            while len(seen) < len(jobs):
                seen += await watcher.take(20.0)
    for number, (_, position) in enumerate(seen):
        async with api.socket(ana, str(position)) as socket:
            await socket.next()
            rest = [(await socket.next())["jobId"] for _ in jobs[number + 1 :]]
            assert rest == [one.job_id for one, _ in seen[number + 1 :]]


@asynccontextmanager
async def api_feed(api: Api) -> AsyncIterator[feed.Watcher]:
    """A watcher of ana's jobs that may keep any number of events."""
    reader = feed.Feed(api.app.store)
    try:
        async with reader.watching("ana") as watcher:
            yield watcher
    finally:
        await reader.close()


async def test_a_client_that_comes_while_the_last_one_leaves_is_told_events(api: Api) -> None:
    ana = await api.token()
    reader = feed.Feed(api.app.store)
    try:
        for _ in range(5):
            async with reader.watching("ana"):
                pass
            await asyncio.sleep(0)  # the reader notices that nobody watches, and begins to close its connection
            await asyncio.sleep(0)
            async with reader.watching("ana") as watcher:
                job_id = await api.create(ana, a=1)
                await api.app.cancel(job_id)
                async with asyncio.timeout(20):
                    assert [one.job_id for one, _ in await watcher.take(20.0)] == [job_id]
    finally:
        await reader.close()


async def test_events_that_retention_removes_while_a_client_catches_up_are_not_passed_over(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    ana = await api.token()
    for number in range(4):
        await api.app.cancel(await api.create(ana, a=number))
    store, after = await api.app.store(), events.after
    first = (await store.run(after(0, 1)))[0].id
    reader = feed.Feed(api.app.store)
    pruned = asyncio.Event()

    async def run_later(operation: Any, run: Any = store.run) -> Any:
        if operation.name == "after" and not pruned.is_set():
            pruned.set()
            await run(forget("prune_events", 2, -60.0))  # just before the page is read
        return await run(operation)

    try:
        async with reader.watching("ana") as watcher:
            monkeypatch.setattr(store, "run", run_later)
            assert await reader.missed(watcher, str(Position(first - 1, first - 1))) is None
    finally:
        monkeypatch.undo()
        await reader.close()


INSERT = """
INSERT INTO rowlock.jobs_finished (
    id, task, queue, state, priority, args, owner, attempt, max_attempts, releases, losses, convictions, run_after,
    created_at, finished_at, updated_at, drop_on)
SELECT id, task, queue, 'cancelled', priority, args, owner, attempt, max_attempts, releases, losses, convictions,
       run_after, created_at, now(), now(), current_date + 30
FROM gone"""
