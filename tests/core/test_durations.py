"""Durations, as they are told to people."""

from rowlock.core.times import spell
from support.each import each

TOLD = {
    -3: "0 s",
    0: "0 s",
    0.25: "250 ms",
    5: "5 s",
    9.44: "9.4 s",
    9.97: "10 s",
    45.4: "45 s",
    59.7: "1 min",
    90: "1 min 30 s",
    300: "5 min",
    3599.9: "1 h",
    7800: "2 h 10 min",
    86_400 + 65: "1 d",
    200_000: "2 d 7 h",
}


@each("seconds, text", TOLD.items())
def test_a_duration_is_written_in_its_two_largest_units(seconds: float, text: str) -> None:
    assert spell(seconds) == text
