"""`rowlock schedules`: what fires when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rowlock.cli.enqueue import read_values, split_pairs
from rowlock.cli.failures import complain
from rowlock.cli.options import LimitOption, grouped_options
from rowlock.cli.output import cell, printable, show, show_json, up_to, words
from rowlock.cli.target import DataTarget, Target
from rowlock.cli.tasks import DefaultsOption, task_named
from rowlock.core.errors import InvalidArguments

if TYPE_CHECKING:
    from datetime import datetime

    from rowlock.app import Rowlock
    from rowlock.store.schedules import ScheduleRow

verbs = typer.Typer(help="Look at schedules, add, pause and run them.", no_args_is_help=True, rich_markup_mode=None)

COLUMNS = ("name", "state", "words", "zone", "task", "last_tick", "last_state", "next")
Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule")]


@verbs.command("list")
@grouped_options
def list_schedules(
    target: DataTarget,
    limit: LimitOption = 1000,
) -> None:
    """List schedules: the rule in words, the zone, the last tick and how it ended, the next three."""
    found = target.run(lambda opened: opened.schedules.list(limit + 1))
    shown = [_shown(row) for row in up_to(limit, found)]
    if not target.as_json:
        shown = [row | {"next": ", ".join(cell(tick) for tick in row["next"]) or "none"} for row in shown]
    show(shown, COLUMNS, as_json=target.as_json, empty="no schedules")


@verbs.command("next")
@grouped_options
def next_ticks(
    target: DataTarget,
    name: Name,
    count: Annotated[int, typer.Argument(metavar="[N]", min=1, max=1000, help="How many")] = 3,
) -> None:
    """Print the next ticks of a schedule."""
    ticks = target.run(lambda opened: opened.schedules.next(name, count))
    if target.as_json:
        show_json(ticks)
    else:
        print("\n".join(words(tick) for tick in ticks) or "none")


@verbs.command("add")
@grouped_options
def add_schedule(
    target: DataTarget,
    name: Name,
    task: Annotated[str, typer.Argument(metavar="TASK", help="The task's name")],
    pairs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Arguments, as JSON or text", show_default=False),
    ] = None,
    cron: Annotated[str | None, typer.Option("--cron", metavar="RULE", help='Five fields, e.g. "0 3 * * *"')] = None,
    every: Annotated[str | None, typer.Option("--every", metavar="TIME", help="Interval, e.g. 30s, 5m, 1d")] = None,
    at: Annotated[str | None, typer.Option("--at", metavar="ISO", help="Once, at this time")] = None,
    zone: Annotated[str, typer.Option("--zone", help="IANA zone, e.g. Asia/Seoul")] = "UTC",
    seconds: Annotated[bool, typer.Option("--seconds", help="The rule has six fields, seconds first")] = False,
    missed: Annotated[str, typer.Option("--missed", help="Missed ticks: latest, skip or all")] = "latest",
    missed_most: Annotated[
        int, typer.Option("--missed-most", min=1, help="With --missed all: this many ticks at most")
    ] = 100,
    missed_window: Annotated[
        str, typer.Option("--missed-window", metavar="TIME", help="Make up for no older tick")
    ] = "1h",
    overlap: Annotated[
        str, typer.Option("--overlap", help="While an earlier job is unfinished: allow or skip")
    ] = "allow",
    jitter: Annotated[
        str, typer.Option("--jitter", metavar="TIME", help="Random delay of each job, up to this")
    ] = "0s",
    start: Annotated[str | None, typer.Option("--start", metavar="ISO", help="No tick before")] = None,
    end: Annotated[str | None, typer.Option("--end", metavar="ISO", help="No tick after")] = None,
    queue: Annotated[str | None, typer.Option("--queue", help="Queue")] = None,
    priority: Annotated[int | None, typer.Option("--priority", help="-100 (first) to 100 (last)")] = None,
    owner: Annotated[str | None, typer.Option("--owner", help="Whom its jobs belong to")] = None,
    source: Annotated[str | None, typer.Option("--source", help="The outside service they call")] = None,
    max_attempts: Annotated[int | None, typer.Option("--max-attempts", help="Tries before a job is dead")] = None,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="TIME", help="Limit of one attempt, e.g. 30s")
    ] = None,
    defaults: DefaultsOption = False,
) -> None:
    """Add a schedule while everything runs, or change one that was added so."""
    from rowlock.cli import times

    texts = split_pairs(pairs or [])
    options: dict[str, Any] = {
        "cron": cron,
        "every": every,
        "at": at,
        "zone": zone,
        "seconds": seconds,
        "missed": missed,
        "missed_most": missed_most,
        "missed_window": times.duration(missed_window, "--missed-window"),
        "overlap": overlap,
        "jitter": times.duration(jitter, "--jitter"),
        "start": None if start is None else times.moment(start, "--start"),
        "end": None if end is None else times.moment(end, "--end"),
        "queue": queue,
        "priority": priority,
        "owner": owner,
        "source": source,
        "max_attempts": max_attempts,
        "timeout": None if timeout is None else times.duration(timeout, "--timeout"),
    }
    given = {key: value for key, value in options.items() if value is not None}

    async def add(app: Rowlock) -> ScheduleRow:
        found = await task_named(app, target, task, source=source, defaults=defaults)
        return await app.schedules.add(name, found, args=read_values(texts, found), **given)

    _say(target.run(add), target.as_json)
    if not target.code:
        complain("the arguments were not checked, because the task's code is not named: --app names it")


@verbs.command("remove")
@grouped_options
def remove_schedule(
    target: Target,
    name: Name,
) -> None:
    """Forget a schedule that was added by hand, or one that is retired."""
    target.run(lambda opened: opened.schedules.remove(name))
    print(printable(f"{name} is removed"))


@verbs.command("run")
@grouped_options
def run_schedule(
    target: DataTarget,
    name: Name,
) -> None:
    """Fire a schedule now, beside its ticks; prints the job's id."""
    job = target.run(lambda opened: opened.schedules.run(name))
    if target.as_json:
        show_json({"job_id": job.id, "schedule": name})
    else:
        print(job.id)


