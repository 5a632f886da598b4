"""`rowlock schedules`: list, add, remove, run, pause and resume schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rowlock.cli.acting import audited
from rowlock.cli.enqueue import read_values, split_pairs
from rowlock.cli.failures import complain
from rowlock.cli.options import LimitOption, examples, grouped_options
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
Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name")]


@verbs.command("list")
@grouped_options
def list_schedules(
    target: DataTarget,
    limit: LimitOption = 1000,
) -> None:
    """List schedules. The rule in words, the time zone, the last tick and its job's state, the next three ticks."""
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
    count: Annotated[int, typer.Argument(metavar="[N]", min=1, max=1000, help="How many ticks")] = 3,
) -> None:
    """Print the next ticks of a schedule."""
    ticks = target.run(lambda opened: opened.schedules.next(name, count))
    if target.as_json:
        show_json(ticks)
    else:
        print("\n".join(words(tick) for tick in ticks) or "none")


@verbs.command(
    "add",
    epilog=examples(
        'rowlock schedules add nightly report days=7 --cron "0 3 * * *" --zone Asia/Seoul',
        "rowlock schedules add poll links.check --every 5m --overlap skip",
    ),
)
@grouped_options
def add_schedule(
    target: DataTarget,
    name: Name,
    task: Annotated[str, typer.Argument(metavar="TASK", help="The task's name")],
    pairs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Arguments of the task, as JSON or text", show_default=False),
    ] = None,
    cron: Annotated[
        str | None, typer.Option("--cron", metavar="RULE", help='Cron rule of five fields, e.g. "0 3 * * *"')
    ] = None,
    every: Annotated[str | None, typer.Option("--every", metavar="TIME", help="Interval, e.g. 30s, 5m, 1d")] = None,
    at: Annotated[str | None, typer.Option("--at", metavar="ISO", help="Fire once, at this moment")] = None,
    zone: Annotated[str, typer.Option("--zone", help="IANA time zone of the rule, e.g. Asia/Seoul")] = "UTC",
    seconds: Annotated[bool, typer.Option("--seconds", help="The cron rule has six fields, seconds first")] = False,
    missed: Annotated[
        str, typer.Option("--missed", help="Which missed ticks fire late: latest (one), skip (none) or all")
    ] = "latest",
    missed_most: Annotated[
        int, typer.Option("--missed-most", min=1, help="With --missed all: fire at most this many missed ticks")
    ] = 100,
    missed_window: Annotated[
        str, typer.Option("--missed-window", metavar="TIME", help="Missed ticks older than this never fire")
    ] = "1h",
    overlap: Annotated[
        str, typer.Option("--overlap", help="If an earlier job of the schedule is unfinished: allow or skip the tick")
    ] = "allow",
    jitter: Annotated[
        str, typer.Option("--jitter", metavar="TIME", help="Delay each job by a random time up to this")
    ] = "0s",
    start: Annotated[str | None, typer.Option("--start", metavar="ISO", help="No ticks before this moment")] = None,
    end: Annotated[str | None, typer.Option("--end", metavar="ISO", help="No ticks after this moment")] = None,
    queue: Annotated[str | None, typer.Option("--queue", help="Queue of the jobs [default: that of the task]")] = None,
    priority: Annotated[int | None, typer.Option("--priority", help="-100 (starts first) to 100 (starts last)")] = None,
    owner: Annotated[str | None, typer.Option("--owner", help="Who may see the jobs through the job API")] = None,
    source: Annotated[
        str | None, typer.Option("--source", help="The outside service that the jobs call, e.g. api:ebay")
    ] = None,
    max_attempts: Annotated[int | None, typer.Option("--max-attempts", help="Failed tries until a job is dead")] = None,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="TIME", help="Time limit of one attempt, e.g. 30s")
    ] = None,
    defaults: DefaultsOption = False,
) -> None:
    """Add a schedule. Needs no restart; replaces one of this name that was added with this command."""
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
        adding = app.schedules.add(name, found, args=read_values(texts, found), **given)
        return await audited(app, adding, "schedules.add", name)

    _say(target.run(add), target.as_json)
    if not target.code:
        complain("the arguments were not checked against the task's code; to check them, give --app")


@verbs.command("remove")
@grouped_options
def remove_schedule(
    target: Target,
    name: Name,
) -> None:
    """Delete a schedule. It must have been added with `schedules add`, or be retired."""
    target.run(lambda opened: audited(opened, opened.schedules.remove(name), "schedules.remove", name))
    print(printable(f"{name} is removed"))


@verbs.command("run")
@grouped_options
def run_schedule(
    target: DataTarget,
    name: Name,
) -> None:
    """Create a job of the schedule now. This is besides its ticks; prints the job's id."""
    job = target.run(lambda opened: audited(opened, opened.schedules.run(name), "schedules.run", name))
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
    """Stop firing ticks of a schedule until it is resumed."""
    paused = target.run(lambda opened: audited(opened, opened.schedules.pause(name), "schedules.pause", name))
    _say(paused, target.as_json)


@verbs.command("resume")
@grouped_options
def resume_schedule(
    target: DataTarget,
    name: Name,
) -> None:
    """Fire ticks of a paused schedule again, from now on. A tick that was due before the pause fires now."""
    resumed = target.run(lambda opened: audited(opened, opened.schedules.resume(name), "schedules.resume", name))
    _say(resumed, target.as_json)


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
