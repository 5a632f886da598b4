"""`rowlock tokens`: create, list and revoke tokens of the job API; list and revoke browser sessions.
`rowlock login-link`: an address that logs one browser in. Verbs that serve the API also print one."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Annotated

import typer

from rowlock.cli.kit.failures import NotFound
from rowlock.cli.kit.options import LimitOption, Verbs, read_duration
from rowlock.cli.kit.output import on_terminal
from rowlock.cli.kit.target import DataTarget, audited
from rowlock.core.errors import InvalidArguments

if TYPE_CHECKING:
    from rowlock.api.access.tokens import Scope
    from rowlock.app import Rowlock

verbs = Verbs(name="tokens", help="Create, list and revoke tokens of the job API.")

COLUMNS = ("id", "kind", "hint", "owner", "scope", "created_at", "expires_at", "revoked_at")
SCOPE = "jobs (the jobs of one owner), operator (all jobs), or operator:read (all jobs, read-only)"
LoginLinkOption = Annotated[
    bool | None,
    typer.Option(
        "--login-link/--no-login-link",
        help="Print an operator's login link at the start [default: on a terminal]",
        show_default=False,
    ),
]


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

    granted = read_scope(scope)
    if (scope == "jobs") != (owner is not None):
        needs = "needs --owner" if scope == "jobs" else "gives access to the jobs of all owners, so it takes no --owner"
        raise InvalidArguments(f"a token of scope {scope} {needs}")
    if owner is not None:
        name(owner, "--owner")
    ttl = read_duration(expires, "--expires")
    secret = tokens.new_secret()

    created = tokens.create(secret, owner, granted, ttl)
    token_id = target.change(lambda app: app.perform(created), "tokens.create", str, owner=owner, scope=scope)
    target.report({"token": secret, "id": token_id, "owner": owner, "scope": scope}, secret)


def read_scope(text: str) -> Scope:
    """A token's scope; InvalidArguments for any other text."""
    from rowlock.api.access.tokens import SCOPES

    known = {str(each): each for each in SCOPES}
    if text not in known:
        raise InvalidArguments(f"--scope must be one of {', '.join(known)}, not {text!r}")
    return known[text]


@verbs.verb("list")
def list_tokens(target: DataTarget, limit: LimitOption = 1000) -> None:
    """List tokens and browser sessions, newest first. The tokens themselves cannot be shown again."""
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

    ended = target.change(lambda app: app.perform(tokens.revoke(which)), "tokens.revoke", ", ".join)
    if not ended:
        raise NotFound(f"no valid token or session has the id or hint {which[:20]!r}; see rowlock tokens list")
    target.report({"revoked": ended}, f"revoked {', '.join(ended)}")


def login_link(
    target: DataTarget,
    owner: Annotated[str | None, typer.Option(help="Log in as this owner, who sees their own jobs")] = None,
    scope: Annotated[
        str | None, typer.Option(help="jobs, operator or operator:read [default: operator without --owner]")
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="An operator who cannot change anything")] = False,
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="Where browsers reach the API, if not at --host and --port")
    ] = None,
) -> None:
    """Print a link that logs one browser in. It works once, within ten minutes, at the dashboard or your page."""
    wanted = read_scope(scope or ("operator" if owner is None else "jobs"))
    if read_only and wanted == "jobs":
        raise InvalidArguments("--read-only works only for operators, not with --owner or --scope jobs")
    if read_only:
        wanted = "operator:read"
    link = target.run(lambda app: _create(app, owner, wanted, url))
    target.report({"link": link, "owner": owner, "scope": wanted}, link)


async def print_link(app: Rowlock, address: tuple[str, int], wanted: bool | None) -> None:
    """Print an operator's link to the server at this address, if it is wanted or stdout is a terminal. Never log it:
    anybody who reads the link can use it."""
    if not (on_terminal() if wanted is None else wanted):
        return
    host, port = address
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    where = f"http://{f'[{host}]' if ':' in host else host}:{port}{app.settings.api.base_path}"
    link = await _create(app, None, "operator", where)
    print(f"Log in, once and within ten minutes: {link}", flush=True)


def _create(app: Rowlock, owner: str | None, scope: Scope, url: str | None) -> Awaitable[str]:
    """A new link. The audit log names the user who created it, and never contains the link itself."""
    made = app.login_link(owner, scope=scope, base_url=url)
    return audited(app, made, "login_links.create", owner or scope, scope=scope)
