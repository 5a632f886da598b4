"""`rowlock login-link`: an address that logs one browser in. Verbs that serve the API print one as well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rowlock.cli.kit.output import on_terminal
from rowlock.cli.kit.target import DataTarget, audited
from rowlock.cli.verbs.tokens import read_scope
from rowlock.core.errors import InvalidArguments

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from rowlock.api.access.tokens import Scope
    from rowlock.app import Rowlock

LoginLinkOption = Annotated[
    bool | None,
    typer.Option(
        "--login-link/--no-login-link",
        help="Print an operator's login link at the start [default: on a terminal]",
        show_default=False,
    ),
]


def login_link(
    target: DataTarget,
    owner: Annotated[str | None, typer.Option(help="Log in as this owner, who sees their own jobs")] = None,
    scope: Annotated[
        str | None, typer.Option(help="jobs, operator or operator:read [default: operator without --owner]")
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="An operator who may look and change nothing")] = False,
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="Where browsers reach the API, if not at --host and --port")
    ] = None,
) -> None:
    """Print a link that logs one browser in. It works once, within ten minutes, at the dashboard or your page."""
    wanted = _scope(owner, scope, read_only)
    link = target.run(lambda app: _create(app, owner, wanted, url))
    target.say({"link": link, "owner": owner, "scope": wanted}, link)


async def print_link(app: Rowlock, address: tuple[str, int], wanted: bool | None) -> None:
    """Print an operator's link to the server at this address, if it is wanted or stdout is a terminal. It isn't logged:
    everybody who reads the link may use it."""
    if not (on_terminal() if wanted is None else wanted):
        return
    host, port = address
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    where = f"http://{f'[{host}]' if ':' in host else host}:{port}{app.settings.api.base_path}"
    link = await _create(app, None, "operator", where)
    print(f"Log in, once and within ten minutes: {link}", flush=True)


def _create(app: Rowlock, owner: str | None, scope: Scope, url: str | None) -> Awaitable[str]:
    """A new link. The audit names its user, and never has the link itself."""
    made = app.login_link(owner, scope=scope, base_url=url)
    return audited(app, made, "login_links.create", owner or scope, scope=scope)


def _scope(owner: str | None, scope: str | None, read_only: bool) -> Scope:
    found = read_scope(scope or ("operator" if owner is None else "jobs"))
    if read_only and found == "jobs":
        raise InvalidArguments("--read-only is for operators, not for an owner")
    return "operator:read" if read_only else found
