"""`rowlock webhooks`: the secrets that sign the webhooks of the job API."""

from __future__ import annotations

from typing import Annotated

import typer

from rowlock.cli import times
from rowlock.cli.options import LimitOption, grouped_options
from rowlock.cli.output import show, show_json
from rowlock.cli.target import DataTarget

verbs = typer.Typer(help="Secrets that sign webhooks of the job API.", no_args_is_help=True, rich_markup_mode=None)
secret_verbs = typer.Typer(help="Make and list secrets, one per owner.", no_args_is_help=True, rich_markup_mode=None)
verbs.add_typer(secret_verbs, name="secret")

COLUMNS = ("id", "owner", "hint", "created_at", "expires_at")


@secret_verbs.command("rotate")
@grouped_options
def rotate_secret(
    target: DataTarget,
    owner: Annotated[str, typer.Option("--owner", help="Whose webhooks it signs")],
    overlap: Annotated[
        str, typer.Option("--overlap", metavar="TIME", help="How long the secret before signs, too; 0: no longer")
    ] = "1d",
) -> None:
    """Make an owner's first secret, or a new one, and print it, once. Until --overlap has passed, each webhook carries
    a signature by both, so that its receiver can change over."""
    from rowlock.core.options import name
    from rowlock.store import webhooks

    name(owner, "--owner")
    seconds = times.duration(overlap, "--overlap")
    secret = webhooks.new_secret()
    secret_id = target.ask(webhooks.rotate(owner, secret, seconds))
    if target.as_json:
        show_json({"secret": secret, "id": secret_id, "owner": owner})
    else:
        print(secret)


@secret_verbs.command("list")
@grouped_options
def list_secrets(target: DataTarget, limit: LimitOption = 1000) -> None:
    """List the secrets that sign now, by owner. The secrets themselves cannot be shown again."""
    from rowlock.store import webhooks

    found = target.ask(webhooks.secrets(limit))
    show(found, COLUMNS, as_json=target.as_json, empty="no secrets")
