"""Works out what a coin is worth from the prices of markets. Without I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rowlock_apps.coins.listing import PriceType

CURRENCY = "USD"  # points in other currencies are kept, but not counted: there are no exchange rates here
WEAKEST = 50  # points with a lower match strength are often about another coin
BASES: tuple[PriceType, ...] = ("sold", "ask", "bid")  # prices paid say more than prices asked


class Point(NamedTuple):
    """What a valuation needs of a price point."""

    cents: int
    type: str
    strength: int


@dataclass(frozen=True, slots=True)
class Valuation:
    """The weighted median of the best kind of price there is, and the range it comes from."""

    cents: int
    low: int
    high: int
    basis: PriceType
    points: int


def value(points: Sequence[Point]) -> Valuation | None:
    """None while no point fits well enough."""
    for basis in BASES:
        counted = sorted(point for point in points if point.type == basis and point.strength >= WEAKEST)
        if counted:
            middle = _weighted_median(counted)
            return Valuation(middle, counted[0].cents, counted[-1].cents, basis, len(counted))
    return None


def _weighted_median(ordered: Sequence[Point]) -> int:
    """The price with half of the weight below it; between two prices if the halves meet there."""
    total, below = sum(point.strength for point in ordered), 0
    for number, point in enumerate(ordered):
        below += point.strength
        if 2 * below > total:
            return point.cents
        if 2 * below == total:
            return (point.cents + ordered[number + 1].cents + 1) // 2
    raise ValueError("no points")
