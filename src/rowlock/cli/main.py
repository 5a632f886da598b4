"""`rowlock`: all verbs, and how errors become exit codes."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rowlock.cli.inspect import doctor, stats, top
from rowlock.cli.kit.failures import FAILED, INTERRUPTED, explain
from rowlock.cli.kit.options import Verbs, examples
from rowlock.cli.run import bench, bridge, demo, serve, up, worker
from rowlock.cli.verbs import (
    alerts,
    batches,
    deadletters,
    enqueue,
    jobs,
    migrate,
    queues,
    schedules,
    sources,
    tokens,
    webhooks,
    workers,
)

app = Verbs()


def _print_version(asked: bool) -> None:
    if asked:
        from rowlock.client.settings import __version__  # slow: it reads the metadata of installed packages

        print(f"rowlock {__version__}")
        raise typer.Exit


@app.callback(
    epilog=examples(
        "rowlock demo                                   # see it work",
        "rowlock up --app shop.jobs:app                 # run your tasks, with a dashboard",
        "rowlock jobs explain ID --app shop.jobs:app    # why is this job not running?",
    )
)
def rowlock(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Durable background jobs on SQLite and PostgreSQL."""


app.verb("demo", "rowlock demo", "rowlock demo coins --once")(demo.demo)
app.verb("up", "rowlock up --app shop.jobs:app --reload")(up.up)
app.verb("worker", "rowlock worker --app shop.jobs:app --queues default,mail --processes 2")(worker.worker)
app.verb("dispatch", "rowlock dispatch --app shop.jobs:app")(worker.dispatch)
app.verb("serve", "rowlock serve --app shop.jobs:app --port 8321")(serve.serve)
app.verb(
    "enqueue",
    "rowlock enqueue mail.send to=ada@example.com --app shop.jobs:app --wait",
    """rowlock enqueue report --args '{"days": 7}' --delay 2h --app shop.jobs:app""",
)(enqueue.enqueue)
app.verb("login-link", "rowlock login-link --read-only", "rowlock login-link --owner ana")(tokens.login_link)
app.verb("migrate", "rowlock migrate --check --database postgresql://user@host/db")(migrate.migrate)
app.verb("stats", "rowlock stats --max-queued 1000 --max-running 5m")(stats.stats)
app.verb("top")(top.top)
app.verb("doctor")(doctor.doctor)
app.verb("bench")(bench.bench)
for group in (bridge, jobs, queues, batches, sources, schedules, workers, tokens, deadletters, webhooks, alerts):
    app.add_typer(group.verbs)


def run() -> None:
    sys.exit(execute(sys.argv[1:]))


def execute(arguments: list[str]) -> int:
    """Run one command line; returns its exit code."""
    try:
        code = app(arguments, prog_name="rowlock", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except typer.Abort:  # the user answered a confirmation with no or Ctrl-C
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        return explain(error)
