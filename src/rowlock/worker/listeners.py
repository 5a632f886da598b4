"""Who listens to a worker: chosen by its settings when it starts. Optional libraries are imported here, if wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from rowlock.client.client import Client
from rowlock.core.config import WorkerSettings
from rowlock.core.errors import ConfigError
from rowlock.signals.logs import JobLog
from rowlock.signals.meters import WorkerMeter
from rowlock.signals.watchers import Watcher, Watchers

if TYPE_CHECKING:
    from rowlock.signals.traces import BatchSpans, Traces


class Listeners(NamedTuple):
    """The listeners of one worker: log, metrics, Sentry."""

    watcher: Watcher  # all that hear of jobs
    meter: WorkerMeter | None  # its numbers, if something shows them
    traces: Traces | None  # spans of attempts
    batches: BatchSpans | None  # spans of claims and of batches of outcomes


def choose(app: Client, settings: WorkerSettings, worker: str) -> Listeners:
    """The listeners that the settings ask for; ConfigError if a library is missing."""
    uncounted = frozenset(name for name, task in app.registry.here().items() if not task.options.counted)
    watchers: list[Watcher] = [JobLog(worker, uncounted)]
    meter = WorkerMeter() if settings.metrics_port is not None or app.metered else None
    if meter is not None:
        watchers.append(meter)
    if app.settings.sentry.wanted:
        watchers.append(_sentry(app))
    traces = cast("Traces | None", app.traces)  # Rowlock makes it, for enqueues and for attempts
    batches = None
    if traces is not None and app.settings.traces.claims:
        from rowlock.signals.traces import BatchSpans

        batches = BatchSpans(traces)
        watchers.append(batches)
    return Listeners(Watchers(*watchers), meter, traces, batches)


def _sentry(app: Client) -> Watcher:
    try:
        from rowlock.signals.sentry import Sentry
    except ImportError as error:
        raise ConfigError('sentry needs a library: pip install "rowlock[sentry]"') from error
    return Sentry(app.settings.sentry)
