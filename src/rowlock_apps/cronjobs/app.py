"""The app: its config, its tables and its handlers."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from rowlock import FakeClock, InvalidArguments, Migrations, Rowlock, TaskNotFound
from rowlock_apps.cronjobs.handler import cleanup, report, sample
from rowlock_apps.cronjobs.handler.base import check_params

log = logging.getLogger("rowlock_apps.cronjobs")

FOLDER = Path(__file__).parent
CONFIG = FOLDER / "config" / "worker.yaml"
HANDLERS = (cleanup, report, sample)  # importing a handler registers it


def make_app(database: str | None = None, *, config: str | Path = CONFIG, clock: FakeClock | None = None) -> Rowlock:
    """An app on another database or with another config, for the demo and for tests."""
    made = Rowlock(database, config=config, clock=clock, migrations=Migrations("cronjobs", FOLDER / "migrations"))

    @made.lifespan
    async def checked() -> AsyncIterator[Mapping[str, Any]]:
        """Report params of the YAML that fit no handler when a worker starts, not when the first tick fires."""
        for mistake in mistakes_in_config(made):
            log.error("%s; the other cron jobs go on", mistake)
        yield {}

    return made


def mistakes_in_config(wanted: Rowlock) -> list[str]:
    """The cron jobs of the config whose handler is unknown or whose params do not fit it."""
    found = []
    for name, given in wanted.settings.schedules.items():
        handler_name = str(given.get("handler_name") or given.get("task"))
        try:
            wanted.get_task(handler_name)
            check_params(handler_name, given.get("handler_params") or given.get("args") or {})
        except (TaskNotFound, InvalidArguments) as error:
            found.append(f"cron job {name!r}: {error}")
    return found


app = make_app()
