"""Operations on sources for operators: settings, pauses, health, refusals. Claiming is in sourced_claim.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime

from rowlock.core.errors import InvalidArguments
from rowlock.core.source import SHIPPED, Policy, class_of, default_burst, level
from rowlock.store.engines.operation import Call, Row, Steps, operation
from rowlock.store.times import moment
from rowlock.store.wake import wake_idle


@dataclass(frozen=True, slots=True)
class Source:
    """A source or source class: its own settings, its health, and the limits that hold for it."""

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
        """`open` (jobs may start), `paused`, `disabled`, `broken` or `half-open`. A closed class closes its sources."""
        if not (self.enabled and self.class_enabled):
            return "disabled"
        paused = any(until is not None and until > now for until in (self.paused_until, self.class_paused_until))
        if self.opened_at is not None:
            return "broken" if paused else "half-open"
        return "paused" if paused else "open"


@operation()
def set_policy(
    name: str, changes: Mapping[str, float | int | None], by: str | None = "operator", afresh: bool = False
) -> Steps[bool]:
    """Change settings of a source or class. None resets a setting to its shipped default; `afresh` resets all settings
    that are not in `changes`. Returns False, changing nothing, if a config (`by="config"`) tries to change what an
    operator has set. The class of a new source must exist, unless a config names the source; a class may be new."""
    if by != "config" and ":" in name:
        yield from _known(name)
    yield Call("make_sources", made=[(made,) for made in sorted({name, class_of(name)})])
    ((*values, set_by),) = yield Call("lock_policy", name=name)
    if by == "config" and set_by == "operator":
        return False
    shipped = asdict(SHIPPED.get(name, Policy()))
    given = {key: shipped[key] if value is None else value for key, value in changes.items()}
    policy = (shipped if afresh else asdict(Policy(*values))) | given
    yield Call("write_policy", name=name, set_by=by, **policy)
    yield from wake_idle()
    return True


@operation()
def pause(name: str, seconds: float | None) -> Steps[None]:
    """Stop claims of a source, or of a whole class, for `seconds` or (None) until it is resumed."""
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
    if not (yield Call("source_known", name=name, group=class_of(name))):
        classes = ", ".join(row.name for row in (yield Call("source_classes"))) or "none"
        group = class_of(name)
        of = f"source {name!r}: " if name != group else ""
        raise InvalidArguments(f"{of}no class {group!r}; known: {classes}. To create it: rowlock sources set {group}")


@operation(read=True)
def sources(n: int, after: str = "", only: str | None = None, refused: int = 0) -> Steps[list[Source]]:
    """Up to `n` sources and classes, by name; only those with at least `refused` refusals in a row."""
    rows = yield Call("list_sources", n=n, name=after, only=only, refused=refused)
    return [_source(row) for row in rows]


@dataclass(frozen=True, slots=True)
class BusySource:
    """A source that is closed or that jobs run on, as `rowlock top` shows it."""

    name: str
    state: str  # as `Source.state` says
    running: int
    concurrency: int | None
    tokens: float | None  # in its bucket now; None without a rate
    burst: int | None
    paused_for: float | None  # seconds
    failure_streak: int


@operation(read=True)
def busy(n: int) -> Steps[list[BusySource]]:
    """Up to `n` sources that are closed or that jobs run on, closed ones first."""
    return [_busy(row) for row in (yield Call("busy_sources", n=n))]


def _busy(row: Row) -> BusySource:
    paused = row.paused_for is not None and row.paused_for > 0
    if not row.enabled:
        state = "disabled"
    elif row.opened:
        state = "broken" if paused else "half-open"
    else:
        state = "paused" if paused else "open"
    return BusySource(
        row.name,
        state,
        int(row.running),
        row.concurrency,
        None if row.rate is None else level(row.rate, row.burst, row.tokens, row.elapsed),
        None if row.rate is None else row.burst or default_burst(row.rate),
        float(row.paused_for) if paused else None,
        row.failure_streak,
    )


@operation(read=True)
def set_by_config() -> Steps[list[str]]:
    """Up to a hundred sources and classes whose settings come from a config file."""
    return [row.name for row in (yield Call("set_by_config", n=100))]


def _source(row: Row) -> Source:
    is_class = ":" not in row.name
    return Source(
        name=row.name,
        policy=Policy(*row[1:9]),
        set_by=row.set_by,
        enabled=bool(row.enabled),
        paused_until=moment(row.paused_until),
        failure_streak=row.failure_streak,
        opened_at=moment(row.opened_at),
        opens=row.opens,
        last_success_at=moment(row.last_success_at),
        last_failure_at=moment(row.last_failure_at),
        last_error=row.last_error,
        refusals=row.refusals,
        refused_at=moment(row.refused_at),
        refusal_code=row.refusal_code,
        running=int(row.class_running if is_class else row.running),
        concurrency=row.effective_concurrency,
        rate_limit_per_minute=row.effective_rate,
        class_enabled=row.class_enabled is None or bool(row.class_enabled),
        class_paused_until=moment(row.class_paused_until),
    )


@operation(single=True, repeatable=True)
def put_right() -> Steps[list[str]]:
    """Correct times in the future, which were written while the database's clock was ahead: until then, token buckets
    would not fill and pauses would not end. Returns the names of the corrected sources."""
    return [row.name for row in (yield Call("put_sources_right"))]


@operation(single=True, repeatable=True)
def prune(ago: float, n: int) -> Steps[int]:
    """Delete up to `n` sources that have not been used for `ago` seconds."""
    return len((yield Call("prune_sources", ago=-ago, n=n)))
