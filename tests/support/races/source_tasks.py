"""Tasks that call outside services, beside those of races.tasks. Run as a program this is a worker process."""

import asyncio
import os
import runpy
from pathlib import Path

from rowlock import Context, SourceError
from support.races.tasks import app, note


def service() -> str:
    """`up`, `down` or `silent`, as the file RACE_SERVICE says."""
    return Path(os.environ["RACE_SERVICE"]).read_text()


@app.task
async def ask(ctx: Context, ms: int = 0) -> None:
    """Ask the service."""
    note(ctx, "start")
    now = service()
    note(ctx, now)
    await asyncio.sleep(60 if now == "silent" else ms / 1000)
    note(ctx, "end")
    if now == "down":
        raise SourceError("the service is down")


if __name__ == "__main__":
    runpy.run_module("support.races.worker", run_name="__main__")
