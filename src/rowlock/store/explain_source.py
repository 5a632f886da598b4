"""Why a job's source does not let it start, by the same rules as the claim."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from rowlock.core.source import Admission, Gate, admit, class_of, show_rate
from rowlock.store.operation import Call, Row, Steps
from rowlock.store.times import LATEST
from rowlock.store.turns import gate_of

JOBS_NAMED = 10


class HeldUp(NamedTuple):
    """What is in a job's way."""

    reason: str
    text: str
    until: datetime | None = None
    busy_with: tuple[str, ...] = ()


def held_up_by_source(source: str, now: datetime) -> Steps[HeldUp | None]:
    """What keeps jobs of a source from starting now; None when nothing does."""
    rows = yield Call("gates", named=[(source,)])
    gate = gate_of(rows[0][2:])
    admission = admit(gate)
    if admission.room > 0:
        return None
    if admission.why == "saturated":
        running = yield Call("source_running", source=source, n=JOBS_NAMED)
        return _saturated(f"Its source {source!r}", gate.running or 0, gate.concurrency or 0, running)
    if admission.why == "class":
        group = class_of(source)
        running = yield Call("class_running", group=group, n=JOBS_NAMED)
        return _saturated(f"The class {group!r} of its source", gate.class_running or 0, gate.total or 0, running)
    closed_class = admission.why in ("disabled", "paused") and (yield Call("class_closed", group=class_of(source)))
    return _closed(source, gate, admission, now, class_of(source) if closed_class else source)


def _saturated(who: str, running: int, limit: int, rows: list[Row]) -> HeldUp:
    named = ", ".join(f"{row[0]} on {row[1]}" for row in rows[:3])
    more = f" and {running - 3} more" if running > 3 else ""
    text = f"{who} runs {running} of {limit} jobs that it may" + (f": {named}{more}." if rows else ".")
    return HeldUp("saturated", text, busy_with=tuple(row[0] for row in rows))


def _closed(source: str, gate: Gate, admission: Admission, now: datetime, by: str) -> HeldUp:
    """`by` is whose row keeps it closed: its own, or its class's."""
    # A pause may have no end, as another program wrote it.
    wait = None if admission.wait is None else min(admission.wait, (LATEST - now).total_seconds())
    until = None if wait is None else now + timedelta(seconds=wait)
    at = "" if until is None else f"{until.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    resume = f"`rowlock sources resume {by}` opens it now"
    who = f"Its source {source!r}" if by == source else f"The class {by!r} of its source {source!r}"
    match admission.why:
        case "rate":
            rate = show_rate(gate.rate or 0.0)
            return HeldUp("rate", f"Its source {source!r} gives {rate}; the next token comes at {at}.", until)
        case "breaker":
            failed = f"Its source {source!r} failed too often and is left alone until {at}; {resume}."
            return HeldUp("breaker", failed, until)
        case "probe":
            return HeldUp("probe", f"Its source {source!r} is tried out by one job; if that succeeds, all go on.")
        case "paused":
            return HeldUp("stopped", f"{who} is paused until {at}; {resume}.", until)
    return HeldUp("stopped", f"{who} is paused; {resume}.")
