"""In which order open sources are served, without a database and without a clock."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from rowlock.core.claiming.ranges import PLAIN, Position
from rowlock.core.claiming.survey import TurnOrder
from rowlock.core.job import MAX_PRIORITY, Claimed


def at(source: str, priority: int = 0, task: str = "t") -> Position:
    return Position("default", task, priority, source)


def order_of(*positions: Position) -> TurnOrder:
    order = TurnOrder()
    for position in positions:
        order.open(position, has_total=False)
    return order


def serve(order: TurnOrder, source: str, priority: int = 0) -> None:
    order.started([Claimed(id="", task="t", priority=priority, source=source or None)])


def chosen(order: TurnOrder, slots: int = 1) -> list[str]:
    """The sources of the next claim, without the turn of plain jobs."""
    return [source for source in order.choose(slots, lambda _: 1).order if source != PLAIN]


def test_a_better_priority_comes_first_and_what_is_left_out_says_how_far_plain_jobs_may_come() -> None:
    order = order_of(at("a", 5), at("b", -5), at("c", 0))
    choice = order.choose(1, lambda _: 1)
    assert ([turn.source for turn in choice.ranks], choice.rest) == (["b"], 0)
    assert order.choose(9, lambda _: 1).rest == MAX_PRIORITY


def test_the_source_that_was_served_longest_ago_is_next() -> None:
    order = order_of(at("a"), at("b"), at("c"))
    starts = list[str]()
    for _ in range(9):
        (source,) = chosen(order)
        serve(order, source)
        starts.append(source)
    assert starts == ["a", "b", "c"] * 3


def test_a_choice_that_is_not_served_stays_first() -> None:
    order = order_of(at("a"), at("b"))
    assert chosen(order) == chosen(order) == ["a"]


def test_a_source_that_is_new_has_its_turn_after_those_that_wait() -> None:
    order = order_of(at("x"), at("y"))
    serve(order, "x")
    order.open(at("a"), has_total=False)
    assert chosen(order, 3) == ["y", "a", "x"]


def test_all_positions_of_a_chosen_source_are_claimed_from_up_to_the_first_that_was_left_out() -> None:
    order = order_of(at("a", task="t"), at("a", task="u"), at("a", 7), at("b", 3))
    turns = order.choose(1, lambda _: 1).ranks
    assert [turn.position for turn in turns] == [at("a", task="t"), at("a", task="u")]


def test_jobs_without_a_source_have_their_turn_among_the_best_priority() -> None:
    order = order_of(at("a"), at("b"), at("c", 5))
    serve(order, "a")
    serve(order, PLAIN)
    assert order.choose(9, lambda _: 1).order == ["b", "a", PLAIN, "c"]


def test_a_head_that_closes_and_opens_again_has_one_turn() -> None:
    order = order_of(at("a"), at("b"))
    for _ in range(5):
        order.close(at("a"))
        assert chosen(order, 9) == ["b"]
        order.open(at("a"), has_total=False)
    turns = order.choose(9, lambda _: 1).ranks
    assert sorted(turn.source for turn in turns) == ["a", "b"]
    assert len(order) == 2


def test_a_head_that_closes_and_opens_behind_others_again_and_again_takes_up_one_place() -> None:
    order = order_of(at("a"), at("b", 5))
    for _ in range(50):
        order.close(at("b", 5))
        order.open(at("b", 5), has_total=False)
    assert sum(map(len, order._heaps.values())) == 2


def test_a_full_class_has_no_turn_until_it_is_open_again() -> None:
    order = order_of(at("web:x"))
    order.open(at("api:a"), has_total=True)
    order.full_classes.add("api")
    assert chosen(order, 9) == ["web:x"]
    order.full_classes.discard("api")
    assert sorted(chosen(order, 9)) == ["api:a", "web:x"]


def test_a_class_that_is_given_a_total_while_its_head_is_open_can_be_full() -> None:
    order = order_of(at("api:a"))
    order.open(at("api:a"), has_total=True)
    order.full_classes.add("api")
    assert not order.has_next


def test_as_many_sources_are_chosen_as_their_shares_fill_the_slots() -> None:
    order = order_of(*(at(f"s{n}") for n in range(10)))
    assert len({turn.source for turn in order.choose(6, lambda _: 2).ranks}) == 3


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(["open", "close", "serve"])), max_size=80),
    st.integers(1, 6),
)
def test_whatever_has_happened_the_next_turns_are_those_of_a_sort(changes: list[tuple[str, str]], slots: int) -> None:
    order, opened, served, starts = TurnOrder(), set[str](), dict[str, int](), 0
    for source, change in changes:
        if change == "open":
            served.setdefault(source, starts)
            opened.add(source)
            order.open(at(source), has_total=False)
        elif change == "close":
            opened.discard(source)
            order.close(at(source))
        elif source in opened:
            starts += 1
            served[source] = starts
            serve(order, source)
        expected = sorted(opened, key=lambda name: (served[name], name))[:slots]
        assert (chosen(order, slots) if order.has_next else []) == expected
    assert Counter(order._open.values()) == Counter({"": len(opened)} if opened else {})