@verbs.command("pause")
@grouped_options
def pause_schedule(
    target: DataTarget,
    name: Name,
) -> None:
    """Fire no more ticks of a schedule until it is resumed."""
    _say(target.run(lambda opened: opened.schedules.pause(name)), target.as_json)


@verbs.command("resume")
@grouped_options
def resume_schedule(
    target: DataTarget,
    name: Name,
) -> None:
    """Fire ticks again, from now on; what was owed before the pause fires now."""
    _say(target.run(lambda opened: opened.schedules.resume(name)), target.as_json)


def _shown(row: ScheduleRow) -> dict[str, Any]:
    from rowlock.core.cron import parse_rule

    state = "retired" if row.retired_at else "paused" if row.paused_at else "broken" if row.problem else "on"
    coming: list[datetime] = []
    try:
        text = parse_rule(row.rule, row.zone, seconds=True).words()
        coming = row.coming(None, 3)
    except InvalidArguments as error:
        text, state = str(error), "broken"
    if state == "on" and not coming and (row.next_tick is None or row.next_tick > row.read_at):
        state = "over"
    return {
        "name": row.id,
        "state": state,
        "rule": row.rule,
        "words": text,
        "zone": row.zone,
        "task": row.task,
        "args": row.args,
        "missed": row.missed,
        "overlap": row.overlap,
        "origin": row.origin,
        "queue": row.queue,
        "last_tick": row.last_tick,
        "last_job": row.last_job,
        "last_state": row.last_state,
        "next": coming,
        "problem": row.problem,
    }


def _say(row: ScheduleRow, as_json: bool) -> None:
    shown = _shown(row)
    if as_json:
        show_json(shown)
        return
    coming = ", ".join(cell(tick) for tick in shown["next"]) or "none"
    print(printable(f"{row.id} is {shown['state']}: {shown['words']}; next: {coming}"))
