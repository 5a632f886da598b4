"""When a schedule is due: cron rules, intervals and single moments in any IANA zone. Pure: reads no clock.

A cron rule describes times on the wall clock, but a tick is an instant. The two differ where a zone changes its offset:

- A rule with fixed hours fires when the wall clock first reaches its time or jumps over it: once at the end of the gap
  in spring, even for several times in the gap, and at the first pass of a time that comes twice in autumn.
- A rule for every hour (`*`, `0-23`) or every n-th (`*/n`) fires whenever the wall clock shows its time: both passes.

cronsim parses the rules, matches their days and puts them into words, but this module computes the ticks. cronsim 2.8
returns to the first pass of an hour if it starts within the second pass; it loses ticks in spring and repeats them in
autumn for `*/30 2 * * *` and all rules with seconds; it loses ticks around Lord Howe's half hour; and it can only step
from one tick to the next.
"""

from __future__ import annotations

from bisect import bisect_left
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Literal
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from rowlock.core.errors import InvalidArguments
from rowlock.core.schedules import rule_text as words
from rowlock.core.schedules.rule_text import DAY

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_DAY = EPOCH.toordinal()
SECOND = timedelta(seconds=1)
LAST = (datetime(2200, 1, 1, tzinfo=UTC) - EPOCH) // SECOND - 1  # ticks are in 1970–2199, so every search ends
REACH = 2 * DAY  # two offsets of a zone never differ by more, even if it moved across the date line
CHUNK = 200 * DAY

Span = tuple[int, int, int]  # first second, end, offset, in seconds since 1970; wall-clock times as if they were UTC


@dataclass(frozen=True, slots=True)
class Rule:
    """When to fire, in whole seconds. Rules with the same text and zone have the same ticks in every process."""

    kind: Literal["cron", "every", "once"]
    text: str
    zone: str

    def next(self, after: datetime) -> datetime | None:
        """The first tick after a moment, in UTC."""
        tick = _timeline(self).find(_second(after) + 1, LAST, 1)
        return None if tick is None else EPOCH + tick * SECOND

    def ticks(self, after: datetime, until: datetime, most: int) -> tuple[list[datetime], bool]:
        """The first `most` ticks after `after`, up to and including `until`, and whether there are more."""
        timeline, at, end = _timeline(self), _second(after), _second(until)
        found: list[datetime] = []
        while (tick := timeline.find(at + 1, end, 1)) is not None:
            if len(found) >= most:
                return found, True
            found.append(EPOCH + tick * SECOND)
            at = tick
        return found, False

    def latest(self, after: datetime, until: datetime) -> datetime | None:
        """The last tick after `after`, up to and including `until`, found without computing the ticks before it."""
        tick = _timeline(self).find(_second(until), _second(after) + 1, -1)
        return None if tick is None else EPOCH + tick * SECOND

    def words(self) -> str:
        """The rule for people: at 03:00 in Asia/Seoul, every day."""
        timeline = _timeline(self)
        if isinstance(timeline, _Cron):
            return words.cron_words(timeline.sim.explain(), self.zone)
        if isinstance(timeline, _Every):
            return words.interval_words(timeline.seconds)
        return words.moment_words(EPOCH + timeline.at * SECOND, self.zone)


def parse_rule(text: str, zone: str = "UTC", *, seconds: bool = False) -> Rule:
    """Parse cron (with six fields if `seconds`), `@daily`, `every 30s`, or `at 2026-03-01T09:00` in a zone."""
    words.check_zone(zone)
    tidy = words.tidy(text)
    if tidy[:5].lower() == "every":
        return Rule("every", words.interval_text(words.interval(tidy)), zone)
    if words.LIKE_A_MOMENT.match(tidy):
        return Rule("once", f"at {(EPOCH + _instant(tidy, zone) * SECOND).isoformat()}", zone)
    parts = (words.macro(tidy) if tidy.startswith("@") else tidy).upper().split()
    words.check_cron(tidy, parts, seconds, _build_cron)
    rule = Rule("cron", " ".join(parts), zone)
    _timeline(rule)
    return rule


