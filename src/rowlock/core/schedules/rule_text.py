"""Schedule rules as text: the accepted forms, errors that suggest the nearest valid rule, and rules in words."""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from difflib import get_close_matches
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from rowlock.core.errors import InvalidArguments

MAX_TEXT = 200
DAY = 86_400
MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
UNITS = {"w": 7 * DAY, "d": DAY, "h": 3600, "m": 60, "s": 1}
UNIT_WORDS = {"w": "week", "d": "day", "h": "hour", "m": "minute", "s": "second"}
FORMS = "write cron as in '0 3 * * *', 'every 30s', or 'at 2026-03-01T09:00:00'"

LIKE_A_MOMENT = re.compile(r"at\b|\d{4}-\d{1,2}-", re.IGNORECASE)
_MOMENT = re.compile(r"(\d{4})-(\d\d?)-(\d\d?)[T ](\d\d?):(\d\d)(?::(\d\d)(?:\.(\d{1,6}))?)? ?(Z|[+-]\d\d:?[0-5]\d)?")
_TIMES = re.compile(r"at [0-9:]{5,8}(?:(?:, and |, | and )[0-9:]{5,8})*(?= )")


def refused(text: str, why: str) -> InvalidArguments:
    """The error for a text that is not a rule."""
    return InvalidArguments(f"the rule {text[:60]!r}{'…' if len(text) > 60 else ''} {why}")


def tidy(text: object) -> str:
    """The text with single spaces; refuses a text that can't be a rule of any form."""
    if not isinstance(text, str):
        raise InvalidArguments(f"a rule must be text, not {type(text).__name__}; {FORMS}")
    if len(text) > MAX_TEXT:
        raise refused(text, f"has {len(text)} characters, more than {MAX_TEXT}; split it into several schedules")
    tidied = " ".join(text.split())
    if not tidied:
        raise refused(text, f"is empty; {FORMS}")
    if bad := next((c for c in tidied if not " " <= c <= "~"), ""):
        raise refused(text, f"has {bad!r} at position {text.index(bad)}; only plain ASCII is allowed")
    return tidied


@lru_cache(maxsize=1)
def _zones() -> frozenset[str]:
    return frozenset(available_timezones() - {"localtime"})  # `localtime` is a different zone on each machine


def check_zone(zone: object) -> None:
    """Raise InvalidArguments unless `zone` is an IANA time zone."""
    if not isinstance(zone, str):
        raise InvalidArguments(f"a zone must be an IANA name such as 'Asia/Seoul', not {type(zone).__name__}")
    if zone == "UTC" or zone in _zones():
        return
    # Never suggest Etc/GMT+9: it is nine hours *behind* UTC, but people who write GMT+9 mean nine hours ahead.
    known = {name.lower(): name for name in _zones() if not re.search(r"\d$", name)}
    near = get_close_matches(zone[:60].lower(), known, 3, 0.5)
    hint = f"did you mean {' or '.join(known[name] for name in near)}?" if near else "give an IANA name like Asia/Seoul"
    raise InvalidArguments(f"unknown zone {zone[:60]!r}; {hint}")


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a cron rule: its name and allowed values."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()  # the first means `low`

    def value(self, text: str) -> int | None:
        if text in self.names:
            return self.low + self.names.index(text)
        return int(text) if text.isdigit() and self.low <= int(text) <= self.high else None

    def nearest(self, text: str) -> str:
        """The valid value that is nearest to an invalid one, or ""."""
        if text.isdigit():
            return str(self.high if int(text) > self.high else self.low)
        return "*" if text == "?" else next(iter(get_close_matches(text[:3], self.names, 1, 0.6)), "")


