"""The reader of events: it misses none, also where transactions commit in another order than they began."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from api.conftest import Api, event_of
from rowlock.api.live import events
from rowlock.api.live import reader as feed
from rowlock.api.live.events import Event, Gap, News
from rowlock.api.live.reader import MOST_GAPS, EventPosition, EventReader
from rowlock.core.errors import StoreUnavailable
from rowlock.store.upkeep.retention import forget
from support.each import each

# On SQLite one transaction writes at a time: the ids of its events are in the order of the commits.
ON_POSTGRES = pytest.mark.parametrize("engine", ["postgres"])


STEP = st.tuples(st.sampled_from(["begin", "take", "end"]), st.integers(0, 11), st.booleans())  # which, commit or not


@example([("begin", 0, True)] * 2 + [("take", 1, True), ("take", 0, True), ("end", 0, True)], 1, False)
@example([("begin", 0, True)] * 3 + [("take", at, True) for at in range(3)] + [("end", 2, True)] * 2, 1, False)
@given(st.lists(STEP, max_size=60), st.integers(1, 4), st.booleans())
def test_each_event_that_is_committed_is_read_once_and_none_comes_below_the_mark(
    script: list[tuple[str, int, bool]], limit: int, asks: bool
) -> None:
    """Transactions begin, take ids and end in any order, some by rolling back; the reader looks after each step, for a
    few events at once. As in PostgreSQL, a snapshot knows of no transaction after the last one that has ended. If the
    reader asks which transactions have written events, it waits for no others."""
    reader, seen = EventReader(0), list[int]()
    begun, last_ended, taken, committed = 0, 0, 0, set[int]()
    running = dict[int, list[int]]()  # number of a transaction -> the ids that it took
    for what, which, commits in [*script, *[("end", 0, True)] * 70]:
        number = sorted(running)[which % len(running)] if running else 0
        if what == "begin":
            begun += 1
            running[begun] = []
        elif what == "take" and running:
            taken += 1
            running[number].append(taken)
        elif what == "end" and running:
            committed |= set(running.pop(number)) if commits else set()
            last_ended = max(last_ended, number)
        running_from = min([n for n in running if n <= last_ended], default=last_ended + 1)
        if asks and reader.until is not None:
            writers = [n for n in running if running[n] and n < reader.until]
            running_from = max(running_from, min(writers, default=reader.until))
        late = [n for n in sorted(committed) if any(gap.first <= n <= gap.last for gap in reader.gaps)][:limit]
        new = [n for n in sorted(committed) if n > reader.newest][:limit]
        running_to = None
        if new and new[-1] - reader.newest > len(new):  # ids are missing: the look takes a number
            running_to = last_ended = begun = begun + 1
        mark = reader.mark
        fresh = reader.learn(News([event_of(n) for n in late + new], running_from, running_to), limit)
        assert all(one.id > mark for one in fresh)
        seen += [one.id for one in fresh]
    assert sorted(seen) == sorted(committed)
    assert reader.gaps == []
    assert reader.mark == max(committed, default=0)


def test_a_gap_may_be_of_any_width() -> None:
    reader = EventReader(0)
    assert [one.id for one in reader.learn(News([event_of(10**12)], 1, 9), 10)] == [10**12]
    assert reader.gaps == [Gap(1, 10**12 - 1, 9)]
    assert [one.id for one in reader.learn(News([event_of(7)], 1, None), 10)] == [7]
    assert reader.gaps == [Gap(1, 6, 9), Gap(8, 10**12 - 1, 9)]


def test_gaps_too_many_to_remember_are_told_when_no_more_events_can_appear_in_them() -> None:
    reader, number = EventReader(0), MOST_GAPS + 2
    reader.learn(News([event_of(2 * n) for n in range(1, number + 1)], 1, 9), 10**6)
    assert len(reader.gaps) == MOST_GAPS
    assert (reader.mark, reader.lost) == (0, False)
    reader.learn(News([event_of(3)], 8, None), 10**6)  # in a gap that was forgotten
    assert (reader.mark, reader.lost) == (0, False)
    reader.learn(News([], 9, None), 10**6)
    assert (reader.mark, reader.lost) == (2 * number, True)


@each("deleted, lost", [(0, False), (1, False), (2, True), (5, True), (6, True)])
def test_a_gap_that_ends_after_its_events_were_deleted_is_told(deleted: int, lost: bool) -> None:
    reader = EventReader(1, deleted=1)
    reader.learn(News([event_of(5)], 1, 9, 1), 10)
    reader.learn(News([], 8, None, 1), 10)
    assert (reader.gaps, reader.lost) == ([Gap(2, 4, 9)], False)
    reader.learn(News([], 9, None, deleted), 10)
    assert (reader.gaps, reader.lost) == ([], lost)


def test_a_gap_without_a_number_is_kept_until_the_database_gives_one() -> None:
    reader = EventReader(0)
    reader.learn(News([event_of(2)], 5, None), 10)
    reader.learn(News([], 6, None), 10)
    assert reader.gaps == [Gap(1, 1, None)]
    reader.learn(News([], 6, 7), 10)
    assert reader.gaps == [Gap(1, 1, 7)]
    reader.learn(News([], 7, None), 10)
    assert (reader.gaps, reader.mark) == ([], 2)


@each(
    "text, position",
    [
        ("3.7", EventPosition(3, 7)),
        ("0.0", EventPosition(0, 0)),
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
def test_a_position_is_read_only_if_it_was_one_of_ours(text: str | None, position: EventPosition | None) -> None:
    assert EventPosition.read(text) == position


@ON_POSTGRES
async def test_an_event_whose_transaction_commits_late_is_not_missed(api: Api) -> None:
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
    async with api.socket(ana, third["eventId"]) as socket:  # it saw all: the next thing that it hears of is new
        await socket.next()
        newest = await api.create(ana, a=3)
        await api.app.cancel(newest)
        assert (await socket.next())["jobId"] == newest


@ON_POSTGRES
async def test_events_of_one_large_late_transaction_are_all_told(api: Api) -> None:
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


@ON_POSTGRES
async def test_an_event_of_a_transaction_that_began_after_the_last_one_that_ended_is_not_missed(api: Api) -> None:
    """The snapshot that shows the later id does not know of the transaction that holds the smaller one."""
    with connected(api) as first, connected(api) as second:
        async with api_feed(api) as watcher:
            first.execute("SELECT pg_current_xact_id()")
            second.execute("SELECT pg_current_xact_id()")
            write(second, "slow")
            write(first, "quick")
            first.commit()
            assert await messages_of(watcher, 1) == ["quick"]
            second.commit()
            assert await messages_of(watcher, 1) == ["slow"]


@ON_POSTGRES
async def test_a_reader_that_begins_knows_an_event_that_waits_behind_many_younger_ones(api: Api) -> None:
    with connected(api) as held, connected(api) as other:
        write(other, "before")
        other.commit()
        write(held, "slow")
        write(other, "quick", feed.PAGE + 200)
        other.commit()
        reader = feed.Feed(api.app.store)
        try:
            async with reader.watching("ana") as watcher:
                start = reader.position()
                assert start.mark < 2, "the mark of a client that begins passes an id that may still appear"
                held.commit()
                assert await messages_of(watcher, 1) == ["slow"]
                missed = await reader.missed(watcher, str(start))
                assert missed is not None
                assert "slow" in [one.message for one, _ in missed]
        finally:
            await reader.close()


@ON_POSTGRES
async def test_a_reader_that_begins_knows_an_event_of_a_transaction_that_then_sets_a_savepoint(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written after a savepoint has another number, above those that were given before it."""
    store, reader = await api.app.store(), feed.Feed(api.app.store)
    with connected(api) as held, connected(api) as other:
        write(held, "slow")
        write(other, "quick")
        other.commit()

        async def run_early(operation: Any, run: Any = store.run) -> Any:
            answer = await run(operation)
            if operation.name == "begin":
                held.execute("SAVEPOINT later")
                write(held, "later")
            return answer

        monkeypatch.setattr(store, "run", run_early)
        try:
            async with reader.watching("ana") as watcher:
                assert reader.position().mark == 0, (
                    "the mark of a client that begins passes an id that may still appear"
                )
                held.commit()
                assert await messages_of(watcher, 2) == ["slow", "later"]
        finally:
            monkeypatch.undo()
            await reader.close()