def _second(moment: datetime) -> int:
    """The second since 1970 that contains a moment, clamped to the years that have ticks."""
    if not isinstance(moment, datetime) or moment.utcoffset() is None:
        raise InvalidArguments(f"{moment!r:.60} is not a datetime with a time zone; give one such as datetime.now(UTC)")
    return min(max((moment - EPOCH) // SECOND, -1), LAST)


def _instant(text: str, zone: str) -> int:
    """The second of `at …`, rounded up."""
    at = words.moment(text)
    second = -((EPOCH - at.replace(tzinfo=at.tzinfo or UTC)) // SECOND)
    if at.tzinfo is None and 0 <= second <= LAST:
        second = _first_pass(zone, second)
    if not 0 <= second <= LAST:
        raise words.refused(text, "is not in the years from 1970 to 2199")
    return second


@dataclass(frozen=True, slots=True)
class _Once:
    at: int

    def find(self, at: int, end: int, step: int) -> int | None:
        return self.at if at * step <= self.at * step <= end * step else None


@dataclass(frozen=True, slots=True)
class _Every:
    seconds: int

    def find(self, at: int, end: int, step: int) -> int | None:
        """Ticks are multiples of the interval since 1970, so that all dispatchers agree."""
        tick = (at + (self.seconds - 1 if step > 0 else 0)) // self.seconds * self.seconds
        return tick if tick * step <= end * step else None


@dataclass(frozen=True, slots=True, eq=False)
class _Cron:
    sim: CronSim
    zone: str
    clock: dict[int, tuple[tuple[int, ...], ...]]  # hours, minutes, seconds by direction; negative if backward
    real_time: bool

    def find(self, at: int, end: int, step: int) -> int | None:
        """The first tick from one second to another, forward (1) or backward (-1)."""
        low, high = (at, end)[::step]
        if not self.real_time:
            first, last = (_latest_wall_time(self.zone, low - 1) + 1, _latest_wall_time(self.zone, high))[::step]
            wall = self.search(first, last, step)
            return None if wall is None else _first_pass(self.zone, wall)
        for start, stop, offset in _spans(self.zone, low, high, step):
            first, last = (max(start, low) + offset, min(stop - 1, high) + offset)[::step]
            if (wall := self.search(first, last, step)) is not None:
                return wall - offset
        return None

    def search(self, wall: int, end: int, step: int) -> int | None:
        """The first matching time on the wall clock, from one to another."""
        day, second = divmod(wall, DAY)
        at = second // 3600 * step, second // 60 % 60 * step, second % 60 * step
        digits = _first_not_before(self.clock[step], at) if self.day(day, day, step) == day else None
        if digits is None:
            later = self.day(day + step, end // DAY, step)
            if later is None:
                return None
            day, digits = later, tuple(values[0] for values in self.clock[step])
        found = day * DAY + (digits[0] * 3600 + digits[1] * 60 + digits[2]) * step
        return found if found * step <= end * step else None

    def day(self, day: int, end: int, step: int) -> int | None:
        """The first matching day, in days since 1970."""
        while day * step <= end * step:
            this = date.fromordinal(EPOCH_DAY + day)
            if this.month not in self.sim.months:
                day += monthrange(this.year, this.month)[1] - this.day + 1 if step > 0 else -this.day
            elif self.sim.match_day(this):
                return day
            else:
                day += step
        return None


def _build_cron(text: str, zone: str = "UTC") -> _Cron:
    """Build a cron rule whose fields are valid; refuses a rule that no date matches."""
    try:
        sim = CronSim(text, datetime(2000, 1, 1))
    except CronSimError:  # the fields are valid, so it refuses a day that none of the months has
        raise words.Never(text, "none of its months has that day", "L") from None
    digits = tuple(tuple(sorted(values)) for values in (sim.hours, sim.minutes, sim.seconds))
    back = tuple(tuple(-value for value in reversed(values)) for values in digits)
    cron = _Cron(sim, zone, {1: digits, -1: back}, sim.parts[2].startswith("*") or len(sim.hours) == 24)
    if cron.day(365 * 30, 365 * 59, 1) is None:  # within 28 years, each date falls on each weekday
        raise words.Never(text, "no day fits both its day-of-month and its day-of-week", "*")
    return cron


@lru_cache(maxsize=16_384)  # more than a dispatcher has schedules, else each round would parse every rule
def _timeline(rule: Rule) -> _Once | _Every | _Cron:
    words.check_zone(rule.zone)
    text = words.tidy(rule.text)
    if rule.kind == "once":
        return _Once(_instant(text, rule.zone))
    if rule.kind == "every":
        return _Every(words.interval(text))
    words.check_cron(text, text.split(), True, _build_cron)
    return _build_cron(text, rule.zone)


def _first_not_before(clock: tuple[tuple[int, ...], ...], at: tuple[int, ...]) -> tuple[int, ...] | None:
    """The first allowed (hour, minute, second) that is not before `at`; None if there is none."""
    values, rest = clock[0], clock[1:]
    here = bisect_left(values, at[0])
    if here < len(values) and values[here] == at[0]:
        tail = _first_not_before(rest, at[1:]) if rest else ()
        if tail is not None:
            return at[0], *tail
        here += 1
    return (values[here], *(others[0] for others in rest)) if here < len(values) else None


def _latest_wall_time(zone: str, at: int) -> int:
    """The latest time that the wall clock has shown before or at an instant."""
    return max(min(end - 1, at) + offset for _, end, offset in _spans(zone, at - REACH, at))


def _first_pass(zone: str, wall: int) -> int:
    """The instant at which the wall clock first reached a time, or jumped over it."""
    spans = _spans(zone, wall - REACH, wall + REACH)
    return next(max(start, wall - offset) for start, end, offset in spans if end + offset > wall)


def _spans(zone: str, since: int, until: int, step: int = 1) -> Iterator[Span]:
    """The spans of constant offset that overlap the period from `since` to `until`."""
    for index in range(since // CHUNK, until // CHUNK + 1)[::step]:
        for span in _chunk(zone, index)[::step]:
            if span[0] <= until and span[1] > since:
                yield span


@lru_cache(maxsize=8_192)
def _chunk(zone: str, index: int) -> tuple[Span, ...]:
    """zoneinfo doesn't list a zone's changes, so look at each day. Since 1970 no zone has changed twice in a week."""
    info = ZoneInfo(zone)

    def offset(at: int) -> int:
        moment = EPOCH + at * SECOND
        return (moment.astimezone(info).replace(tzinfo=UTC) - moment) // SECOND

    spans: list[Span] = []
    start, end = index * CHUNK, (index + 1) * CHUNK
    now = offset(start)
    for day in range(start, end, DAY):
        if offset(day + DAY) != now:
            change = day + 1 + bisect_left(range(day + 1, day + DAY), True, key=lambda at: offset(at) != now)
            spans.append((start, change, now))
            start, now = change, offset(change)
    return *spans, (start, end, now)
