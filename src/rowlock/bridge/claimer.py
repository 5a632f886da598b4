"""The claimer of a bridge: the transaction that claims a job also writes its row to the outbox."""

from __future__ import annotations

from collections.abc import Sequence

from rowlock.bridge import outbox
from rowlock.bridge.publisher import Publisher
from rowlock.core.claiming.candidates import ClaimResult, Head
from rowlock.core.claiming.ranges import Lane
from rowlock.core.job import Claimed
from rowlock.signals.events import Watcher
from rowlock.store.engine.operation import Operation
from rowlock.store.engine.store import Store
from rowlock.worker.claim.claimer import Claimer
from rowlock.worker.claim.planner import Planner
from rowlock.worker.registration import Registration


class BridgeClaimer(Claimer):
    """Claims as many jobs as may wait in the stream of requests, and hands them to the publisher."""

    def __init__(
        self,
        store: Store,
        publisher: Publisher,
        planner: Planner,
        registration: Registration,
        watcher: Watcher,
        takeover: float,
    ) -> None:
        super().__init__(store, publisher, publisher, planner, registration, watcher, lease=takeover)
        self._created = publisher.created

    def _claim_plain(self, token: str, lanes: Sequence[Lane], n: int) -> Operation[list[Claimed]]:
        return outbox.publish(token, lanes, n, self._lease, self._created)

    def _claim_in_turn(
        self, token: str, heads: Sequence[Head], order: Sequence[str], plain: Sequence[Lane], n: int
    ) -> Operation[ClaimResult]:
        return outbox.publish_sourced(token, heads, order, plain, n, self._lease)
