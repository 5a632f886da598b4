"""The definition of a schedule, and the choice of the due ticks that fire."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from rowlock.core import option_checks as check
from rowlock.core.errors import InvalidArguments, seconds, whole
from rowlock.core.options import JobOptions, checked, names_in
from rowlock.core.times import parse_duration

if TYPE_CHECKING:
    from rowlock.core.schedules.rule import Rule

RULE_OPTIONS = (
    *("rule", "cron", "every", "at", "zone", "seconds", "missed", "missed_most", "missed_window", "overlap", "jitter"),
    *("start", "end", "args"),
)
# Other names for three options, from the config file of the cronjobs system. Only one of each pair may be given.
SYNONYMS = {"max_retry": "max_attempts", "timeout_seconds": "timeout", "handler_params": "args"}
MOST_MISSED = 10_000
SECOND = timedelta(seconds=1)


class Missed(NamedTuple):
    """Which missed ticks fire late: the latest, none, or all (at most `most` of them). Ticks older than `window`
    seconds never fire."""

    kind: Literal["latest", "skip", "all"] = "latest"
    most: int = 100
    window: float = 3600.0


LATEST = Missed()


@dataclass(frozen=True, slots=True)
class Schedule(JobOptions):
    """The task to enqueue, when, and the options of each tick's job."""

    id: str
    task: str
    rule: Rule
    args: str = "{}"
    missed: Missed = LATEST
    overlap: Literal["allow", "skip"] = "allow"
    jitter: float = 0.0
    starts_at: datetime | None = None
    ends_at: datetime | None = None


def ticks_to_fire(
    rule: Rule, first: datetime, until: datetime, now: datetime, missed: Missed, on_time: timedelta
) -> list[datetime]:
    """The ticks from `first` up to `until` that fire now, oldest first. A tick that is less than `on_time` late doesn't
    count as missed: it fires whatever `missed` is."""
    window = max(on_time, timedelta(seconds=missed.window))
    due = _last(rule, max(first, now - on_time) - SECOND, until, MOST_MISSED)
    punctual = [tick for tick in due if now - tick < on_time]
    if missed.kind == "all":
        return sorted({*_last(rule, max(first, now - window) - SECOND, until, missed.most), *punctual})
    if punctual or missed.kind == "skip":
        return punctual
    latest = rule.latest(first - SECOND, until)
    return [latest] if latest is not None and now - latest <= window else []


def _last(rule: Rule, after: datetime, until: datetime, most: int) -> list[datetime]:
    """The last `most` ticks of a period, oldest first, without computing the earlier ones."""
    found: list[datetime] = []
    end = until
    while len(found) < most and (tick := rule.latest(after, end)) is not None:
        found.append(tick)
        end = tick - SECOND
    return found[::-1]


def first_tick(rule: Rule, starts_at: datetime | None, ends_at: datetime | None, now: datetime) -> datetime | None:
    """The first tick after now, between the schedule's start and end."""
    after = now if starts_at is None else max(now, starts_at - timedelta(seconds=1))
    tick = rule.next(after)
    return None if tick is None or (ends_at is not None and tick > ends_at) else tick


# --- definitions from code and config


@contextmanager
def naming(wanted: Any) -> Iterator[None]:
    """Prefix the message of every InvalidArguments raised in a block with the schedule's name."""
    try:
        yield
    except InvalidArguments as error:
        raise InvalidArguments(f"schedule {wanted!r}: {error}") from None


def checked_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that a schedule gives to its jobs, by field. Unknown options are refused by name."""
    jobs = names_in("schedule")
    known = (*RULE_OPTIONS, *jobs, *SYNONYMS)
    if unknown := [key for key in given if key not in known]:
        raise InvalidArguments(f"no option {unknown[0]!r}; there are {', '.join(known)}")
    for other, one in SYNONYMS.items():
        if given.get(one) is not None and given.get(other) is not None:
            raise InvalidArguments(f"give {one} or {other}, not both")
    options = {key: given[key] for key in jobs if key in given}
    if given.get("max_retry") is not None:
        options["max_attempts"] = whole(given["max_retry"], "max_retry", 0) + 1  # the first run is not a retry
    timeout = options.get("timeout", given.get("timeout_seconds"))
    if timeout is not None:
        options["timeout"] = span(timeout, "timeout")
    return checked("schedule", options)


def rule_of(given: Mapping[str, Any]) -> tuple[Rule, Missed]:
    """A schedule's rule, and what happens to missed ticks."""
    _one_of("seconds", given.get("seconds", False), (False, True))
    _one_of("overlap", given.get("overlap", "allow"), ("allow", "skip"))
    kind = _one_of("missed", given.get("missed", "latest"), ("latest", "skip", "all"))
    most = whole(given.get("missed_most", 100), "missed_most", 1)
    if most > MOST_MISSED:
        raise InvalidArguments(f"missed_most must be at most {MOST_MISSED}, not {most}")
    window = span(given.get("missed_window", 3600), "missed_window")
    return _rule(given), Missed(kind, most, window)


def span(value: Any, what: str) -> float:
    """The seconds of a number, a timedelta or text such as 12h."""
    if isinstance(value, str):
        found = parse_duration(value)
        if found is None:
            raise InvalidArguments(f"{what} must be seconds or a time such as 30s, 5m, 12h or 1d, not {value!r}")
        value = found
    return seconds(value, what)


def life(given: Mapping[str, Any]) -> tuple[datetime | None, datetime | None]:
    """The moments at which a schedule's ticks start and end."""
    start, end = _edge(given.get("start"), "start"), _edge(given.get("end"), "end")
    if start is not None and end is not None and end < start:
        raise InvalidArguments(f"end {end.isoformat()} is before start {start.isoformat()}, so it never fires")
    return start, end


def _edge(value: Any, what: str) -> datetime | None:
    """A moment, given as a datetime or, because JSON has no times, as ISO text."""
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value.strip()) if isinstance(value, str) else value
    except ValueError:
        moment = None
    if not isinstance(moment, datetime) or moment.utcoffset() is None:
        raise InvalidArguments(
            f"{what} must be a time with its zone, like 2026-03-01T09:00:00+01:00, not {value!r:.60}"
        )
    return check.moment(moment, what)


def _rule(given: Mapping[str, Any]) -> Rule:
    """The rule that exactly one of `rule`, `cron`, `every` and `at` gives."""
    # Imported here because it is slow, and most programs have no schedules.
    from rowlock.core.schedules.rule import parse_rule

    ways = [key for key in ("rule", "cron", "every", "at") if given.get(key) is not None]
    if len(ways) != 1:
        raise InvalidArguments(f"needs one of cron, every and at; given: {', '.join(ways) or 'none'}")
    value = given[ways[0]]
    if ways[0] == "every":
        if isinstance(value, timedelta):
            value = f"{value.total_seconds():.6f}".rstrip("0").rstrip(".") + "s"
        value = f"every {value}"
    elif ways[0] == "at":
        value = f"at {value.isoformat() if isinstance(value, datetime) else value}"
    if not isinstance(value, str):
        raise InvalidArguments(f"{ways[0]} must be text, not {value!r}")
    return parse_rule(value, given.get("zone", "UTC"), seconds=given.get("seconds", False))


def _one_of(what: str, value: Any, known: tuple[Any, ...]) -> Any:
    if value not in known:
        raise InvalidArguments(f"{what} must be one of {', '.join(map(str, known))}, not {value!r}")
    return value
