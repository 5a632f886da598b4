"""`rowlock sources`: list, limit, pause and resume sources (outside services)."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rowlock.cli.kit.options import LimitOption, Verbs, read_duration
from rowlock.cli.kit.target import DataTarget
from rowlock.core.errors import InvalidArguments
from rowlock.core.sources.admission import UNLIMITED
from rowlock.core.sources.policy import show_rate

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.store.sources.sources import Source

verbs = Verbs(name="sources", help="List, limit, pause and resume sources.")

LIMITS = ("concurrency", "rate", "set_by")
COLUMNS = ("name", "state", "running", *LIMITS, "failure_streak", "paused_until", "last_failure_at")
POLICY = ("burst", "threshold", "cooldown", "factor", "block_after")
HEALTH = (
    *("set_by", "failure_streak", "paused_until", "last_success_at", "last_failure_at", "last_error"),
    *("refusals", "refusal_code", "refused_at"),
)
CANDIDATES = ("name", "refusals", "refusal_code", "refused_at", "state")
SourceName = Annotated[
    str, typer.Argument(metavar="NAME", help="A source such as api:ebay, or a source class such as api")
]


@verbs.verb("list")
def list_sources(
    target: DataTarget,
    candidates: Annotated[
        int,
        typer.Option(min=0, help="Only sources that refused at least N requests in a row: candidates for a block"),
    ] = 0,
    limit: LimitOption = 1000,
) -> None:
    """List sources and classes, with limits, running jobs and health."""
    found = target.look(lambda app: app.sources.list(limit + 1, refused=candidates))
    target.show([*map(_shown, found)], CANDIDATES if candidates else COLUMNS, "no sources", limit)


@verbs.verb("set", "rowlock sources set api:ebay --concurrency 2 --rate 30/min --burst 5")
def set_source(
    target: DataTarget,
    name: SourceName,
    concurrency: Annotated[
        str | None, typer.Option(help="Most jobs running at a time; `unlimited`, or `none` for its class's limit")
    ] = None,
    total: Annotated[
        str | None, typer.Option(help="For a class: most jobs running at a time, over all its sources")
    ] = None,
    rate: Annotated[str | None, typer.Option(help="Rate limit for starts, such as 30/min or 2/s")] = None,
    burst: Annotated[
        str | None, typer.Option(help="Token-bucket size: how many may start at once after an idle time")
    ] = None,
    threshold: Annotated[str | None, typer.Option(help="Failures in a row that open the breaker [default: 5]")] = None,
    cooldown: Annotated[
        str | None, typer.Option(help="How long an open breaker pauses the source, such as 5m [default: 5m]")
    ] = None,
    factor: Annotated[
        str | None, typer.Option(help="Multiplies the cooldown each time the breaker opens again [default: 1]")
    ] = None,
    block_after: Annotated[
        str | None, typer.Option(help="Refusals (403, robots, captcha) in a row that disable the source")
    ] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Remove all settings that are not given here")] = False,
) -> None:
    """Limit a source, or each source of a class. Takes effect without a restart. The value `none` removes a setting."""
    whole = {"concurrency": concurrency, "total": total, "burst": burst, "threshold": threshold}
    given = {**whole, "block_after": block_after, "rate": rate, "cooldown": cooldown, "factor": factor}
    changes = {key: _value(key, text) for key, text in given.items() if text is not None}

    def change(app: Rowlock) -> Awaitable[Source]:
        return app.sources.set(name, afresh=reset, **changes) if changes or not reset else app.sources.reset(name)

    _report(target, target.change(change, "sources.set", name, **changes))


@verbs.verb("pause")
def pause_source(
    target: DataTarget,
    name: SourceName,
    duration: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="End the pause after this time, such as 10m")
    ] = None,
) -> None:
    """Stop starting jobs of a source or class. Running jobs go on, waiting jobs stay queued."""
    seconds = read_duration(duration, "--for")
    paused = target.change(lambda app: app.sources.pause(name, seconds), "sources.pause", name, seconds=seconds)
    _report(target, paused)


@verbs.verb("resume")
def resume_source(target: DataTarget, name: SourceName) -> None:
    """Start jobs of a source or class again. Ends its pause, lifts its block and closes its breaker."""
    _report(target, target.change(lambda app: app.sources.resume(name), "sources.resume", name))


def _value(key: str, text: str) -> Any:
    """The value of a setting; None to remove the setting."""
    option = f"--{key.replace('_', '-')}"
    if text == "none" or key == "rate":
        return None if text == "none" else text
    if key == "cooldown":
        return read_duration(text, option)
    if text == "unlimited" and key != "factor":
        return text
    try:
        return float(text) if key == "factor" else int(text)
    except ValueError:
        expected = "a number from 1" if key == "factor" else "a whole number, or `none`"
        raise InvalidArguments(f"{option} {text!r}: expected {expected}") from None


def _shown(source: Source) -> dict[str, Any]:
    def limit(number: int | None) -> int | str | None:
        return "unlimited" if number == UNLIMITED else number

    per_minute = source.rate_limit_per_minute
    return {
        "name": source.name,
        "state": source.state(datetime.now(UTC)),
        "enabled": source.enabled,
        "running": source.running,
        "concurrency": limit(source.concurrency),
        "total": limit(source.policy.total),
        "rate": None if per_minute is None else show_rate(per_minute),
        "rate_limit_per_minute": per_minute,
        **{name: getattr(source.policy, name) for name in POLICY},
        **{name: getattr(source, name) for name in HEALTH},
    }


def _report(target: DataTarget, source: Source) -> None:
    shown = _shown(source)
    limits = [f"{key} {shown[key]}" for key in ("concurrency", "total", "rate", "burst") if shown[key] is not None]
    target.report(shown, f"{shown['name']} is {shown['state']}: {', '.join(limits) or 'no limits'}")
