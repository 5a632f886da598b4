"""`rowlock webhooks`: the secrets that sign the webhooks of the job API."""

from __future__ import annotations

from typing import Annotated

import typer

from rowlock.cli.kit.options import LimitOption, Verbs, read_duration
from rowlock.cli.kit.target import DataTarget

verbs = Verbs(name="webhooks", help="Create and list the secrets that sign webhooks.")
secret_verbs = Verbs(help="Create and list secrets, one per owner.")
verbs.add_typer(secret_verbs, name="secret")

COLUMNS = ("id", "owner", "hint", "created_at", "expires_at")


@secret_verbs.verb("rotate")
def rotate_secret(
    target: DataTarget,
    owner: Annotated[str, typer.Option(help="The owner whose webhooks are signed with the secret")],
    overlap: Annotated[
        str,
        typer.Option(metavar="TIME", help="How long to sign webhooks with the old secret as well; 0 for not at all"),
    ] = "1d",
) -> None:
    """Create an owner's first or next secret and print it; it cannot be shown again. During --overlap, webhooks are
    signed with both the old and the new secret, so that the receiver can switch."""
    from rowlock.api.jobs import webhooks
    from rowlock.core.option_checks import name

    name(owner, "--owner")
    seconds = read_duration(overlap, "--overlap")
    secret = webhooks.new_secret()
    rotated = webhooks.rotate(owner, secret, seconds)
    secret_id = target.change(lambda app: app.perform(rotated), "webhooks.rotate", owner)
    target.report({"secret": secret, "id": secret_id, "owner": owner}, secret)


@secret_verbs.verb("list")
def list_secrets(target: DataTarget, limit: LimitOption = 1000) -> None:
    """List the secrets in use, by owner. The secrets themselves cannot be shown again."""
    from rowlock.api.jobs import webhooks

    found = target.ask(webhooks.secrets(limit + 1))
    target.show(found, COLUMNS, "no secrets", limit)
