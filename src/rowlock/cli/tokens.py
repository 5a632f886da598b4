"""`rowlock tokens`: create, list and revoke tokens of the job API; list and revoke the sessions of browsers."""

from __future__ import annotations

from typing import Annotated

import typer

from rowlock.cli import times
from rowlock.cli.failures import NOT_FOUND, complain
from rowlock.cli.options import LimitOption, examples, grouped_options
from rowlock.cli.output import show, show_json
from rowlock.cli.target import DataTarget
from rowlock.core.errors import InvalidArguments

verbs = typer.Typer(help="Create, list and revoke tokens of the job API.", no_args_is_help=True, rich_markup_mode=None)

COLUMNS = ("id", "kind", "hint", "owner", "scope", "created_at", "expires_at", "revoked_at")
SCOPE = "jobs (those of one owner), operator (all jobs), or operator:read (all jobs, read-only)"


@verbs.command(
    "create",
    epilog=examples("rowlock tokens create --owner ana", "rowlock tokens create --scope operator:read --expires 30d"),
)
@grouped_options
def create_token(
    target: DataTarget,
    owner: Annotated[str | None, typer.Option("--owner", help="The owner whose jobs the token gives access to")] = None,
    scope: Annotated[str, typer.Option("--scope", help=SCOPE)] = "jobs",
    expires: Annotated[
        str | None,
        typer.Option("--expires", metavar="TIME", help="How long the token is valid, such as 30d [default: forever]"),
    ] = None,
) -> None:
    """Create a token and print it. It cannot be shown again: only its hash is stored."""
    from rowlock.core.option_checks import name
    from rowlock.store import tokens

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
    token_id = target.ask(tokens.create(secret, owner, known[scope], ttl))
    if target.as_json:
        show_json({"token": secret, "id": token_id, "owner": owner, "scope": scope})
    else:
        print(secret)


@verbs.command("list")
@grouped_options
def list_tokens(target: DataTarget, limit: LimitOption = 1000) -> None:
    """List tokens and sessions of browsers, newest first. The tokens themselves cannot be shown again."""
    from rowlock.store import tokens

    found = target.ask(tokens.tokens(limit))
    show(found, COLUMNS, as_json=target.as_json, empty="no tokens")


@verbs.command("revoke")
@grouped_options
def revoke_token(
    target: DataTarget,
    which: Annotated[
        str,
        typer.Argument(metavar="TOKEN", help="The id or hint (first characters) of a token or session, or the token"),
    ],
) -> None:
    """Revoke a token or session. Requests with it are refused; open connections are closed within 5 seconds."""
    from rowlock.store import tokens

    ended = target.ask(tokens.revoke(which))
    if not ended:
        complain(f"no valid token or session has the id or hint {which[:20]!r}; see rowlock tokens list")
        raise typer.Exit(NOT_FOUND)
    if target.as_json:
        show_json({"revoked": ended})
    else:
        print(f"revoked {', '.join(ended)}")
