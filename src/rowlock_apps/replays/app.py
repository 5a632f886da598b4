"""The app: a Rowlock with the export tasks, the routes and the tables of this system."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rowlock import Migrations, Rowlock
from rowlock_apps.replays import tasks
from rowlock_apps.replays.routes import routes_of

HERE = Path(__file__).parent


class Replays(Rowlock):
    """The system on one database. `config` is a file to use in place of the system's own."""

    def __init__(self, database: str | None = None, *, config: str | Path | None = None) -> None:
        migrations = Migrations("replays", HERE / "migrations")
        super().__init__(database, config=config or HERE / "config.yaml", migrations=migrations)
        self.include_router(routes_of(self))
        if (HERE / "static" / "index.html").exists():  # built from ui/src/replays: `make ui` in a checkout
            self.serve_pages(HERE / "static")
        tasks.register(self)

    def configure(self, settings: Any, folder: str | None = None) -> None:
        """The settings of a command. They may name a Redis, or none, so the tasks are registered again."""
        super().configure(settings, folder)
        tasks.register(self)


app = Replays()
