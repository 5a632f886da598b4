"""`rowlock sources`: list, limit, pause and resume sources (outside services)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rowlock.cli import times
from rowlock.cli.acting import audited
from rowlock.cli.options import LimitOption, examples, grouped_options
from rowlock.cli.output import printable, show, show_json, up_to
from rowlock.cli.target import DataTarget
from rowlock.core.errors import InvalidArguments

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rowlock.app import Rowlock
    from rowlock.store.sources import Source

verbs = typer.Typer(help="Look at sources, limit, pause and resume them.", no_args_is_help=True, rich_markup_mode=None)

LIMITS = ("concurrency", "rate", "set_by")
COLUMNS = ("name", "state", "running", *LIMITS, "failure_streak", "paused_until", "last_failure_at")
CANDIDATES = ("name", "refusals", "refusal_code", "refused_at", "state")
SourceName = Annotated[
    str, typer.Argument(metavar="NAME", help="A source such as api:ebay, or a source class such as api")
]


@verbs.command("list")
@grouped_options
def list_sources(
    target: DataTarget,
    candidates: Annotated[
        int,
        typer.Option(
            "--candidates",
            min=0,
            help="Only sources that refused at least N requests in a row: candidates for a block",
        ),
    ] = 0,
    limit: LimitOption = 1000,
) -> None:
    """List sources and classes: limits, running jobs, health."""
    found = target.run(lambda app: app.sources.list(limit + 1, refused=candidates))
    columns = CANDIDATES if candidates else COLUMNS
    show([_shown(source) for source in up_to(limit, found)], columns, as_json=target.as_json, empty="no sources")


@verbs.command("set", epilog=examples("rowlock sources set api:ebay --concurrency 2 --rate 30/min --burst 5"))
@grouped_options
def set_source(
    target: DataTarget,
    name: SourceName,
    concurrency: Annotated[
        str | None,
        typer.Option("--concurrency", help="Most jobs running at a time; `unlimited`; `none`: the limit of its class"),
    ] = None,
    total: Annotated[
        str | None, typer.Option("--total", help="Of a class: most jobs running at a time, of all its sources together")
    ] = None,
    rate: Annotated[str | None, typer.Option("--rate", help="Most starts per time, such as 30/min or 2/s")] = None,
    burst: Annotated[
        str | None, typer.Option("--burst", help="Token-bucket size: how many may start at once after an idle time")
    ] = None,
    threshold: Annotated[
        str | None, typer.Option("--threshold", help="Failures in a row that open the breaker [default: 5]")
    ] = None,
    cooldown: Annotated[
        str | None,
        typer.Option("--cooldown", help="How long an open breaker pauses the source, such as 5m [default: 5m]"),
    ] = None,
    factor: Annotated[
        str | None,
        typer.Option("--factor", help="Multiplies the cooldown each time the breaker opens again [default: 1]"),
    ] = None,
    block_after: Annotated[
        str | None, typer.Option("--block-after", help="Refusals (403, robots, captcha) in a row that disable it")
    ] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Remove all settings that are not given here")] = False,
) -> None:
    """Limit a source, or every source of a class. Running workers obey it. The value `none` removes a setting."""
    whole = {"concurrency": concurrency, "total": total, "burst": burst, "threshold": threshold}
    changes: dict[str, Any] = {key: _whole(key, text) for key, text in whole.items() if text is not None}
    if block_after is not None:
        changes["block_after"] = _whole("block-after", block_after)
    if rate is not None:
        changes["rate"] = None if rate == "none" else rate
    if cooldown is not None:
        changes["cooldown"] = None if cooldown == "none" else times.duration(cooldown, "--cooldown")
    if factor is not None:
        changes["factor"] = None if factor == "none" else _number(factor)

    def change(app: Rowlock) -> Awaitable[Source]:
        done = app.sources.reset(name) if reset and not changes else app.sources.set(name, afresh=reset, **changes)
        return audited(app, done, "sources.set", name, **changes)

    _say(target, change)


@verbs.command("pause")
@grouped_options
def pause_source(
    target: DataTarget,
    name: SourceName,
    duration: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="End the pause after this time, such as 10m")
    ] = None,
) -> None:
    """Start no more jobs of a source or class. Running jobs go on, waiting jobs stay queued."""
    seconds = None if duration is None else times.duration(duration, "--for")
    _say(target, lambda app: audited(app, app.sources.pause(name, seconds), "sources.pause", name, seconds=seconds))


@verbs.command("resume")
@grouped_options
def resume_source(
    target: DataTarget,
    name: SourceName,
) -> None:
    """Start jobs of a source or class again. Ends its pause, lifts its block and closes its breaker."""
    _say(target, lambda app: audited(app, app.sources.resume(name), "sources.resume", name))


def _whole(option: str, text: str) -> int | str | None:
    if text in ("none", "unlimited"):
        return None if text == "none" else text
    try:
        return int(text)
    except ValueError:
        raise InvalidArguments(f"--{option} {text!r}: expected a whole number, or `none`") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidArguments(f"--factor {text!r}: expected a number from 1") from None


def _shown(source: Source) -> dict[str, Any]:
    """A source as it is printed, for people and for programs."""
    from datetime import UTC, datetime

    from rowlock.core.source import UNLIMITED, show_rate

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
        "burst": source.policy.burst,
        "threshold": source.policy.threshold,
        "cooldown": source.policy.cooldown,
        "factor": source.policy.factor,
        "block_after": source.policy.block_after,
        "set_by": source.set_by,
        "failure_streak": source.failure_streak,
        "paused_until": source.paused_until,
        "last_success_at": source.last_success_at,
        "last_failure_at": source.last_failure_at,
        "last_error": source.last_error,
        "refusals": source.refusals,
        "refusal_code": source.refusal_code,
        "refused_at": source.refused_at,
    }


def _say(target: DataTarget, change: Callable[[Rowlock], Awaitable[Source]]) -> None:
    source = target.run(change)
    shown = _shown(source)
    if target.as_json:
        show_json(shown)
        return
    told = [f"{key} {shown[key]}" for key in ("concurrency", "total", "rate", "burst") if shown[key] is not None]
    print(printable(f"{source.name} is {shown['state']}: {', '.join(told) or 'no limits'}"))