DAY_OF_MONTH = Field("day-of-month", 1, 31)
MONTH = Field("month", 1, 12, ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"))
DAY_OF_WEEK = Field("day-of-week", 0, 7, ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"))
FIELDS = (Field("second", 0, 59), Field("minute", 0, 59), Field("hour", 0, 23), DAY_OF_MONTH, MONTH, DAY_OF_WEEK)


def check_cron(text: str, parts: list[str], seconds: bool, check_dates: Callable[[str], object]) -> None:
    """Refuse an invalid cron rule: name the wrong field and suggest the nearest valid rule. `check_dates` raises Never
    for a rule that no date matches; it is called for the suggestion, not for the rule itself."""
    fault, nearest = _correct(parts)
    if len(parts) == 6 and not seconds:
        fault = "has 6 fields, but a rule that begins with seconds needs the option seconds"
        nearest = _correct(parts[1:])[1]
    elif len(parts) not in (5, 6):
        fault = f"has {len(parts)} field{'s' * (len(parts) > 1)}; "
        fault += "cron has 5: minute, hour, day-of-month, month, day-of-week" if len(parts) > 2 else FORMS
        name = f"@{text.lower()}"
        nearest = _correct([*parts, "*"])[1] if len(parts) == 4 else name if name in MACROS else ""
    if fault:
        nearest = _usable(nearest, check_dates)
        raise refused(text, fault + (f"; nearest: {nearest!r}" if nearest else ""))


class Never(InvalidArguments):
    """No date matches a rule; `nearest` is the rule with a day-of-month that some date matches."""

    def __init__(self, text: str, why: str, day: str) -> None:
        parts = text.split()
        self.nearest = " ".join([*parts[:-3], day, *parts[-2:]])
        super().__init__(str(refused(text, f"never fires: {why}; nearest: {self.nearest!r}")))


def _usable(mended: str, check_dates: Callable[[str], object]) -> str:
    """The suggested rule, or the nearest one that fires: following a suggestion must not lead to another error."""
    try:
        if mended and not mended.startswith("@"):
            check_dates(mended)
    except Never as error:
        return error.nearest
    return mended


def _correct(parts: list[str]) -> tuple[str, str]:
    """The first fault of a rule ("" if none), and the rule with all faults corrected ("" if that cannot be guessed)."""
    faults: list[str] = []
    mended: list[str] = []
    for field, part in zip(FIELDS[-len(parts) :], parts, strict=False):
        items: list[str] = []
        for item in part.split(","):
            why, nearest = _fault(field, item) if item else ("an item is missing", "")
            if why:
                faults.append(f"has a wrong {field.name} {item[:20]!r}: {why}")
            if item:
                items.append(nearest if why else item)
        mended.append(",".join(items) if all(items) else "")
    return faults[0] if faults else "", " ".join(mended) if all(mended) else ""


def _fault(field: Field, item: str) -> tuple[str, str]:
    """The fault of one item of a field ("" if none), and the nearest valid item."""
    base, slash, step = item.partition("/")
    if field is DAY_OF_MONTH and base in ("L", "LW"):
        return ("the last day can't have a step", base) if slash else ("", "")
    if field is DAY_OF_WEEK and (found := re.fullmatch(r"(\w+)(L|#\w*)", item)):
        day = field.value(found[1])
        if day is not None and re.fullmatch(r"\dL|\w+#[1-5]", item):
            return "", ""
        why = "the last Friday of a month is 5L, the second is FRI#2, and there are at most five"
        return why, "" if day is None else f"{day}L" if found[2] == "L" else f"{day}#5"
    values = base.split("-", 1)
    if base != "*" and (wrong := [value for value in values if field.value(value) is None]):
        allowed = f"{field.low}–{field.high}" + (f" or {field.names[0]}–{field.names[-1]}" if field.names else "")
        near = [field.nearest(value) if value in wrong else value for value in values]
        why, again = _fault(field, "-".join(near)) if all(near) else ("no idea", "")
        return f"only {allowed} are allowed", again if why else "-".join(near)
    numbers = [field.value(value) or 0 for value in values] if base != "*" else [field.low]
    if numbers[-1] < numbers[0]:
        return "the range runs backwards", _split_wrapped(field, *numbers)
    if slash and not (step.isdigit() and int(step)):
        return "a step is a number from 1 on", base
    if slash and len(values) == 2 and numbers[0] == numbers[1]:  # cronsim would continue to the end of the field
        return "a range of one value can't have a step", values[0]
    if slash and int(step) > field.high - field.low:
        return f"a step over {field.high - field.low} never reaches a second value", str(numbers[0])
    return "", ""


def _split_wrapped(field: Field, first: int, last: int) -> str:
    """Split a range that wraps around (22-3) into two."""
    if field is DAY_OF_WEEK and last == 0:
        return f"{first}-7"
    top = 6 if field is DAY_OF_WEEK else field.high
    head = f"{first}-{top}" if first < top else str(first)
    return f"{head},{field.low}-{last}" if last > field.low else f"{head},{last}"


def macro(text: str) -> str:
    """The cron rule of a macro such as @daily."""
    if found := MACROS.get(text.lower()):
        return found
    if text.lower().startswith("@every "):
        raise refused(text, f"isn't a macro; did you mean {text[1:].lower()!r}?")
    near = get_close_matches(text.lower(), MACROS, 1, 0.6)
    raise refused(
        text, f"isn't a macro; did you mean {near[0]}?" if near else f"isn't a macro; known: {', '.join(MACROS)}"
    )


def interval(text: str) -> int:
    """The seconds of `every 90m`."""
    found = re.fullmatch(r"every ?([0-9]{0,12}(?:\.[0-9]{1,6})?) ?([a-z]*)", text.lower())
    number, unit = (found[1], found[2]) if found else ("", "")
    if number and not unit:
        raise refused(text, f"has no unit; did you mean 'every {number}s' or 'every {number}m'?")
    if not number or unit not in UNITS:
        letter = unit[:1] if unit[:1] in UNITS and UNIT_WORDS[unit[:1]].startswith(unit.rstrip("s")) else ""
        hint = f"did you mean 'every {number or 1}{letter}'?" if letter else "write 'every 30s', or 5m, 2h, 1d, 1w"
        raise refused(text, f"isn't an interval of one number and one unit; {hint}")
    length = Decimal(number) * UNITS[unit]
    if not 1 <= length <= 366 * DAY:
        raise refused(text, "is not between 1 second and 366 days; the nearest are 'every 1s' and 'every 366d'")
    if length != int(length):
        raise refused(text, f"is not in whole seconds; nearest: {interval_text(round(length))!r}")
    return int(length)


def interval_text(seconds: int) -> str:
    """An interval in its largest unit without a fraction."""
    unit = next(unit for unit, length in UNITS.items() if seconds % length == 0)
    return f"every {seconds // UNITS[unit]}{unit}"


def moment(text: str) -> datetime:
    """The moment of `at 2026-03-01T09:00`, as a naive datetime if it has no offset."""
    found = _MOMENT.fullmatch(text.upper().removeprefix("AT "))
    if not found:
        raise refused(
            text, "isn't a date and time; write it as 'at 2026-03-01T09:00:00' or with an offset, +09:00 or Z"
        )
    *numbers, fraction, offset = found.groups()
    year, month, day, hour, minute, second = (int(number or 0) for number in numbers)
    try:
        zone = None
        if offset:
            hours = timedelta(hours=int(offset[1:3]), minutes=int(offset[-2:])) if offset != "Z" else timedelta()
            zone = timezone(-hours if offset[0] == "-" else hours)
        return datetime(year, month, day, hour, minute, second, int((fraction or "").ljust(6, "0")), zone)
    except ValueError as error:
        hint = ""
        if 1 <= month <= 12 and year and day > (last := calendar.monthrange(year, month)[1]):
            hint = f"; nearest: 'at {year:04}-{month:02}-{last}T{hour:02}:{minute:02}'"
        raise refused(text, f"is a date and time that does not exist ({error}){hint}") from None


def cron_words(explained: str, zone: str) -> str:
    """cronsim's words with the zone inserted: at 03:00 in Asia/Seoul, every day."""
    text = explained[0].lower() + explained[1:]
    times = _TIMES.match(text)
    return f"{times[0]} in {zone}, {text[times.end() + 1 :]}" if times else f"{text}, in {zone}"


def interval_words(seconds: int) -> str:
    """every 90 minutes; for whole days also when counting began, which isn't midnight in the schedule's zone."""
    text = interval_text(seconds)
    number, unit = int(text[6:-1]), UNIT_WORDS[text[-1]]
    every = f"every {unit}" if number == 1 else f"every {number} {unit}s"
    return every if seconds % DAY else f"{every}, counted from Thursday 1970-01-01 00:00 UTC"


def moment_words(at: datetime, zone: str) -> str:
    """once, at 2026-03-01 18:00 in Asia/Seoul."""
    local = at.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    return f"once, at {local.isoformat(' ', 'auto' if local.second else 'minutes')} in {zone}"
