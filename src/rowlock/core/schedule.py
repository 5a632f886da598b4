"""A schedule's definition, and which of the ticks that are due shall fire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from rowlock.core.durations import parse_duration
from rowlock.core.errors import InvalidArguments, seconds

if TYPE_CHECKING:
    from rowlock.core.cron import Rule

OPTIONS = (
    *("rule", "cron", "every", "at", "zone", "seconds", "missed", "missed_most", "missed_window", "overlap", "jitter"),
    *("start", "end", "queue", "priority", "owner", "source", "max_attempts", "max_retry", "timeout"),
    *("timeout_seconds", "args", "handler_params"),
)
SAME = (("max_attempts", "max_retry"), ("timeout", "timeout_seconds"), ("args", "handler_params"))  # in two words
MOST_MISSED = 10_000
SECOND = timedelta(seconds=1)
FIRST, END = datetime(1970, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)  # of the years that have ticks


class Missed(NamedTuple):
    """What becomes of ticks that nobody fired in time: the latest of them, none, or all, up to `most` of those that are
    at most `window` seconds old."""

    kind: Literal["latest", "skip", "all"] = "latest"
    most: int = 100
    window: float = 3600.0


LATEST = Missed()


@dataclass(frozen=True, slots=True)
class Schedule:
    """What to enqueue, and when."""

    id: str
    task: str
    rule: Rule
    args: str = "{}"
    missed: Missed = LATEST
    overlap: Literal["allow", "skip"] = "allow"
    jitter: float = 0.0
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    queue: str = "default"
    priority: int = 0
    owner: str | None = None
    source: str | None = None
    max_attempts: int = 5
    backoff: str | None = None
    timeout_seconds: float | None = None
    on_success: str | None = None
    on_dead: str | None = None
    on_lost: str | None = None
    keep_seconds: float | None = None


def chosen(
    rule: Rule, first: datetime, until: datetime, now: datetime, missed: Missed, on_time: timedelta
) -> list[datetime]:
    """The ticks from `first` up to `until` that fire now, oldest first. Those that are less than `on_time` late were
    not missed: each of them fires, whatever becomes of missed ones."""
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
    """The last `most` ticks of a span, oldest first, without walking through all of it."""
    found: list[datetime] = []
    end = until
    while len(found) < most and (tick := rule.latest(after, end)) is not None:
        found.append(tick)
        end = tick - SECOND
    return found[::-1]


# --- what people write


def check_schedule(wanted: str, given: Mapping[str, Any]) -> tuple[Rule, Missed]:
    """The rule of a definition and its way with missed ticks; mistakes name the schedule."""
    unknown = [key for key in given if key not in OPTIONS]
    if unknown:
        raise InvalidArguments(f"schedule {wanted!r}: no option {unknown[0]!r}; there are {', '.join(OPTIONS)}")
    for one, other in SAME:
        if given.get(one) is not None and given.get(other) is not None:
            raise InvalidArguments(f"schedule {wanted!r}: give {one} or {other}, not both")
    if given.get("max_retry") is not None:
        _whole(wanted, "max_retry", given["max_retry"], 0)
    _one_of(wanted, "seconds", given.get("seconds", False), (False, True))
    _one_of(wanted, "overlap", given.get("overlap", "allow"), ("allow", "skip"))
    kind = _one_of(wanted, "missed", given.get("missed", "latest"), ("latest", "skip", "all"))
    most = _whole(wanted, "missed_most", given.get("missed_most", 100), 1)
    if most > MOST_MISSED:
        raise InvalidArguments(f"schedule {wanted!r}: missed_most must be at most {MOST_MISSED}, not {most}")
    try:
        window = span(given.get("missed_window", 3600), "missed_window")
        return _rule(wanted, given), Missed(kind, most, window)
    except InvalidArguments as error:
        if str(error).startswith("schedule "):
            raise
        raise InvalidArguments(f"schedule {wanted!r}: {error}") from None


def span(value: Any, what: str) -> float:
    """Seconds from a number, a timedelta or text such as 12h."""
    if isinstance(value, str):
        found = parse_duration(value)
        if found is None:
            raise InvalidArguments(f"{what} must be seconds or a time such as 30s, 5m, 12h or 1d, not {value!r}")
        value = found
    return seconds(value, what)


def life(given: Mapping[str, Any]) -> tuple[datetime | None, datetime | None]:
    """From when to when a schedule has ticks."""
    start, end = _edge(given.get("start"), "start"), _edge(given.get("end"), "end")
    if start is not None and end is not None and end < start:
        raise InvalidArguments(f"end {end.isoformat()} is before start {start.isoformat()}: it would never fire")
    return start, end


def _edge(value: Any, what: str) -> datetime | None:
    """A moment, also as text: JSON has nothing else."""
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value.strip()) if isinstance(value, str) else value
    except ValueError:
        moment = None
    if not isinstance(moment, datetime) or moment.utcoffset() is None:
        raise InvalidArguments(f"{what} must be a time with its zone, as 2026-03-01T09:00:00+01:00, not {value!r:.60}")
    if not FIRST <= moment < END:
        raise InvalidArguments(f"{what} must be in the years from 1970 to 2199, not {moment.isoformat()}")
    return moment.astimezone(UTC)


def _rule(wanted: str, given: Mapping[str, Any]) -> Rule:
    """Exactly one of `rule`, `cron`, `every` and `at`."""
    from rowlock.core.cron import parse_rule  # here, because only those who have schedules need it

    ways = [key for key in ("rule", "cron", "every", "at") if given.get(key) is not None]
    if len(ways) != 1:
        raise InvalidArguments(f"schedule {wanted!r}: needs one of cron, every and at, not {', '.join(ways) or 'none'}")
    value = given[ways[0]]
    if ways[0] == "every":
        value = f"every {_seconds(value)}s" if isinstance(value, timedelta) else f"every {value}"
    elif ways[0] == "at":
        value = f"at {value.isoformat() if isinstance(value, datetime) else value}"
    if not isinstance(value, str):
        raise InvalidArguments(f"schedule {wanted!r}: {ways[0]} must be text, not {value!r}")
    return parse_rule(value, given.get("zone", "UTC"), seconds=given.get("seconds", False))


def _seconds(span: timedelta) -> str:
    """All of its digits, and no more."""
    return f"{span.total_seconds():.6f}".rstrip("0").rstrip(".")


def _one_of(wanted: str, what: str, value: Any, known: tuple[Any, ...]) -> Any:
    if value not in known:
        raise InvalidArguments(
            f"schedule {wanted!r}: {what} must be one of {', '.join(map(str, known))}, not {value!r}"
        )
    return value


def _whole(wanted: str, what: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidArguments(f"schedule {wanted!r}: {what} must be a whole number from {least}, not {value!r}")
    return value