@ON_POSTGRES
async def test_a_reader_that_begins_does_not_wait_for_transactions_that_write_no_events(api: Api) -> None:
    with connected(api) as unrelated, connected(api) as other:
        unrelated.execute("SELECT pg_current_xact_id()")
        write(other, "rolled back")
        other.rollback()
        write(other, "before")
        other.commit()
        reader = feed.Feed(api.app.store)
        try:
            async with reader.watching("ana"):
                assert reader.position() == EventPosition(2, 2)
        finally:
            await reader.close()


@ON_POSTGRES
@each("place", ["the same database", "another database"])
async def test_a_transaction_that_writes_no_events_does_not_hold_the_mark(
    api: Api, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else clients that come back get ever more events again, and after an hour only `resync`."""
    monkeypatch.setattr(feed, "STALL_SECONDS", 0.1)
    here, reader = urlsplit(api.app.database), feed.Feed(api.app.store)
    where = here if place == "the same database" else here._replace(path="/postgres")
    with psycopg.connect(where.geturl()) as unrelated, connected(api) as other:
        unrelated.execute("SELECT pg_current_xact_id()")
        try:
            async with reader.watching("ana") as watcher:
                write(other, "rolled back")
                other.rollback()
                write(other, "quick")
                other.commit()
                assert await messages_of(watcher, 1) == ["quick"]
                async with asyncio.timeout(20):
                    while reader.position() != EventPosition(2, 2):
                        await asyncio.sleep(0.05)
        finally:
            await reader.close()


@ON_POSTGRES
async def test_a_transaction_that_writes_events_holds_the_mark_until_it_ends(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "STALL_SECONDS", 0.0)
    store, reader, looks = await api.app.store(), feed.Feed(api.app.store), asyncio.Queue[int]()

    async def run_seen(operation: Any, run: Any = store.run) -> Any:
        answer = await run(operation)
        if operation.name == "writers_from":
            looks.put_nowait(answer)
        return answer

    monkeypatch.setattr(store, "run", run_seen)
    with connected(api) as held, connected(api) as other:
        try:
            async with reader.watching("ana") as watcher, asyncio.timeout(20):
                write(held, "slow")
                for number in range(3):
                    write(other, f"quick {number}")
                    other.commit()
                    assert await messages_of(watcher, 1) == [f"quick {number}"]
                while not looks.empty():
                    looks.get_nowait()
                await looks.get()
                await looks.get()
                assert reader.position() == EventPosition(0, 0)
                held.commit()
                assert await messages_of(watcher, 1) == ["slow"]
        finally:
            monkeypatch.undo()
            await reader.close()


async def test_events_that_are_deleted_before_the_reader_sees_them_are_told_as_resync(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server was cut off from the database for longer than events are kept; its clients stayed."""
    ana = await api.token()
    store, reader, away = await api.app.store(), feed.Feed(api.app.store), True

    async def run_away(operation: Any, run: Any = store.run) -> Any:
        if away and operation.name == "news":
            raise StoreUnavailable("cut off")
        return await run(operation)

    monkeypatch.setattr(feed, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(store, "run", run_away)
    try:
        async with reader.watching("ana") as watcher, asyncio.timeout(20):
            for number in range(2):
                await api.app.cancel(await api.create(ana, a=number))
            assert await store.run(forget("prune_events", 100, -60.0)) == 1
            away = False
            while not watcher.overrun:
                await watcher.take(1.0)
    finally:
        monkeypatch.undo()
        await reader.close()


@ON_POSTGRES
async def test_an_event_behind_many_ids_that_were_rolled_back_is_told_when_it_is_committed(api: Api) -> None:
    with connected(api) as unrelated, connected(api) as other, connected(api) as held:
        async with api_feed(api) as watcher:
            unrelated.execute("SELECT pg_current_xact_id()")  # while it runs, no gap can be given up
            write(other, "rolled back", feed.PAGE + 100)
            other.rollback()
            write(held, "slow")
            write(other, "quick")
            other.commit()
            assert await messages_of(watcher, 1) == ["quick"]
            held.commit()
            assert await messages_of(watcher, 1) == ["slow"]


@ON_POSTGRES
async def test_the_positions_of_missed_events_do_not_pass_an_event_that_comes_while_they_are_read(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, reader = await api.app.store(), feed.Feed(api.app.store)
    with connected(api) as held, connected(api) as other:
        try:
            async with reader.watching("ana") as watcher:
                write(held, "slow")
                write(other, "quick")
                other.commit()
                assert await messages_of(watcher, 1) == ["quick"]

                async def run_early(operation: Any, run: Any = store.run) -> Any:
                    answer = await run(operation)
                    if operation.name == "after" and answer:
                        held.commit()  # just after the page is read
                        assert await messages_of(watcher, 1) == ["slow"]
                    return answer

                monkeypatch.setattr(store, "run", run_early)
                missed = await reader.missed(watcher, "0.0")
                monkeypatch.undo()
                assert missed is not None
                assert [(one.message, position) for one, position in missed] == [("quick", EventPosition(0, 2))]
        finally:
            monkeypatch.undo()
            await reader.close()


@ON_POSTGRES
async def test_ids_that_were_rolled_back_are_not_taken_for_deleted_events(api: Api) -> None:
    """In a young database, and where everything older was deleted."""
    store, reader = await api.app.store(), feed.Feed(api.app.store)
    try:
        async with reader.watching("ana") as watcher:
            with connected(api) as one:
                for round_, since in enumerate(["0.0", "4.4"]):
                    write(one, "rolled back", 3)
                    one.rollback()
                    write(one, f"told in round {round_}")
                    one.commit()
                    missed = await reader.missed(watcher, since)
                    assert missed is not None
                    assert [each.message for each, _ in missed] == [f"told in round {round_}"]
                write(one, "newest")
                one.commit()
            assert await store.run(forget("prune_events", 1, -60.0)) == 1  # event 4, and event 8 is still there
            assert await reader.missed(watcher, "3.3") is None
            assert await reader.missed(watcher, "4.4") is not None
    finally:
        await reader.close()


def connected(api: Api) -> psycopg.Connection[Any]:
    """A connection whose transaction ends where the test says so."""
    return psycopg.connect(api.app.database)


def write(connection: psycopg.Connection[Any], message: str, number: int = 1) -> None:
    """Events of ana in the connection's transaction, as the triggers write them: it has written something before."""
    connection.execute("SELECT pg_current_xact_id()")
    connection.execute(
        "INSERT INTO rowlock.events (job_id, owner, type, task, state, attempt, message, at)"
        " SELECT gen_random_uuid(), 'ana', 'job.cancelled', 'add', 'cancelled', 1, %s, now()"
        " FROM generate_series(1, %s)",
        (message, number),
    )
    connection.execute("SELECT pg_notify('rowlock', 'events')")


async def messages_of(watcher: feed.EventWatcher, number: int) -> list[str | None]:
    """The messages of the next events."""
    found = list[str | None]()
    async with asyncio.timeout(20):
        while len(found) < number and not watcher.overrun:
            found += [one.message for one, _ in await watcher.take(20.0)]
    return found


async def test_a_client_that_leaves_between_events_that_were_read_together_gets_the_rest(api: Api) -> None:
    ana = await api.token()
    jobs = [await api.create(ana, a=number) for number in range(4)]
    async with api_feed(api) as watcher:
        async with api.app.transaction():  # one commit: the reader finds all of them in one look
            for job_id in jobs:
                await api.app.cancel(job_id)
        seen = list[tuple[Event, EventPosition]]()
        async with asyncio.timeout(20):
            while len(seen) < len(jobs):
                seen += await watcher.take(20.0)
    for number, (_, position) in enumerate(seen):
        async with api.socket(ana, str(position)) as socket:
            await socket.next()
            rest = [(await socket.next())["jobId"] for _ in jobs[number + 1 :]]
            assert rest == [one.job_id for one, _ in seen[number + 1 :]]


@asynccontextmanager
async def api_feed(api: Api) -> AsyncIterator[feed.EventWatcher]:
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
            assert await reader.missed(watcher, str(EventPosition(first - 1, first - 1))) is None
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
