"""The health of a worker, as its metrics and probes read it from their own thread, and the port that shows it."""

from __future__ import annotations

from contextlib import AsyncExitStack

from rowlock.client.client import Client
from rowlock.core.config import WorkerSettings
from rowlock.signals.endpoint import Endpoint
from rowlock.signals.meters import WorkerMeter
from rowlock.signals.metrics import Sample, Samples
from rowlock.worker.attempt.slots import Slots
from rowlock.worker.upkeep.heartbeat import Heart

BLOCKED_SECONDS = 10.0  # an event loop that has not turned for this long is taken for dead


class Vitals:
    """Slots, heartbeat and event loop of one worker."""

    def __init__(self, slots: Slots, heart: Heart, lease: float) -> None:
        self._slots, self._heart, self._lease = slots, heart, lease

    def samples(self) -> Samples:
        busy = min(self._slots.occupied, self._slots.size)
        return {
            "rowlock_slots": [Sample(("busy",), busy), Sample(("free",), self._slots.size - busy)],
            "rowlock_worker_heartbeat_age_seconds": [Sample((), self._heart.beat_age)],
            "rowlock_loop_lag_seconds": [Sample((), self._heart.lag.longest)],
        }

    def live(self) -> str | None:
        """What is wrong with the process; None if nothing is."""
        if (lag := self._heart.lag.blocked_for) > BLOCKED_SECONDS:
            return f"the event loop has not turned for {lag:.0f} s"
        return None if self._heart.alive else "the thread of the heartbeats has ended"

    def ready(self) -> str | None:
        """Why the worker takes no jobs; None if it does."""
        if self._slots.closed:
            return "stopping"
        if not self._heart.started:
            return "starting"
        if (age := self._heart.beat_age) > self._lease:
            return f"the database has not been reached for {age:.0f} s"
        return self.live()


def show(
    app: Client, settings: WorkerSettings, meter: WorkerMeter, vitals: Vitals, exits: AsyncExitStack
) -> Endpoint | None:
    """Let this process show the numbers of a worker, on a port of its own if the settings give one."""
    for samples in (meter.samples, vitals.samples):
        app.meters.append(samples)
        exits.callback(app.meters.remove, samples)
    if settings.metrics_port is None:
        return None
    where = settings.metrics_host, settings.metrics_port
    endpoint = Endpoint(*where, app.meters, vitals.live, vitals.ready)
    exits.callback(endpoint.close)
    return endpoint
