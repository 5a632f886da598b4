"""The options that every verb has."""

from __future__ import annotations

from typing import Annotated

import typer

AppOption = Annotated[
    str | None,
    typer.Option("--app", metavar="MODULE:ATTRIBUTE", help="Your app, e.g. shop.jobs:app [env: ROWLOCK_APP]"),
]
ConfigOption = Annotated[
    str | None,
    typer.Option("--config", metavar="FILE", help="Settings as YAML [env: ROWLOCK_CONFIG; default: rowlock.yaml]"),
]
DatabaseOption = Annotated[
    str | None,
    typer.Option("--database", metavar="URL", help="sqlite:///file.db or postgresql://… [env: ROWLOCK_DATABASE_URL]"),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON")]
