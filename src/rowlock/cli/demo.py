"""`rowlock demo`: a worker and a mixed load in one process, or one of the sample systems, shown as it happens."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from rowlock.cli.failures import FAILED, complain
from rowlock.cli.logs import silence_logs
from rowlock.cli.loop import run_async
from rowlock.cli.options import ConfigOption, DatabaseOption
from rowlock.cli.output import on_terminal
from rowlock.core.errors import InvalidArguments

if TYPE_CHECKING:
    from rowlock.cli.demo_load import Load
    from rowlock.cli.demo_screen import Screen
    from rowlock.core.job import Job
    from rowlock.work.app import Rowlock

ENGINE = "engine"
GROUP = "rowlock.demos"  # entry points: `async def play(database, live) -> what did not go as it should`
LOOK_SECONDS = 0.2
LONGEST_SECONDS = 50.0
SLOTS = 10


def demo(
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="engine, or a system: bookmarks, stickers, cronjobs, coins")
    ] = ENGINE,
    once: Annotated[bool, typer.Option("--once", help="Plain lines, also on a terminal")] = False,
    database: DatabaseOption = None,
    config: ConfigOption = None,
) -> None:
    """Watch a worker run a mixed load of every kind of job, or a whole system that runs on Rowlock."""
    play = _engine(config) if name == ENGINE else _system(name, config)
    silence_logs()
    with _database(database) as url:
        mistakes = play(url, on_terminal() and not once)
        _say_what_next(name, url, kept=database is not None)
    for mistake in mistakes:
        complain(mistake)
    if mistakes:
        raise typer.Exit(FAILED)


def _engine(config: str | None) -> Callable[[str, bool], list[str]]:
    """Rowlock by itself."""

    def play(url: str, live: bool) -> list[str]:
        began = time.monotonic()
        rows, mistakes = run_async(_play(_open(url, config), live=live))
        _summarise(rows, time.monotonic() - began)
        return mistakes

    return play


def _system(name: str, config: str | None) -> Callable[[str, bool], list[str]]:
    """One of the installed sample systems."""
    from importlib.metadata import entry_points

    known = {found.name: found for found in entry_points(group=GROUP)}
    if name not in known:
        raise InvalidArguments(f"no demo named {name!r}; there are: {', '.join([ENGINE, *sorted(known)])}")
    if config is not None:
        raise InvalidArguments(f"the demo {name} has a config of its own; --config is for the demo {ENGINE}")
    try:
        play = known[name].load()
    except ModuleNotFoundError as error:
        raise InvalidArguments(
            f"the demo {name} needs {error.name}, which is not installed: pip install 'rowlock[demos]'"
        ) from None
    return lambda url, live: run_async(play(url, live))


@contextmanager
def _database(given: str | None) -> Iterator[str]:
    """The database that was asked for, or a file that goes with the demo."""
    if given is not None:
        yield given
        return
    import tempfile

    with tempfile.TemporaryDirectory(prefix="rowlock-demo-") as folder:
        yield f"sqlite:///{folder}/demo.db"


def _open(url: str, config: str | None) -> Rowlock:
    from rowlock.cli.demo_tasks import app
    from rowlock.work.settings import read_settings

    app.configure(read_settings(url, config))
    return app


async def _play(app: Rowlock, *, live: bool) -> tuple[list[Job], list[str]]:
    """Run the load to its end; answers the jobs and what did not end as it should."""
    from rowlock.cli.demo_load import Load
    from rowlock.cli.demo_screen import open_screen
    from rowlock.cli.demo_tasks import QUEUE
    from rowlock.store.engine import redact

    await app.migrate()
    print(f"database   {redact(app.settings.database)}")
    async with app, app.worker(queues=[QUEUE], pool_size=SLOTS, shutdown_timeout_seconds=1) as worker:
        print(f"worker     {worker.id}, {SLOTS} slots", flush=True)
        load = Load()
        await load.enqueue()
        with open_screen(live) as screen:
            rows = await _watch(app, load, screen)
    return rows, load.mistakes(rows)


async def _watch(app: Rowlock, load: Load, screen: Screen) -> list[Job]:
    import asyncio

    deadline = time.monotonic() + LONGEST_SECONDS
    while True:
        rows, events = await load.look(app)
        screen.update(rows, events)
        if all(row.final for row in rows) or time.monotonic() > deadline:
            return rows
        await asyncio.sleep(LOOK_SECONDS)


def _summarise(rows: list[Job], seconds: float) -> None:
    from rowlock.cli.demo_screen import counted

    retried = sum(1 for row in rows if row.attempt > 1 and row.state == "succeeded")
    print()
    print(f"done       {len(rows)} jobs in {seconds:.1f} s: {counted(rows)}")
    print(f"           {retried} of them succeeded only after failures")


def _say_what_next(name: str, url: str, *, kept: bool) -> None:
    from rowlock.store.engine import redact

    if kept:
        print(f"next       rowlock jobs list --database {redact(url)}")
        print(f"           rowlock jobs retry --state dead --dry-run --database {redact(url)}")
    else:
        again = "rowlock demo" if name == ENGINE else f"rowlock demo {name}"
        print(f"next       {again} --database sqlite:///demo.db    keeps the jobs; look at them with")
        print("           rowlock jobs list --database sqlite:///demo.db")
