"""Who listens to a worker: chosen by its settings when it starts. Optional libraries are imported here, if wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from rowlock.client.client import Client
from rowlock.core.config import WorkerSettings
from rowlock.core.extras import needs
from rowlock.signals.events import Watcher, Watchers
from rowlock.signals.logs import JobLog
from rowlock.signals.meters import WorkerMeter

if TYPE_CHECKING:
    from rowlock.signals.traces import Traces


def choose(app: Client, settings: WorkerSettings, worker: str) -> tuple[Watcher, WorkerMeter | None]:
    """What the settings ask for: all that listen, as one, and the worker's numbers if something shows them. ConfigError
    if a library is missing."""
    uncounted = frozenset(name for name, task in app.registry.here().items() if not task.options.counted)
    watchers: list[Watcher] = [JobLog(worker, uncounted)]
    meter = WorkerMeter() if settings.metrics_port is not None or app.metered else None
    if meter is not None:
        watchers.append(meter)
    if app.settings.sentry.wanted:
        watchers.append(_sentry(app))
    if app.traces is not None and app.settings.traces.claims:
        from rowlock.signals.traces import BatchSpans

        watchers.append(BatchSpans(cast("Traces", app.traces)))
    return Watchers(*watchers), meter


def _sentry(app: Client) -> Watcher:
    with needs("sentry", "sentry needs a library"):
        from rowlock.signals.sentry import Sentry
    return Sentry(app.settings.sentry)
