"""The claimer of a bridge: the transaction that claims a job also writes its row to the outbox."""

from __future__ import annotations

from collections.abc import Sequence

from rowlock.bridge.publisher import Publisher
from rowlock.core.heads import ClaimResult, Head
from rowlock.core.job import Claimed
from rowlock.core.lanes import Lane
from rowlock.signals.watchers import Watcher
from rowlock.store import outbox
from rowlock.store.engines.engine import Store
from rowlock.store.engines.operation import Operation
from rowlock.worker.claimer import Claimer
from rowlock.worker.planner import Planner
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
