"""Why a job's source does not let it start, by the same rules as the claim."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from rowlock.core.sources.admission import Admission, Gate, admit, class_of
from rowlock.core.sources.policy import show_rate
from rowlock.store.engine.operation import Call, Row, Steps
from rowlock.store.engine.records import LATEST, moment
from rowlock.store.sources.claim import gate_of

JOBS_NAMED = 10


class HeldUp(NamedTuple):
    """What is in a job's way."""

    reason: str
    text: str
    until: datetime | None = None
    busy_with: tuple[str, ...] = ()


def held_up_by_source(source: str, now: datetime) -> Steps[HeldUp | None]:
    """What keeps jobs of a source from starting now; None when nothing does."""
    rows = yield Call("read_gates", named=[(source,)])
    gate = gate_of(rows[0][2:])
    admission = admit(gate)
    if admission.room > 0:
        return None
    if admission.why == "saturated":
        running = yield Call("source_running", source=source, n=JOBS_NAMED)
        return _saturated(f"Its source {source!r}", gate.running or 0, gate.concurrency or 0, running)
    if admission.why == "class":
        source_class = class_of(source)
        running = yield Call("class_running", class_name=source_class, n=JOBS_NAMED)
        return _saturated(
            f"The class {source_class!r} of its source", gate.class_running or 0, gate.total or 0, running
        )
    if admission.why in ("disabled", "paused", "breaker"):
        own = yield Call("source_closed", source=source)
        source_class = class_of(source)
        whole = (yield Call("class_closed", class_name=source_class)) if source_class != source else []
        return _paused(source, own, whole, broken=gate.opened) if own or whole else None  # over since the first look
    return _closed(source, gate, admission, now)


def _saturated(who: str, running: int, limit: int, rows: list[Row]) -> HeldUp:
    named = ", ".join(f"{row.id} on {row.locked_by}" for row in rows[:3])
    more = f" and {running - 3} more" if running > 3 else ""
    text = f"{who} runs {running} of {limit} jobs that it may" + (f": {named}{more}." if rows else ".")
    return HeldUp("saturated", text, busy_with=tuple(row.id for row in rows))


def _paused(source: str, own: list[Row], whole: list[Row], *, broken: bool) -> HeldUp:
    """Every pause that must end: the source's own, by its breaker or not, and that of its class."""
    source_class = class_of(source)
    texts, ends = list[str](), list[datetime | None]()
    for name, rows in ((source, own), (source_class, whole)):
        for row in rows:
            end = moment(row.until) if row.enabled else None  # without an end unless it is resumed
            who = f"Its source {source!r}" if name == source else f"The class {source_class!r} of its source {source!r}"
            what = "failed too often and is left alone" if name == source and broken and row.enabled else "is paused"
            till = "" if end is None else f" until {when(end)}"
            texts.append(f"{who} {what}{till}; `rowlock sources resume {name}` opens it now.")
            ends.append(end)
    known = [end for end in ends if end is not None]
    until = max(known) if known and len(known) == len(ends) else None
    return HeldUp("breaker" if broken and own and own[0].enabled else "stopped", " ".join(texts), until)


def _closed(source: str, gate: Gate, admission: Admission, now: datetime) -> HeldUp:
    """Open, but with no token left, or tried out by another job."""
    if admission.why == "probe":
        return HeldUp("probe", f"Its source {source!r} is tried out by one job; if that succeeds, all go on.")
    # A row that another program wrote may make it wait for ever.
    until = now + timedelta(seconds=min(admission.wait or 0.0, (LATEST - now).total_seconds()))
    rate = f"Its source {source!r} gives {show_rate(gate.rate or 0.0)}"
    if gate.ahead:
        return HeldUp(
            "rate", f"{rate}; its bucket is of a clock that was ahead: a worker puts it right within a minute."
        )
    return HeldUp("rate", f"{rate}; the next token comes at {when(until)}.", until)


def when(at: datetime) -> str:
    """A time for people."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
