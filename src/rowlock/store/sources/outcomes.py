"""Update sources by the outcomes of their jobs: streaks, breakers, pauses, refusals; in the outcomes' transaction.

Successes write the source's row at most once a second. If one outcome is a refusal or a failure that the source caused,
`core.sources.breaker.after` weighs all outcomes of that source one by one, under the row's lock.
"""

from __future__ import annotations

from collections.abc import Sequence

from rowlock.core.policy import Transition
from rowlock.core.sources.admission import class_of
from rowlock.core.sources.breaker import COOLDOWN, THRESHOLD, BreakerEvent, Health, after
from rowlock.core.states import State
from rowlock.store.engine.operation import Call, Row, Steps
from rowlock.store.engine.records import record


def succeeded(sources: Sequence[tuple[str, int]]) -> Steps[None]:
    """Record a success of each of these sources, given with the breaker epoch of the attempt."""
    epochs: dict[int, set[str]] = {}
    for source, epoch in sources:
        epochs.setdefault(epoch, set()).add(source)
    for epoch, names in sorted(epochs.items()):  # every process in the same order, to avoid deadlocks
        yield Call("source_succeeded", done=[(name,) for name in sorted(names)], epoch=epoch)


def apply(outcomes: Sequence[tuple[str, int, Transition]]) -> Steps[None]:
    """Apply outcomes (source, breaker epoch of the attempt, transition) to their sources, in this order."""
    events = [(source, _event(epoch, transition)) for source, epoch, transition in outcomes]
    events = [(source, event) for source, event in events if event.kind != "none" or event.retry_after is not None]
    names = sorted({source for source, event in events if event.kind != "success"})
    if names:
        yield from _weigh(names, [(source, event) for source, event in events if source in names])
    yield from succeeded([(source, event.epoch) for source, event in events if source not in names])


def _weigh(names: list[str], events: list[tuple[str, BreakerEvent]]) -> Steps[None]:
    """Weigh the outcomes of sources with at least one failure or refusal."""
    yield Call("make_sources", made=[(name,) for name in sorted({*names, *map(class_of, names)})])
    rows = yield Call("lock_health", asked=[(name,) for name in names])
    changed = [_changed(row, [event for source, event in events if source == row.name]) for row in rows]
    yield Call("write_health", changed=changed)


def _event(epoch: int, transition: Transition) -> BreakerEvent:
    details = (transition.retry_after, transition.error_code, transition.error_message)
    if transition.state is State.SUCCEEDED:
        return BreakerEvent("success", epoch, *details)
    if transition.fault == "source":
        return BreakerEvent("failure", epoch, *details)
    return BreakerEvent("refusal" if transition.fault == "refusal" else "none", epoch, *details)


def _changed(row: Row, events: list[BreakerEvent]) -> tuple[object, ...]:
    """One row of `write_health`."""
    before = health = record(
        Health, row, threshold=row.threshold or THRESHOLD, cooldown=row.cooldown or COOLDOWN, factor=row.factor or 1.0
    )
    for event in events:
        health = after(health, event)
    kinds = {event.kind for event in events}
    failures = [event for event in events if event.kind == "failure"]
    refusals = [event for event in events if event.kind == "refusal"]
    error = ": ".join(filter(None, failures[-1][3:5])) if failures else None
    return (
        row.name,
        health.streak,
        health.opens,
        health.refusals,
        int(health.enabled),
        int(health.opened),
        health.epoch,
        int(health.paused_for != before.paused_for),
        health.paused_for,
        int("success" in kinds),
        int("failure" in kinds),
        error,
        int("refusal" in kinds),
        refusals[-1].code if refusals else None,
    )
