"""What prices make of a coin."""

from rowlock_apps.coins.valuation import Point, value
from support.each import each


def sold(*pairs: tuple[int, int]) -> list[Point]:
    return [Point(cents, "sold", strength) for cents, strength in pairs]


@each(
    "points, cents",
    [
        (sold((100, 80)), 100),
        (sold((100, 80), (200, 80)), 150),  # the halves meet between them
        (sold((100, 80), (201, 80)), 151),
        (sold((100, 80), (200, 80), (900, 80)), 200),  # one that is far off does not count for more
        (sold((900, 80), (100, 80), (200, 80)), 200),
        (sold((100, 100), (200, 60)), 100),  # what fits better weighs more
        (sold((100, 60), (200, 60), (300, 100)), 200),
        (sold((100, 60), (200, 60), (300, 60), (400, 60)), 250),
    ],
)
def test_a_valuation_is_the_median_weighted_by_match_strength(points: list[Point], cents: int) -> None:
    found = value(points)
    assert found is not None
    assert found.cents == cents
    assert (found.low, found.high) == (min(points).cents, max(points).cents)


def test_what_was_paid_counts_before_what_is_asked_and_that_before_what_is_bid() -> None:
    points = [Point(100, "bid", 100), Point(300, "ask", 100), Point(200, "sold", 50)]
    assert [value(points[:n]).basis for n in (1, 2, 3)] == ["bid", "ask", "sold"]  # type: ignore[union-attr]
    assert value(points).points == 1  # type: ignore[union-attr]


def test_points_that_hardly_fit_count_for_nothing() -> None:
    assert value(sold((100, 49))) is None
    assert value([]) is None
    assert value([*sold((100, 49)), Point(300, "ask", 50)]).basis == "ask"  # type: ignore[union-attr]
