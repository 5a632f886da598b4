"""`rowlock sources`: what outside services are limited to, and how they do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rowlock.cli import times
from rowlock.cli.loop import run_async
from rowlock.cli.options import AppOption, ConfigOption, DatabaseOption, JsonOption
from rowlock.cli.output import printable, show, show_json, up_to
from rowlock.cli.target import Target
from rowlock.core.errors import InvalidArguments

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rowlock.governance.sources import Sources
    from rowlock.store.sources import Source

verbs = typer.Typer(help="Look at sources, limit, pause and resume them.", no_args_is_help=True, rich_markup_mode=None)

LIMITS = ("concurrency", "rate", "set_by")
COLUMNS = ("name", "state", "running", *LIMITS, "failure_streak", "paused_until", "last_failure_at")
CANDIDATES = ("name", "refusals", "refusal_code", "refused_at", "state")
SourceName = Annotated[str, typer.Argument(metavar="NAME", help="A source such as api:ebay, or a class such as api")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=100_000, help="At most so many")]


@verbs.command("list")
def list_sources(
    candidates: Annotated[
        int, typer.Option("--candidates", min=0, help="Only sources that refused so often in a row: block candidates")
    ] = 0,
    limit: Limit = 1000,
    app: AppOption = None,
    config: ConfigOption = None,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """List sources and classes: limits, running jobs, health."""
    found = _with(Target(app, config, database), lambda sources: sources.list(limit + 1, refused=candidates))
    columns = CANDIDATES if candidates else COLUMNS
    show([_shown(source) for source in up_to(limit, found)], columns, as_json=as_json, empty="no sources")


@verbs.command("set")
def set_source(
    name: SourceName,
    concurrency: Annotated[
        str | None, typer.Option("--concurrency", help="Running jobs at a time, `unlimited`, or `none`: as its class")
    ] = None,
    total: Annotated[
        str | None, typer.Option("--total", help="Of a class: running jobs of all its sources together")
    ] = None,
    rate: Annotated[str | None, typer.Option("--rate", help="Starts per time, such as 30/min or 2/s")] = None,
    burst: Annotated[str | None, typer.Option("--burst", help="Starts at once, after a while without any")] = None,
    threshold: Annotated[
        str | None, typer.Option("--threshold", help="Failures in a row that open the breaker [default: 5]")
    ] = None,
    cooldown: Annotated[
        str | None, typer.Option("--cooldown", help="How long it stays open, such as 5m [default: 5m]")
    ] = None,
    factor: Annotated[
        str | None, typer.Option("--factor", help="How much longer each time that it opens again [default: 1]")
    ] = None,
    block_after: Annotated[
        str | None, typer.Option("--block-after", help="Refusals (403, robots, captcha) in a row that disable it")
    ] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Take all other settings back")] = False,
    app: AppOption = None,
    config: ConfigOption = None,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Limit a source, or every source of a class. Running workers heed it at once; `none` takes a setting back."""
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

    def change(sources: Sources) -> Awaitable[Source]:
        return sources.reset(name) if reset and not changes else sources.set(name, afresh=reset, **changes)

    _say(_with(Target(app, config, database), change), as_json)


@verbs.command("pause")
def pause_source(
    name: SourceName,
    duration: Annotated[str | None, typer.Option("--for", metavar="TIME", help="Only so long, such as 10m")] = None,
    app: AppOption = None,
    config: ConfigOption = None,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start no more jobs of a source or class; what runs goes on, what waits stays."""
    seconds = None if duration is None else times.duration(duration, "--for")
    _say(_with(Target(app, config, database), lambda sources: sources.pause(name, seconds)), as_json)


@verbs.command("resume")
def resume_source(
    name: SourceName,
    app: AppOption = None,
    config: ConfigOption = None,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let a source or class go on: no pause, no block, a closed breaker."""
    _say(_with(Target(app, config, database), lambda sources: sources.resume(name)), as_json)


def _with(target: Target, do: Callable[[Sources], Awaitable[Any]]) -> Any:
    opened = target.open()

    async def work() -> Any:
        async with opened:
            return await do(opened.sources)

    return run_async(work())


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
    """A source as people and programs read it; the names of S4 among them."""
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


def _say(source: Source, as_json: bool) -> None:
    shown = _shown(source)
    if as_json:
        show_json(shown)
        return
    told = [f"{key} {shown[key]}" for key in ("concurrency", "total", "rate", "burst") if shown[key] is not None]
    print(printable(f"{source.name} is {shown['state']}: {', '.join(told) or 'no limits'}"))
