"""The app: its tasks, and the web that they fetch from."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import Any

from rowlock import Backoff, FakeClock, Migrations, Rowlock, fixed
from rowlock.public_web import Dial, Resolve, public_socket, system_resolve

from . import tasks
from .imports import ENDED, REOPENED
from .links import domain_of
from .shared import ENRICH
from .web.fetch import Limits, open_fetcher

FOLDER = Path(__file__).parent
QUEUE = "bookmarks"
DEAD = "bookmarks.link_dead"


def make_app(
    database: str | None = None,
    *,
    resolve: Resolve = system_resolve,
    dial: Dial = public_socket,
    ports: Collection[int] = (80, 443),
    limits: Limits = Limits(),
    backoff: Backoff = fixed(minutes=5),
    clock: FakeClock | None = None,
) -> Rowlock:
    """The bookmarks app on a database; tests and the demo give it a web of their own."""
    app = Rowlock(
        database,
        config=FOLDER / "config.yaml",
        clock=clock,
        migrations=Migrations("bookmarks", FOLDER / "migrations"),
    )

    @app.lifespan
    async def resources() -> AsyncIterator[dict[str, Any]]:
        async with open_fetcher(resolve, dial, ports=ports, limits=limits) as fetcher:
            yield {"app": app, "fetcher": fetcher}

    app.middleware(tasks.scrubbed)
    for name, follow_up in (
        (DEAD, tasks.link_dead),
        (ENDED, tasks.import_ended),
        (REOPENED, tasks.import_reopened),
    ):
        app.task(name, queue=QUEUE, counted=False)(follow_up)  # the worker's summary counts links only
    app.task(
        ENRICH,
        queue=QUEUE,
        max_attempts=2,
        backoff=backoff,
        timeout=limits.total + 15,  # the fetcher has its own time limits; this one is for bugs in it
        source=lambda host: f"domain:{domain_of(host)}",
        on_dead=DEAD,
    )(tasks.enrich)
    return app


app = make_app()
