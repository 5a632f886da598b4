"""Short forms of a look and of a claim of jobs with a source."""

from collections.abc import Sequence

from rowlock.core.claiming.actions import ClaimResult
from rowlock.core.claiming.ranges import PLAIN, Position, QueueTask, Range, Sighting, SourceRange, before_all
from rowlock.store.engine.operation import Operation
from rowlock.store.sources import claim


def look(served: Sequence[tuple[str, str]], most: int = 32, after: Position | None = None) -> Operation[list[Sighting]]:
    """The next sources of these (queue, task), from the front or behind a position."""
    return claim.look([SourceRange(*(after or before_all(QueueTask(*one))), most) for one in served])


def claim_from(
    worker: str, token: str, sightings: Sequence[Sighting], plain: Sequence[Range], n: int, lease: float
) -> Operation[ClaimResult]:
    """Claim jobs of these sources, in this order, plain jobs last."""
    order = [*dict.fromkeys(one.source for one in sightings), PLAIN]
    return claim.claim_sourced(worker, token, sightings, order, plain, n, lease)
