"""`rowlock schedules`: list, add, remove, run, pause and resume schedules."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rowlock.cli.kit.failures import complain
from rowlock.cli.kit.options import LimitOption, Verbs, given, read_duration, read_moment
from rowlock.cli.kit.output import cell, printable, words
from rowlock.cli.kit.target import DataTarget, Target, audited
from rowlock.cli.verbs.enqueue import (
    DefaultsOption,
    NewJobOptions,
    Pairs,
    TaskName,
    read_values,
    split_pairs,
    task_named,
)
from rowlock.core.errors import InvalidArguments

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.store.schedules.schedules import ScheduleRow

verbs = Verbs(name="schedules", help="List, add, pause and run schedules.")

COLUMNS = ("name", "state", "words", "zone", "task", "last_tick", "last_state", "next")
SHOWN = ("zone", "task", "args", "missed", "overlap", "origin", "queue", "last_tick", "last_job", "last_state")
Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name")]


@verbs.verb("list")
def list_schedules(target: DataTarget, limit: LimitOption = 1000) -> None:
    """List schedules. Shows the rule in words, the time zone, the last tick and its job, and the next three ticks."""
    found = target.look(lambda app: app.schedules.list(limit + 1))
    shown = [_shown(row) for row in found]
    if not target.as_json:
        shown = [row | {"next": ", ".join(cell(tick) for tick in row["next"]) or "none"} for row in shown]
    target.show(shown, COLUMNS, "no schedules", limit)


@verbs.verb("next")
def next_ticks(
    target: DataTarget,
    name: Name,
    count: Annotated[int, typer.Argument(metavar="[N]", min=1, max=1000, help="How many ticks")] = 3,
) -> None:
    """Print the next ticks of a schedule."""
    ticks = target.look(lambda app: app.schedules.next(name, count))
    target.report(ticks, *(map(words, ticks) if ticks else ["none"]))


@verbs.verb(
    "add",
    'rowlock schedules add nightly report days=7 --cron "0 3 * * *" --zone Asia/Seoul',
    "rowlock schedules add poll links.check --every 5m --overlap skip",
)
def add_schedule(
    of_jobs: NewJobOptions,
    target: DataTarget,
    name: Name,
    task: TaskName,
    pairs: Pairs = None,
    cron: Annotated[str | None, typer.Option(metavar="RULE", help='Cron rule of five fields, e.g. "0 3 * * *"')] = None,
    every: Annotated[str | None, typer.Option(metavar="TIME", help="Interval, e.g. 30s, 5m, 1d")] = None,
    at: Annotated[str | None, typer.Option(metavar="ISO", help="Fire once, at this moment")] = None,
    zone: Annotated[str, typer.Option(help="IANA time zone of the rule, e.g. Asia/Seoul")] = "UTC",
    seconds: Annotated[bool, typer.Option("--seconds", help="The cron rule has six fields, seconds first")] = False,
    missed: Annotated[
        str, typer.Option(help="Which missed ticks fire late: latest (one), skip (none) or all")
    ] = "latest",
    missed_most: Annotated[
        int, typer.Option(min=1, help="With --missed all: fire at most this many missed ticks")
    ] = 100,
    missed_window: Annotated[str, typer.Option(metavar="TIME", help="Missed ticks older than this never fire")] = "1h",
    overlap: Annotated[
        str, typer.Option(help="If an earlier job of the schedule is unfinished: allow or skip the tick")
    ] = "allow",
    jitter: Annotated[str, typer.Option(metavar="TIME", help="Delay each job by a random time up to this")] = "0s",
    start: Annotated[str | None, typer.Option(metavar="ISO", help="No ticks before this moment")] = None,
    end: Annotated[str | None, typer.Option(metavar="ISO", help="No ticks after this moment")] = None,
    timeout: Annotated[str | None, typer.Option(metavar="TIME", help="Time limit of one attempt, e.g. 30s")] = None,
    defaults: DefaultsOption = False,
) -> None:
    """Add a schedule. Needs no restart; replaces a schedule of this name that was added with this command."""
    texts = split_pairs(pairs or [])
    options: dict[str, Any] = {
        "cron": cron,
        "every": every,
        "at": at,
        "zone": zone,
        "seconds": seconds,
        "missed": missed,
        "missed_most": missed_most,
        "missed_window": read_duration(missed_window, "--missed-window"),
        "overlap": overlap,
        "jitter": read_duration(jitter, "--jitter"),
        "start": read_moment(start, "--start"),
        "end": read_moment(end, "--end"),
        **given(of_jobs),
        "timeout": read_duration(timeout, "--timeout"),
    }
    chosen = {key: value for key, value in options.items() if value is not None}

    async def add(app: Rowlock) -> ScheduleRow:
        found = await task_named(app, target, task, of_jobs, defaults=defaults)
        adding = app.schedules.add(name, found, args=read_values(texts, found), **chosen)
        return await audited(app, adding, "schedules.add", name)

    _report(target, target.run(add))
    if not target.code:
        complain("the arguments were not checked against the task's code; use --app to check them")


@verbs.verb("remove")
def remove_schedule(target: Target, name: Name) -> None:
    """Delete a schedule. It must have been added with `schedules add`, or be retired."""
    target.change(lambda app: app.schedules.remove(name), "schedules.remove", name)
    print(printable(f"{name} is removed"))


@verbs.verb("run")
def run_schedule(target: DataTarget, name: Name) -> None:
    """Create a job of the schedule now, in addition to its ticks. Prints the job's id."""
    job = target.change(lambda app: app.schedules.run(name), "schedules.run", name)
    target.report({"job_id": job.id, "schedule": name}, job.id)


@verbs.verb("pause")
def pause_schedule(target: DataTarget, name: Name) -> None:
    """Stop firing a schedule's ticks until it is resumed."""
    _report(target, target.change(lambda app: app.schedules.pause(name), "schedules.pause", name))


@verbs.verb("resume")
def resume_schedule(target: DataTarget, name: Name) -> None:
    """Fire a paused schedule's ticks again, from now on. A tick that was due before the pause fires now."""
    _report(target, target.change(lambda app: app.schedules.resume(name), "schedules.resume", name))


def _shown(row: ScheduleRow) -> dict[str, Any]:
    from rowlock.core.schedules.rule import parse_rule

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
        **{name: getattr(row, name) for name in SHOWN},
        "next": coming,
        "problem": row.problem,
    }


def _report(target: DataTarget, row: ScheduleRow) -> None:
    shown = _shown(row)
    coming = ", ".join(cell(tick) for tick in shown["next"]) or "none"
    target.report(shown, f"{row.id} is {shown['state']}: {shown['words']}; next: {coming}")
