"""`rowlock`: all verbs, and how errors become exit codes."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rowlock.cli import (
    alerts,
    batches,
    bridge,
    deadletters,
    dispatch,
    doctor,
    enqueue,
    jobs,
    login,
    migrate,
    queues,
    report,
    schedules,
    serve,
    sources,
    stats,
    tokens,
    top,
    up,
    webhooks,
    worker,
    workers,
)
from rowlock.cli.bench import command as bench
from rowlock.cli.demo import command as demo
from rowlock.cli.failures import FAILED, INTERRUPTED, explain

# rich is not used for help: importing it and drawing boxes would take most of the time of --help.
app = typer.Typer(
    name="rowlock",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _tell_version(asked: bool) -> None:
    if asked:
        from rowlock.client.version import __version__  # imported here: it reads the metadata of the installed packages

        print(f"rowlock {__version__}")
        raise typer.Exit


@app.callback()
def rowlock(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_tell_version, is_eager=True)
    ] = False,
) -> None:
    """Durable background jobs on SQLite and PostgreSQL."""


app.command()(demo.demo)
app.command()(up.up)
app.command()(worker.worker)
app.command()(dispatch.dispatch)
app.command()(serve.serve)
app.add_typer(bridge.verbs, name="bridge")
app.command()(enqueue.enqueue)
app.add_typer(jobs.verbs, name="jobs")
app.add_typer(queues.verbs, name="queues")
app.add_typer(batches.verbs, name="batches")
app.add_typer(sources.verbs, name="sources")
app.add_typer(schedules.verbs, name="schedules")
app.add_typer(workers.verbs, name="workers")
app.add_typer(tokens.verbs, name="tokens")
app.command("login-link")(login.login_link)
app.add_typer(deadletters.verbs, name="deadletters")
app.add_typer(webhooks.verbs, name="webhooks")
app.add_typer(alerts.verbs, name="alerts")
app.command()(migrate.migrate)
app.command()(stats.stats)
app.command()(top.top)
app.command()(doctor.doctor)
app.command()(report.report)
app.command()(bench.bench)


def run() -> None:
    """Entry point of the command."""
    sys.exit(execute(sys.argv[1:]))


def execute(arguments: list[str]) -> int:
    """Run one command line; returns its exit code."""
    try:
        code = app(arguments, prog_name="rowlock", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except typer.Abort:  # the user answered a question with no or Ctrl-C
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        return explain(error)
