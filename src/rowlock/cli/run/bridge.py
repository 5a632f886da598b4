"""`rowlock bridge`: connects the database with workers behind Redis, in its own process or in a worker's."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from rowlock.cli.kit.failures import FAILED, complain
from rowlock.cli.kit.logs import LogOptions, configure_logs
from rowlock.cli.kit.options import Verbs, grouped_options
from rowlock.cli.kit.target import DataTarget, Target, run_async, run_open
from rowlock.core.errors import InvalidArguments

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.bridge.verify import Checked

log = logging.getLogger("rowlock.bridge")

verbs = Verbs(name="bridge", invoke_without_command=True, no_args_is_help=False)


@verbs.callback()
@grouped_options
def bridge(context: typer.Context, target: Target, logs: LogOptions) -> None:
    """Connect workers behind Redis. Publishes jobs of tasks with runs_on="redis", and stores what workers report."""
    if context.invoked_subcommand is not None:
        return
    configure_logs(logs)
    run_open(target.open_code("bridge"), lambda app: app.run_bridge())


@verbs.verb("verify")
def verify(
    target: DataTarget,
    input_path: Annotated[
        str, typer.Option("--input", metavar="FILE", help="An input file that the worker can read and process")
    ],
    prefix: Annotated[
        str, typer.Option(help="Prefix of the stream names; no bridge may be reading these streams")
    ] = "verify:",
    job_type: Annotated[str, typer.Option(help="The jobType that the requests carry")] = "VERIFY",
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for the answer to one request")] = 30.0,
) -> None:
    """Test a live worker. Sends the test vectors of the worker contract; exit 1 if an answer breaks the contract."""
    from pathlib import Path

    if not Path(input_path).is_file():
        raise InvalidArguments(f"--input {input_path}: no such file")

    found = str(Path(input_path).resolve())

    async def play(app: Rowlock) -> list[Checked]:
        from rowlock.bridge.streams import opened_streams
        from rowlock.bridge.verify import Verifier

        settings = app.settings.redis.model_copy(update={"prefix": prefix})
        async with opened_streams(settings) as streams:
            return await Verifier(streams, app.result_folder, job_type, found, timeout).play()

    checked = run_async(play(target.open()))
    wrong = sum(bool(one.mistakes) for one in checked)
    lines = []
    for one in checked:
        lines += [f"{'WRONG' if one.mistakes else 'ok':<6} {one.name}", *(f"       {text}" for text in one.mistakes)]
    target.report(checked, *lines)
    if wrong:
        complain(f"{wrong} of {len(checked)} test vectors failed: the worker breaks the worker contract")
        raise typer.Exit(FAILED)


@asynccontextmanager
async def bridging_beside(app: Rowlock) -> AsyncIterator[None]:
    """Run a bridge during the block, if Redis is configured and a task has runs_on="redis"."""
    redis, elsewhere = app.settings.redis.url, app.registry.elsewhere()
    if redis and not elsewhere:
        log.info("no bridge started: Redis is configured, but no task has runs_on='redis'")
    async with app.bridge() if redis and elsewhere else nullcontext():
        yield
