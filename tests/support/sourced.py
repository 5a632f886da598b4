"""Short forms of a look and of a claim of jobs with a source."""

from collections.abc import Sequence

from rowlock.core.claiming.candidates import FRONT, ClaimResult, Head, Position, Range
from rowlock.core.claiming.ranges import Lane
from rowlock.core.claiming.rotation import PLAIN
from rowlock.store.engine.operation import Operation
from rowlock.store.sources import claim


def look(lanes: Sequence[tuple[str, str]], most: int = 32, after: Position = FRONT) -> Operation[list[Head]]:
    """The next sources of these (queue, task) behind a (priority, source)."""
    return claim.look([Range(*lane, *after, most=most) for lane in lanes])


def claim_from(
    worker: str, token: str, heads: Sequence[Head], plain: Sequence[Lane], n: int, lease: float
) -> Operation[ClaimResult]:
    """Claim jobs of these sources, in this order, the jobs without a source last."""
    order = [*dict.fromkeys(head.source for head in heads), PLAIN]
    return claim.claim_sourced(worker, token, heads, order, plain, n, lease)
