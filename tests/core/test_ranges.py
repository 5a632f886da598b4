"""How many jobs a worker asks each of its tasks and queues for, and where it begins."""

import pytest

from rowlock.core.claiming.ranges import BACK_MS, MARKS, NO_ID, START, Range, Ranges
from rowlock.core.job import Claimed
from support.each import each

NOBODY = Claimed(id="", task="")


def jobs_of(task: str, count: int, first: int = 0, priority: int = 0) -> list[Claimed]:
    return [
        NOBODY._replace(task=task, id=f"00000000-0000-7000-8000-{first + n:012x}", priority=priority)
        for n in range(count)
    ]


def takes(book: Ranges, n: int = 500) -> dict[str, int]:
    return {one.task: one.most for one in book.next(n, front=False)}


def learn(
    book: Ranges,
    claimed: list[Claimed],
    asked: int,
    front: bool = False,
    seconds: float = 0.001,
    now: float = 0.0,
    wall: float = 1e9,
) -> bool:
    return book.learn(claimed, asked, front=front, seconds=seconds, now=now, wall=wall)


def many() -> Ranges:
    return Ranges(["default"], [f"task{n:02d}" for n in range(50)])


def test_a_few_tasks_are_asked_for_all_that_is_wanted() -> None:
    book = Ranges(["default"], ["a", "b"])
    assert takes(book) == {"a": 500, "b": 500}
    assert learn(book, jobs_of("a", 100), 500) is False  # short: nobody has more
    assert takes(book, 7) == {"a": 7, "b": 7}


def test_of_many_tasks_the_one_that_gives_is_asked_for_more() -> None:
    book = many()
    assert set(takes(book).values()) == {START}
    asked = START
    while asked < 500:
        assert learn(book, jobs_of("task07", asked), 500) is True, "it gave all it was asked for: there may be more"
        asked *= 2
        assert takes(book)["task07"] == asked
    assert takes(book)["task08"] == START
    learn(book, jobs_of("task07", 500), 500)
    assert takes(book)["task07"] == asked, "a claim brings no more than it asks for"


def test_a_lane_that_gives_less_is_asked_for_less() -> None:
    book = many()
    for count in (16, 32, 64, 128):
        learn(book, jobs_of("task07", count), 500)
    assert takes(book)["task07"] == 256
    assert learn(book, jobs_of("task07", 3), 500) is False
    assert takes(book)["task07"] == 128
    for _ in range(10):
        learn(book, [], 500)
    assert takes(book)["task07"] == START


# Where a claim starts

DAY = 0x0190_0000_0000  # ms


def at(ms: int) -> str:
    digits = f"{DAY + ms:012x}"
    return f"{digits[:8]}-{digits[8:]}-7000-8000-000000000000"


def jobs_at(*times: int, priority: int = 0, queue: str = "default") -> list[Claimed]:
    return [NOBODY._replace(task="a", id=at(ms), priority=priority, queue=queue) for ms in times]


def test_after_a_full_claim_the_next_one_starts_where_it_ended() -> None:
    book = Ranges(["default"], ["a"])
    learn(book, jobs_at(1, 2, 3), 3)
    assert book.next(5, front=False) == [
        Range("default", "a", -101, NO_ID, 0, 5),  # better priorities, from their front
        Range("default", "a", 0, at(3), 101, 5),
    ]


def test_after_a_short_claim_the_next_one_starts_a_little_before_the_newest_job() -> None:
    book = Ranges(["default"], ["a"])
    learn(book, jobs_at(10_000, priority=-5), 5, wall=DAY / 1000 + 60)
    learn(book, jobs_at(20_000, 20_001), 5, wall=DAY / 1000 + 60)
    marks = [(lane.low_priority, lane.low_id) for lane in book.next(5, front=False)]
    start = f"{at(20_001 - BACK_MS)[:14]}0000-0000-000000000000"
    assert marks == [(-101, NO_ID), (-5, start), (0, start)], "of every priority that jobs came from"


def test_a_producer_whose_clock_is_ahead_does_not_hide_the_jobs_of_others() -> None:
    book = Ranges(["default"], ["a"])
    learn(book, jobs_at(3_600_000), 5, wall=DAY / 1000 + 10)
    assert book.next(5, front=False)[1].low_id[:13] == at(10_000 - BACK_MS)[:13]
    learn(book, jobs_at(4_000), 5, wall=DAY / 1000 + 4)  # the clock was set back
    assert book.next(5, front=False)[1].low_id[:13] == at(4_000 - BACK_MS)[:13]


def test_a_claim_from_the_front_ignores_the_low_water_marks() -> None:
    book = Ranges(["default"], ["a"])
    learn(book, jobs_at(1, 2, 3), 3)
    assert book.next(5, front=True) == [Range("default", "a", -101, NO_ID, 101, 5)]


@each("seconds, pause", [(0.002, 0.04), (0.01, 0.2), (0.3, 1.0)])
def test_claims_from_the_front_are_at_most_a_second_apart_and_take_a_twentieth_of_the_time(
    seconds: float, pause: float
) -> None:
    book = Ranges(["default"], ["a"])
    learn(book, jobs_at(1), 3, front=True, seconds=seconds, now=100.0)
    assert book.front_at == pytest.approx(100.0 + pause)
    book.forget()
    assert book.front_at == 0.0, "jobs with old ids became ready"


def test_only_a_few_priorities_have_a_mark() -> None:
    book = Ranges(["default"], ["a"])
    for priority in range(30):
        learn(book, jobs_at(priority, priority=priority), 1)
    lanes = book.next(5, front=False)
    assert [lane.low_priority for lane in lanes] == [-101, *range(30 - MARKS, 30)], "the last ones used"


@each("job_id", ["not-a-uuid", ""])
def test_an_id_that_is_not_a_uuid_does_not_stop_the_jobs_claimed_with_it(job_id: str) -> None:
    book = many()
    assert not learn(book, [*jobs_of("task01", 2), NOBODY._replace(task="task01", id=job_id)], 10)
