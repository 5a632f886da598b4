"""Short forms of a look and of a claim of jobs with a source."""

from collections.abc import Sequence

from rowlock.core.heads import FRONT, ClaimResult, Head, Position, Range
from rowlock.core.lanes import Lane
from rowlock.core.turn_order import PLAIN
from rowlock.store import sourced_claim
from rowlock.store.engines.operation import Operation


def look(lanes: Sequence[tuple[str, str]], most: int = 32, after: Position = FRONT) -> Operation[list[Head]]:
    """The next sources of these (queue, task) behind a (priority, source)."""
    return sourced_claim.look([Range(*lane, *after, most=most) for lane in lanes])


def claim_from(
    worker: str, token: str, heads: Sequence[Head], plain: Sequence[Lane], n: int, lease: float
) -> Operation[ClaimResult]:
    """Claim jobs of these sources, in this order, the jobs without a source last."""
    order = [*dict.fromkeys(head.source for head in heads), PLAIN]
    return sourced_claim.claim_sourced(worker, token, heads, order, plain, n, lease)
