"""`rowlock tokens`: create, list and revoke tokens of the job API; list and revoke the sessions of browsers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rowlock.cli.kit import times
from rowlock.cli.kit.audit import audited
from rowlock.cli.kit.failures import NOT_FOUND, complain
from rowlock.cli.kit.options import LimitOption, Verbs
from rowlock.cli.kit.target import DataTarget
from rowlock.core.errors import InvalidArguments

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from rowlock.app import Rowlock

verbs = Verbs(help="Create, list and revoke tokens of the job API.")

COLUMNS = ("id", "kind", "hint", "owner", "scope", "created_at", "expires_at", "revoked_at")
SCOPE = "jobs (the jobs of one owner), operator (all jobs), or operator:read (all jobs, read-only)"


@verbs.verb(
    "create",
    "rowlock tokens create --owner ana",
    "rowlock tokens create --scope operator:read --expires 30d",
)
def create_token(
    target: DataTarget,
    owner: Annotated[str | None, typer.Option(help="The owner whose jobs the token gives access to")] = None,
    scope: Annotated[str, typer.Option(help=SCOPE)] = "jobs",
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long the token is valid, such as 30d [default: forever]")
    ] = None,
) -> None:
    """Create a token and print it. It cannot be shown again: only its hash is stored."""
    from rowlock.api.access import tokens
    from rowlock.core.option_checks import name

    known = {str(each): each for each in tokens.SCOPES}
    if scope not in known:
        raise InvalidArguments(f"--scope must be one of {', '.join(known)}, not {scope!r}")
    if (scope == "jobs") != (owner is not None):
        needs = "needs --owner" if scope == "jobs" else "gives access to the jobs of all owners and takes no --owner"
        raise InvalidArguments(f"a token of scope {scope} {needs}")
    if owner is not None:
        name(owner, "--owner")
    ttl = None if expires is None else times.duration(expires, "--expires")
    secret = tokens.new_secret()

    def create(app: Rowlock) -> Awaitable[str]:
        made = app.perform(tokens.create(secret, owner, known[scope], ttl))
        return audited(app, made, "tokens.create", str, owner=owner, scope=scope)

    target.say({"token": secret, "id": target.run(create), "owner": owner, "scope": scope}, secret)


@verbs.verb("list")
def list_tokens(target: DataTarget, limit: LimitOption = 1000) -> None:
    """List tokens and sessions of browsers, newest first. The tokens themselves cannot be shown again."""
    from rowlock.api.access import tokens

    found = target.ask(tokens.tokens(limit + 1))
    target.show(found, COLUMNS, "no tokens", limit)


@verbs.verb("revoke")
def revoke_token(
    target: DataTarget,
    which: Annotated[
        str,
        typer.Argument(metavar="TOKEN", help="The id or hint (first characters) of a token or session, or the token"),
    ],
) -> None:
    """Revoke a token or session. Requests with it are refused; open connections are closed within 5 seconds."""
    from rowlock.api.access import tokens

    ended = target.run(lambda app: audited(app, app.perform(tokens.revoke(which)), "tokens.revoke", ", ".join))
    if not ended:
        complain(f"no valid token or session has the id or hint {which[:20]!r}; see rowlock tokens list")
        raise typer.Exit(NOT_FOUND)
    target.say({"revoked": ended}, f"revoked {', '.join(ended)}")
