"""Medians, spreads and paired ratios: what makes a noisy machine's numbers comparable."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Spread:
    """What several rounds gave."""

    median: float
    low: float
    high: float
    rounds: int


def spread(values: Iterable[float]) -> Spread | None:
    """Median and extremes; None when there is nothing."""
    found = list(values)
    return Spread(median(found), min(found), max(found), len(found)) if found else None


def paired(top: Mapping[int, float], bottom: Mapping[int, float]) -> list[float]:
    """The ratios within each round that has both, so that what slows a whole round down cancels out."""
    return [top[number] / bottom[number] for number in sorted(top.keys() & bottom.keys()) if bottom[number]]


def percentile(values: Iterable[float], share: float) -> float:
    """The smallest value that `share` of all values do not exceed."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values")
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
