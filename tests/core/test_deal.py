"""Whose turn it is, without a database: priority strictly first, then round the sources, then the oldest."""

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from rowlock.core.claiming.pick import Found, deal, in_turn
from rowlock.core.job import Claimed
from rowlock.core.sources.admission import class_of

PLAIN = ""


@dataclass
class Table:
    """Jobs that were found, oldest first, and the order of the round."""

    order: list[str]
    found: list[Found] = field(default_factory=list)
    room: dict[str, int] = field(default_factory=dict)
    class_room: dict[str, int] = field(default_factory=dict)
    asked: dict[tuple[str, str, int, str], int] = field(default_factory=dict)

    def add(self, source: str, count: int = 1, priority: int = 0, task: str = "t") -> "Table":
        for _ in range(count):
            self.found.append(Found(f"{len(self.found):04}", priority, source or None, "default", task))
        return self

    def deal(self, n: int) -> list[Found]:
        return deal(self.found, n, order=self.order, room=self.room, class_room=self.class_room, asked=self.asked)

    def turns(self, n: int) -> list[str]:
        return [job.source or PLAIN for job in self.deal(n)]


def test_each_source_has_one_turn_and_the_jobs_without_one_have_one_together() -> None:
    table = Table(["a", "b", PLAIN, "c"])
    for source in (PLAIN, "c", "b", "a"):
        table.add(source, 3)
    assert table.turns(10) == ["a", "b", PLAIN, "c"] * 2 + ["a", "b"]
    assert table.turns(2) == ["a", "b"]


def test_a_source_that_has_no_more_is_left_out_of_the_round() -> None:
    assert Table(["a", "b"]).add("a", 1000).add("b", 2).turns(7) == ["a", "b", "a", "b", "a", "a", "a"]


def test_jobs_of_a_better_priority_come_first_with_or_without_a_source() -> None:
    table = Table(["a", "b", PLAIN]).add("a", 2, priority=1).add(PLAIN, 2, priority=0).add("b", 2, priority=-1)
    assert table.turns(5) == ["b", "b", PLAIN, PLAIN, "a"]


def test_the_oldest_of_a_source_comes_first_whatever_its_task() -> None:
    table = Table(["a"]).add("a", task="t").add("a", task="u").add("a", task="t")
    table.found.reverse()
    assert [job.id for job in table.deal(3)] == ["0000", "0001", "0002"]


def test_a_full_source_or_class_is_passed_over_and_stands_before_nobody() -> None:
    table = Table(["x:a", "x:b", "y:c"], room={"x:a": 1}, class_room={"x": 3})
    for source in ("x:a", "x:b", "y:c"):
        table.add(source, 5)
    assert table.turns(100) == ["x:a", "x:b", "y:c", "x:b", "y:c", "y:c", "y:c", "y:c"]
    table.add("x:a", 5, priority=-1)
    assert table.turns(100)[0] == "x:a"
    assert Counter(table.turns(100)) == {"x:a": 1, "x:b": 2, "y:c": 5}


def test_nothing_of_a_worse_priority_is_taken_while_a_better_one_may_have_more() -> None:
    table = Table(["a", "b"], asked={("default", "t", 0, "a"): 2}).add("a", 2, priority=0).add("b", 5, priority=1)
    assert table.deal(5) == table.found[:2]
    table.room["a"] = 2
    assert table.turns(5) == ["a", "a", "b", "b", "b"], "it may not have more, however many there are"


SOURCES = [PLAIN, "x:a", "x:b", "y:c", "y:d"]


@given(
    jobs=st.lists(st.tuples(st.sampled_from(SOURCES), st.integers(-1, 1)), max_size=60),
    order=st.permutations(SOURCES),
    n=st.integers(1, 40),
    room=st.dictionaries(st.sampled_from(SOURCES[1:]), st.integers(0, 8)),
    class_room=st.dictionaries(st.sampled_from("xy"), st.integers(0, 8)),
)
def test_every_deal_keeps_the_limits_and_the_order(
    jobs: list[tuple[str, int]], order: list[str], n: int, room: dict[str, int], class_room: dict[str, int]
) -> None:
    table = Table(order, room=room, class_room=class_room)
    for source, priority in jobs:
        table.add(source, priority=priority)
    picks = table.deal(n)
    got = Counter(job.source or PLAIN for job in picks)
    of_class = Counter(class_of(job.source) for job in picks if job.source)

    # Limits.
    assert len({job.id for job in picks}) == len(picks) <= n
    assert all(got[source] <= most for source, most in room.items())
    assert all(of_class[group] <= most for group, most in class_room.items())

    # Nothing is left behind that could have been taken, and priority comes first.
    def may_have_more(source: str) -> bool:
        group = class_of(source)
        return got[source] < room.get(source, n) and of_class[group] < class_room.get(group, n)

    left = [job for job in table.found if job not in picks and may_have_more(job.source or PLAIN)]
    assert len(picks) == n or not left
    assert all(job.priority >= last.priority for job in left for last in picks[-1:])

    # Within a priority nobody is two turns ahead of a source that still waits, and the oldest goes first.
    for priority in {job.priority for job in picks}:
        turns = Counter(job.source or PLAIN for job in picks if job.priority == priority)
        waiting = {job.source or PLAIN for job in left if job.priority == priority}
        assert all(max(turns.values()) <= turns[source] + 1 for source in waiting)
        for source in turns:
            ids = [job.id for job in picks if (job.source or PLAIN, job.priority) == (source, priority)]
            every = [job.id for job in table.found if (job.source or PLAIN, job.priority) == (source, priority)]
            assert ids == every[: len(ids)]


@given(
    jobs=st.lists(st.tuples(st.integers(-1, 1), st.sampled_from(["", "a", "b", "c"])), max_size=40),
    order=st.permutations(["", "a", "b", "c"]),
)
def test_the_jobs_of_a_claim_start_in_the_order_in_which_they_were_dealt(
    jobs: list[tuple[int, str]], order: list[str]
) -> None:
    table = Table(list(order))
    for priority, source in jobs:
        table.add(source, priority=priority)
    by_age = sorted(table.found, key=lambda job: (job.priority, job.id))
    claimed = [Claimed(id=job.id, task=job.task, priority=job.priority, source=job.source) for job in by_age]
    assert [job.id for job in in_turn(claimed, order)] == [job.id for job in table.deal(len(jobs))]
