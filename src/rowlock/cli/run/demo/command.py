"""`rowlock demo`: run a worker with a mixed load, or one of the sample systems, and show what happens."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from rowlock.cli.kit.failures import FAILED, complain
from rowlock.cli.kit.loop import run_async
from rowlock.cli.kit.options import ConfigOption, DatabaseOption
from rowlock.cli.kit.output import on_terminal
from rowlock.core.errors import InvalidArguments

ENGINE = "engine"
GROUP = "rowlock.demos"  # entry point group; each entry is a coroutine function like Play

# Runs a demo on a database URL; the flag asks for a live display. Returns one line per job that ended unexpectedly.
Play = Callable[[str, bool], list[str]]


def demo(
    name: Annotated[
        str,
        typer.Argument(
            metavar="[NAME]", help="engine, or a sample system: bookmarks, stickers, cronjobs, coins, replays"
        ),
    ] = ENGINE,
    once: Annotated[
        bool, typer.Option("--once", help="Print plain lines instead of a live display, and end without the dashboard")
    ] = False,
    database: DatabaseOption = None,
    config: ConfigOption = None,
) -> None:
    """Run a demo and watch it. Without a name: jobs of every kind; with a name: a sample system."""
    play = _play(name, config)
    logging.getLogger("rowlock").addHandler(logging.NullHandler())  # the demo shows what happens
    live = on_terminal() and not once
    with _database(database) as url:
        mistakes = play(url, live)
        _say_what_next(name, url, kept=database is not None)
        if live:
            _show_dashboard(name, url, config)
    for mistake in mistakes:
        complain(mistake)
    if mistakes:
        raise typer.Exit(FAILED)


def _show_dashboard(name: str, url: str, config: str | None) -> None:
    """Serve the dashboard until Ctrl-C, if what it needs is installed."""
    try:
        from rowlock.cli.run.demo.dashboard import show
    except ImportError:
        print('dashboard  needs more packages: pip install "rowlock[api]"')
        return
    from rowlock.cli.run.demo.tasks import QUEUE

    show(url, config, [QUEUE] if name == ENGINE else None)


def _play(name: str, config: str | None) -> Play:
    """Rowlock by itself, under a mixed load, or one of the installed sample systems."""
    if name == ENGINE:
        from rowlock.cli.run.demo import engine

        return lambda url, live: engine.play(url, config, live)
    from importlib.metadata import entry_points

    known = {found.name: found for found in entry_points(group=GROUP)}
    if name not in known:
        raise InvalidArguments(f"no demo named {name!r}; there are: {', '.join([ENGINE, *sorted(known)])}")
    if config is not None:
        raise InvalidArguments(f"the demo {name} has its own settings; --config works only with the demo {ENGINE}")
    try:
        play = known[name].load()
    except ModuleNotFoundError as error:
        raise InvalidArguments(
            f"the demo {name} needs {error.name}, which is not installed: pip install 'rowlock[demos]'"
        ) from None
    return lambda url, live: run_async(play(url, live))


@contextmanager
def _database(given: str | None) -> Iterator[str]:
    """The database that was given, or a temporary file that is deleted after the demo."""
    if given is not None:
        yield given
        return
    import tempfile

    with tempfile.TemporaryDirectory(prefix="rowlock-demo-") as folder:
        yield f"sqlite:///{folder}/demo.db"


def _say_what_next(name: str, url: str, *, kept: bool) -> None:
    from rowlock.store.engine.store import redact

    if kept:
        print(f"next       rowlock jobs list --database {redact(url)}")
        print(f"           rowlock jobs retry --state dead --dry-run --database {redact(url)}")
    else:
        again = "rowlock demo" if name == ENGINE else f"rowlock demo {name}"
        print(f"next       {again} --database sqlite:///demo.db    keeps the jobs; look at them with")
        print("           rowlock jobs list --database sqlite:///demo.db")
