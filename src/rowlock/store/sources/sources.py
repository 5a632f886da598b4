"""What operators do with sources: change settings, pause and resume, look at health. For claims see claim.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import NamedTuple

from rowlock.core.errors import InvalidArguments
from rowlock.core.sources.admission import class_of, default_burst, level, standing
from rowlock.core.sources.policy import SHIPPED, Policy
from rowlock.store.engine.operation import Call, Row, Steps, operation
from rowlock.store.engine.records import record
from rowlock.store.engine.wake import wake_idle


@dataclass(frozen=True, slots=True)
class Source:
    """A source or source class: its own settings, its health, and the limits in effect."""

    name: str
    policy: Policy
    set_by: str | None
    enabled: bool
    paused_until: datetime | None
    failure_streak: int
    opened_at: datetime | None
    opens: int
    last_success_at: datetime | None
    last_failure_at: datetime | None
    last_error: str | None
    refusals: int
    refused_at: datetime | None
    refusal_code: str | None
    running: int
    concurrency: int | None  # the limit in effect: its own, else that of its class
    rate_limit_per_minute: float | None
    class_enabled: bool
    class_paused_until: datetime | None

    @property
    def is_class(self) -> bool:
        """Whether this is a source class, whose settings are the defaults of its sources."""
        return ":" not in self.name

    def state(self, now: datetime) -> str:
        """Its state now, in the words of `standing`. A closed class closes its sources."""
        paused = any(until is not None and until > now for until in (self.paused_until, self.class_paused_until))
        return standing(self.enabled and self.class_enabled, self.opened_at is not None, paused)


@operation()
def set_policy(
    name: str, changes: Mapping[str, float | int | None], by: str | None = "operator", afresh: bool = False
) -> Steps[bool]:
    """Change settings of a source or class. None resets a setting to its shipped default; `afresh` resets all settings
    that are not in `changes`. A config (`by="config"`) never overwrites an operator's settings: it changes nothing and
    gets False. The class of a new source must exist, unless a config names the source; a class may be new."""
    if by != "config" and ":" in name:
        yield from _known(name)
    yield Call("make_sources", made=[(made,) for made in sorted({name, class_of(name)})])
    (row,) = yield Call("lock_policy", name=name)
    if by == "config" and row.set_by == "operator":
        return False
    shipped = asdict(SHIPPED.get(name, Policy()))
    given = {key: shipped[key] if value is None else value for key, value in changes.items()}
    policy = (shipped if afresh else asdict(record(Policy, row))) | given
    yield Call("write_policy", name=name, set_by=by, **policy)
    yield from wake_idle()
    return True


@operation()
def ship(name: str) -> Steps[None]:
    """Write the shipped settings of a class, but only those that have no value yet."""
    yield Call("make_sources", made=[(name,)])
    (row,) = yield Call("lock_policy", name=name)
    there, shipped = asdict(record(Policy, row)), asdict(SHIPPED[name])
    policy = {key: shipped[key] if value is None else value for key, value in there.items()}
    if policy != there:
        yield Call("write_policy", name=name, set_by=row.set_by, **policy)


@operation()
def pause(name: str, seconds: float | None) -> Steps[None]:
    """Stop claims from a source or a whole class for `seconds`, or (None) until it is resumed."""
    yield from _known(name)
    yield Call("make_sources", made=[(made,) for made in sorted({name, class_of(name)})])
    yield Call("pause_source", name=name, seconds=seconds, whole=int(":" not in name))


@operation()
def resume(name: str) -> Steps[None]:
    """Allow claims again: end the pause, enable the source, close its breaker."""
    if not (yield Call("resume_source", name=name)):
        yield from _known(name)
    yield from wake_idle()


def _known(name: str) -> Steps[None]:
    """Raise InvalidArguments if the class does not exist: the name is most likely misspelt."""
    if not (yield Call("source_known", name=name, class_name=class_of(name))):
        classes = ", ".join(row.name for row in (yield Call("source_classes"))) or "none"
        source_class = class_of(name)
        of = f"source {name!r}: " if name != source_class else ""
        raise InvalidArguments(
            f"{of}no class {source_class!r}; known: {classes}. To create it: rowlock sources set {source_class}"
        )


@operation(read=True)
def sources(n: int, after: str = "", only: str | None = None, refused: int = 0) -> Steps[list[Source]]:
    """Up to `n` sources and classes, by name; only those with at least `refused` refusals in a row."""
    rows = yield Call("list_sources", n=n, name=after, only=only, refused=refused)
    return [_source(row) for row in rows]


@dataclass(frozen=True, slots=True)
class BusySource:
    """A source that is closed or has running jobs, as `rowlock top` shows it."""

    name: str
    state: str  # in the words of `standing`
    running: int
    concurrency: int | None
    tokens: float | None  # in its token bucket now; None without a rate limit
    burst: int | None
    paused_for: float | None  # seconds
    failure_streak: int


@operation(read=True)
def busy(n: int) -> Steps[list[BusySource]]:
    """Up to `n` sources that are closed or have running jobs, closed ones first."""
    return [_busy(row) for row in (yield Call("busy_sources", n=n))]


def _busy(row: Row) -> BusySource:
    paused = row.paused_for is not None and row.paused_for > 0
    return record(
        BusySource,
        row,
        state=standing(row.enabled, row.opened, paused),
        tokens=_tokens(row),
        burst=None if row.rate is None else row.burst or default_burst(row.rate),
        paused_for=float(row.paused_for) if paused else None,
    )


def _tokens(row: Row) -> float | None:
    """Tokens in the bucket now, from the columns of the part `bucket`. None without a rate limit."""
    return None if row.rate is None else level(row.rate, row.burst, row.tokens, row.elapsed)


class SourceLevel(NamedTuple):
    """A source now, for metrics."""

    name: str
    state: str  # in the words of `standing`
    tokens: float | None  # starts that its rate limit allows now; None without a rate limit


@operation(read=True)
def levels() -> Steps[list[SourceLevel]]:
    """Up to 2,000 sources, those with their own limits first."""
    return [
        SourceLevel(row.name, standing(row.enabled, row.opened, row.paused), _tokens(row))
        for row in (yield Call("source_levels", n=2_000))
    ]


@operation(read=True)
def tokens(names: Sequence[str]) -> Steps[dict[str, float]]:
    """Tokens in the buckets of these sources now, without the sources that have no rate limit."""
    rows = (yield Call("source_tokens", asked=[(name,) for name in names])) if names else []
    return {row.name: found for row in rows if (found := _tokens(row)) is not None}


@operation(read=True)
def set_by_config() -> Steps[list[str]]:
    """Up to a hundred sources and classes whose settings come from a config file."""
    return [row.name for row in (yield Call("set_by_config", n=100))]


def _source(row: Row) -> Source:
    return record(
        Source,
        row,
        policy=record(Policy, row),
        running=int(row.running if ":" in row.name else row.class_running),
        concurrency=row.effective_concurrency,
    )
