"""How a bridge claims: the transaction that claims a job also writes its row to the outbox."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rowlock.bridge import outbox
from rowlock.core.claiming.actions import ClaimResult
from rowlock.core.claiming.ranges import Range, Sighting
from rowlock.core.job import Claimed
from rowlock.store.engine.operation import Operation


@dataclass(frozen=True, slots=True)
class BridgeClaims:
    """Claims for a bridge; see `Claims` in worker/claim/claimer.py."""

    takeover: float
    created: dict[str, datetime]

    def plain(self, token: str, ranges: Sequence[Range], n: int) -> Operation[list[Claimed]]:
        """Claim plain jobs and write them to the outbox."""
        return outbox.publish(token, ranges, n, self.takeover, self.created)

    def sourced(
        self, token: str, sightings: Sequence[Sighting], order: Sequence[str], plain: Sequence[Range], n: int
    ) -> Operation[ClaimResult]:
        """Claim jobs of these sources, and plain ones in their turn, and write them to the outbox."""
        return outbox.publish_sourced(token, sightings, order, plain, n, self.takeover)
