"""Sources as operators see them: policy, pauses, health, block candidates. The claim is sourced_claim.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime

from rowlock.core.errors import InvalidArguments
from rowlock.core.source import SHIPPED, Policy, class_of
from rowlock.store.engines.operation import Call, Row, Steps, operation
from rowlock.store.times import moment
from rowlock.store.wake import wake_idle


@dataclass(frozen=True, slots=True)
class Source:
    """One source or class: its own settings, and how it stands."""

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
    concurrency: int | None  # with its class's
    rate_limit_per_minute: float | None
    class_enabled: bool
    class_paused_until: datetime | None

    @property
    def is_class(self) -> bool:
        """Whether its settings are the defaults of others."""
        return ":" not in self.name

    def state(self, now: datetime) -> str:
        """open (to jobs), paused, disabled, broken or half-open; as its class is, if that is closed."""
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
    """Change settings of a source or class; None takes one back, `afresh` all others, to what is shipped. What an
    operator has set, a config does not change: False then. The class of a new source must be known, unless a config
    names it; a class by itself may be new."""
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
    """No more claims of a source, or of a whole class, for a time or until it is resumed."""
    yield from _known(name)
    yield Call("make_sources", made=[(made,) for made in sorted({name, class_of(name)})])
    yield Call("pause_source", name=name, seconds=seconds, whole=int(":" not in name))


@operation()
def resume(name: str) -> Steps[None]:
    """Let claims go on, with a closed breaker."""
    if not (yield Call("resume_source", name=name)):
        yield from _known(name)
    yield from wake_idle()


def _known(name: str) -> Steps[None]:
    """A class that nobody has ever named, or a source of one, is most likely a slip."""
    if not (yield Call("source_known", name=name, group=class_of(name))):
        classes = ", ".join(row.name for row in (yield Call("source_classes"))) or "none"
        group = class_of(name)
        of = f"source {name!r}: " if name != group else ""
        raise InvalidArguments(f"{of}no class {group!r}; known: {classes}. To make it: rowlock sources set {group}")


@operation(read=True)
def sources(n: int, after: str = "", only: str | None = None, refused: int = 0) -> Steps[list[Source]]:
    """Up to `n` sources and classes by name; `refused`: only those that refused so often in a row."""
    rows = yield Call("list_sources", n=n, name=after, only=only, refused=refused)
    return [_source(row) for row in rows]


@operation(read=True)
def set_by_config() -> Steps[list[str]]:
    """The sources and classes whose settings a config has written, up to a hundred."""
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
    """Put sources right that a clock which was ahead has written: else their buckets and pauses would stand still until
    that moment. Answers which."""
    return [row.name for row in (yield Call("put_sources_right"))]


@operation(single=True, repeatable=True)
def prune(ago: float, n: int) -> Steps[int]:
    """Forget up to `n` sources that have not been used for so long."""
    return len((yield Call("prune_sources", ago=-ago, n=n)))
