"""The circuit breaker of a source: `after` decides whether the outcome of one attempt opens or closes it.

store/sources/outcomes.py creates the events. worker/attempt/classify.py decides whether a failure is the source's
fault, and core/policy.py decides it for timeouts. For workers that call SQL functions, `_tell_failures` and
`_tell_success` in store/schema/postgres/functions/settle.sql repeat this rule.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

THRESHOLD = 5  # failures in a row that open a breaker
COOLDOWN = 300.0  # seconds that it stays open
LONGEST_COOLDOWN = 86_400.0  # seconds; each further opening of a breaker lengthens its cooldown up to this


class BreakerEvent(NamedTuple):
    """The result of one attempt, as far as its source is concerned."""

    kind: Literal["success", "failure", "refusal", "none"]
    epoch: int
    retry_after: float | None = None
    code: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Health:
    """The columns of a source's row that the breaker uses."""

    streak: int = 0
    threshold: int = THRESHOLD
    cooldown: float = COOLDOWN
    factor: float = 1.0
    epoch: int = 0
    opened: bool = False
    opens: int = 0
    refusals: int = 0
    block_after: int | None = None
    enabled: bool = True
    paused_for: float | None = None


def after(health: Health, event: BreakerEvent) -> Health:
    """The health after an event. The breaker opens after `threshold` failures in a row, and again if the probe of an
    open breaker fails; a success closes it. An attempt of an older epoch (claimed before the breaker last opened or
    closed) is ignored, except for a pause that the source asked for."""
    if event.retry_after is not None and event.retry_after > (health.paused_for or 0.0):
        health = replace(health, paused_for=event.retry_after)
    if event.epoch != health.epoch:
        return health
    if event.kind == "success":
        closed = replace(health, streak=0, refusals=0)
        if not health.opened:
            return closed
        # If a pause is not over, an operator or the source set it while the probe ran: it stays.
        paused_for = health.paused_for if (health.paused_for or 0.0) > 0 else None
        return replace(closed, opened=False, opens=0, epoch=health.epoch + 1, paused_for=paused_for)
    if event.kind == "failure":
        failed = replace(health, streak=health.streak + 1)
        return _opened(failed) if health.opened or failed.streak >= health.threshold else failed
    if event.kind == "refusal":
        refused = health.refusals + 1
        blocked = health.block_after is not None and refused >= health.block_after
        return replace(health, refusals=refused, enabled=health.enabled and not blocked)
    return health


def _opened(health: Health) -> Health:
    cooldown = min(health.cooldown * health.factor ** min(health.opens, 50), LONGEST_COOLDOWN)
    return replace(
        health,
        opened=True,
        opens=health.opens + 1,
        epoch=health.epoch + 1,
        paused_for=max(cooldown, health.paused_for or 0.0),
    )
