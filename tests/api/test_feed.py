"""The reader of events: it misses none, also where transactions commit in another order than they began."""

from datetime import UTC, datetime

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.conftest import Api
from rowlock import State
from rowlock.api.feed import Position, Reader
from rowlock.store.events import Event, News


def event(number: int) -> Event:
    """An event with this id."""
    nothing: tuple[None, ...] = (None,) * 7
    return Event(number, f"job-{number}", "ana", "job.progress", "add", State.RUNNING, 1, *nothing, datetime.now(UTC))


STEP = st.tuples(st.booleans(), st.integers(0, 11), st.booleans())  # begin or end, which one, commit or roll back


@given(st.lists(STEP, max_size=60))
def test_each_event_that_is_committed_is_read_once_and_none_comes_below_the_mark(
    script: list[tuple[bool, int, bool]],
) -> None:
    """Transactions take ids in order and end in any order, some by rolling back; the reader looks after each step."""
    reader, seen = Reader(0), list[int]()
    begun, running, committed = 0, list[int](), set[int]()  # transaction n takes id n
    for begins, which, commits in [*script, *[(False, 0, True)] * 60]:
        if begins:
            begun += 1
            running.append(begun)
        elif running:
            number = running.pop(which % len(running))
            committed |= {number} if commits else set()
        visible = [event(n) for n in sorted(committed) if n > reader.newest or n in reader.missing]
        mark = reader.mark
        fresh = reader.learn(News(visible, running_from=min(running, default=begun + 1), running_to=begun + 1))
        assert all(one.id > mark for one in fresh)
        seen += [one.id for one in fresh]
    assert sorted(seen) == sorted(committed)
    assert reader.missing == {}
    assert reader.mark == max(committed, default=0)


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


INSERT = """
INSERT INTO rowlock.jobs_finished (
    id, task, queue, state, priority, args, owner, attempt, max_attempts, releases, losses, convictions, run_after,
    created_at, finished_at, updated_at, drop_on)
SELECT id, task, queue, 'cancelled', priority, args, owner, attempt, max_attempts, releases, losses, convictions,
       run_after, created_at, now(), now(), current_date + 30
FROM gone"""
