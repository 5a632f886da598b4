"""How deep a worker looks into each of its lanes, and where it begins."""

from rowlock.core.job import Claimed
from rowlock.store.jobs import NO_ID, Lane
from rowlock.work.lanes import START, LaneBook

NOBODY = Claimed(
    *("", "", "default", 0, "{}", None, None, None, None, None, 1, 5, 0, 0, 0),
    *(None, None, None, None, None, False, "", ""),
)


def jobs_of(task: str, count: int, first: int = 0, priority: int = 0) -> list[Claimed]:
    return [NOBODY._replace(task=task, id=f"{first + n:04d}", priority=priority) for n in range(count)]


def takes(book: LaneBook, n: int = 500) -> dict[str, int]:
    return {lane.task: lane.take for lane in book.lanes(n)}


def many() -> LaneBook:
    return LaneBook(["default"], [f"task{n:02d}" for n in range(50)])


def test_a_few_lanes_are_asked_for_all_that_is_wanted() -> None:
    book = LaneBook(["default"], ["a", "b"])
    assert takes(book) == {"a": 500, "b": 500}
    assert book.learn(jobs_of("a", 100), 500) is False  # short: nobody has more
    assert takes(book, 7) == {"a": 7, "b": 7}


def test_of_many_lanes_the_one_that_gives_is_asked_for_more() -> None:
    book = many()
    assert set(takes(book).values()) == {START}
    asked = START
    while asked < 500:
        assert book.learn(jobs_of("task07", asked), 500) is True, "it gave all it was asked for: there may be more"
        asked *= 2
        assert takes(book)["task07"] == asked
    assert takes(book)["task08"] == START
    book.learn(jobs_of("task07", 500), 500)
    assert takes(book)["task07"] == asked, "a claim brings no more than it asks for"


def test_a_lane_that_gives_less_is_asked_for_less() -> None:
    book = many()
    for count in (16, 32, 64, 128):
        book.learn(jobs_of("task07", count), 500)
    assert takes(book)["task07"] == 256
    assert book.learn(jobs_of("task07", 3), 500) is False
    assert takes(book)["task07"] == 128
    for _ in range(10):
        book.learn([], 500)
    assert takes(book)["task07"] == START


def test_the_next_claim_begins_where_the_last_one_began_until_it_comes_back_short() -> None:
    book = LaneBook(["default"], ["a"])
    book.learn(jobs_of("a", 5, first=10), 5)
    assert book.lanes(5) == [
        Lane("default", "a", -101, NO_ID, 0, 5),  # better priorities, from their front
        Lane("default", "a", 0, "0010", 101, 5),
    ]
    book.learn(jobs_of("a", 2, first=15), 5)
    assert book.lanes(5) == [Lane("default", "a", -101, NO_ID, 101, 5)]
