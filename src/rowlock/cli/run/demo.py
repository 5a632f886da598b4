"""`rowlock demo`: run an installed demo (the tour or a sample system) and show what happens."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from rowlock.cli.kit.failures import FAILED, complain
from rowlock.cli.kit.options import ConfigOption, DatabaseOption
from rowlock.cli.kit.output import on_terminal
from rowlock.cli.kit.target import run_async
from rowlock.core.errors import ConfigError, InvalidArguments

if TYPE_CHECKING:
    from rowlock.app import Rowlock

TOUR = "engine"
# Entry point group. Each entry is a coroutine function `play(database, live)` that returns one line per mistake. Its
# module may define an app named `goes_on`: a worker of that app runs while the dashboard is served.
GROUP = "rowlock.demos"
Play = Callable[[str, bool], Coroutine[None, None, list[str]]]


def demo(
    name: Annotated[
        str,
        typer.Argument(
            metavar="[NAME]", help="engine, or a sample system: bookmarks, stickers, cronjobs, coins, replays"
        ),
    ] = TOUR,
    once: Annotated[
        bool, typer.Option("--once", help="Print plain lines instead of a live display, and end without the dashboard")
    ] = False,
    database: DatabaseOption = None,
    config: ConfigOption = None,
) -> None:
    """Run a demo and watch it. Without a name: jobs of every kind; with a name: a sample system."""
    from tempfile import TemporaryDirectory

    from rowlock.store.engine.store import redact

    play, goes_on = _load(name, config)
    logging.getLogger("rowlock").addHandler(logging.NullHandler())  # the demo shows what happens
    live = on_terminal() and not once
    with TemporaryDirectory(prefix="rowlock-demo-") if database is None else nullcontext() as folder:
        url = database or f"sqlite:///{folder}/demo.db"
        print(f"database   {redact(url)}", flush=True)
        mistakes = run_async(play(url, live))
        _print_next_steps(name, redact(url), kept=database is not None)
        if live:
            run_async(_show_dashboard(url, config, goes_on))
    for mistake in mistakes:
        complain(mistake)
    if mistakes:
        raise typer.Exit(FAILED)


def _load(name: str, config: str | None) -> tuple[Play, Rowlock | None]:
    """An installed demo, and its module's `goes_on`."""
    from importlib.metadata import entry_points

    known = {found.name: found for found in entry_points(group=GROUP)}
    if name not in known:
        others = sorted(known.keys() - {TOUR})
        raise InvalidArguments(f"no demo named {name!r}; installed demos: {', '.join([TOUR, *others])}")
    if config is not None:
        if name != TOUR:
            raise InvalidArguments(f"the demo {name} has its own settings; --config works only with the demo {TOUR}")
        os.environ["ROWLOCK_CONFIG"] = config
    try:
        play = known[name].load()
    except ModuleNotFoundError as error:
        raise InvalidArguments(
            f"the demo {name} needs {error.name}, which is not installed: pip install 'rowlock[demos]'"
        ) from None
    return play, getattr(sys.modules[known[name].module], "goes_on", None)


async def _show_dashboard(url: str, config: str | None, goes_on: Rowlock | None) -> None:
    """Serve the dashboard until Ctrl-C, if its packages are installed. A worker of `goes_on` runs meanwhile, so that
    users can retry jobs in the dashboard."""
    from rowlock.app import Rowlock
    from rowlock.client.settings import read_settings
    from rowlock.worker.lifecycle import signals

    try:
        from rowlock.api.server import serving
    except ImportError:
        print('dashboard  needs more packages: pip install "rowlock[api]"')
        return
    app = goes_on or Rowlock(settings=read_settings(url, config))
    with signals() as stopper:
        async with app, AsyncExitStack() as stack:
            try:
                server = await stack.enter_async_context(serving(app))
            except ConfigError:  # the port is in use: take any free one
                api = app.settings.api.model_copy(update={"port": 0})
                app.configure(app.settings.model_copy(update={"api": api}))
                server = await stack.enter_async_context(serving(app))
            await stack.enter_async_context(app.worker(shutdown_timeout_seconds=1) if goes_on else nullcontext())
            host, port = server.address
            where = f"http://{host}:{port}{app.settings.api.base_path}"
            print(f"dashboard  {where}/")
            print(f"           {await app.login_link(scope='operator', base_url=where)}")
            print("           logs you in, once and within ten minutes; Ctrl-C ends the demo", flush=True)
            await stopper.asked.wait()


def _print_next_steps(name: str, shown_url: str, *, kept: bool) -> None:
    if kept:
        print(f"next       rowlock jobs list --database {shown_url}")
        print(f"           rowlock jobs retry --state dead --dry-run --database {shown_url}")
    else:
        again = "rowlock demo" if name == TOUR else f"rowlock demo {name}"
        print(f"next       {again} --database sqlite:///demo.db    keeps the jobs; look at them with")
        print("           rowlock jobs list --database sqlite:///demo.db")
