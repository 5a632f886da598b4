"""`rowlock schedules`: what fires when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rowlock.cli.enqueue import read_values, split_pairs, stand_in
from rowlock.cli.failures import complain
from rowlock.cli.loop import run_async
from rowlock.cli.options import AppOption, ConfigOption, DatabaseOption, JsonOption
from rowlock.cli.output import cell, printable, show, show_json, up_to, words
from rowlock.cli.target import Target
from rowlock.core.errors import InvalidArguments

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from rowlock.store.schedules import ScheduleRow
    from rowlock.work.app import Rowlock

verbs = typer.Typer(help="Look at schedules, add, pause and run them.", no_args_is_help=True, rich_markup_mode=None)

COLUMNS = ("name", "state", "words", "zone", "task", "last_tick", "last_state", "next")
Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule")]


@verbs.command("list")
def list_schedules(
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="At most so many")] = 1000,
    app: AppOption = None,
    config: ConfigOption = None,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """List schedules: the rule in words, the zone, the last tick and how it ended, the next three."""
    found = _with(Target(app, config, database), lambda opened: opened.schedules.list(limit + 1))
    shown = [_shown(row) for row in up_to(limit, found)]
    if not as_json:
        shown = [row | {"next": ", ".join(cell(tick) for tick in row["next"]) or "none"} for row in shown]
    show(shown, COLUMNS, as_json=as_json, empty="no schedules")


@verbs.command("next")
def next_ticks(
    name: Name,
    count: Annotated[int, typer.Argument(metavar="[N]", min=1, max=1000, help="How many")] = 3,
    app: AppOption = None,
    config: ConfigOption = None,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the next ticks of a schedule."""
    ticks = _with(Target(app, config, database), lambda opened: opened.schedules.next(name, count))
    if as_json:
        show_json(ticks)
    else:
        print("\n".join(words(tick) for tick in ticks) or "none")


@verbs.command("add")
def add_schedule(
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
    missed_most: Annotated[int, typer.Option("--missed-most", min=1, help="With all: at most so many")] = 100,
    missed_window: Annotated[str, typer.Option("--missed-window", metavar="TIME", help="None older than this")] = "1h",
    overlap: Annotated[str, typer.Option("--overlap", help="While a job of it is at work: allow or skip")] = "allow",
    jitter: Annotated[str, typer.Option("--jitter", metavar="TIME", help="Start up to so much later")] = "0s",
    start: Annotated[str | None, typer.Option("--start", metavar="ISO", help="No tick before")] = None,
    end: Annotated[str | None, typer.Option("--end", metavar="ISO", help="No tick after")] = None,
    queue: Annotated[str | None, typer.Option("--queue", help="Queue")] = None,
    priority: Annotated[int | None, typer.Option("--priority", help="-100 (first) to 100 (last)")] = None,
    owner: Annotated[str | None, typer.Option("--owner", help="Whom its jobs belong to")] = None,
    source: Annotated[str | None, typer.Option("--source", help="The outside service they call")] = None,
    max_attempts: Annotated[int | None, typer.Option("--max-attempts", help="Tries")] = None,
    timeout: Annotated[str | None, typer.Option("--timeout", metavar="TIME", help="Of one attempt")] = None,
    app: AppOption = None,
    config: ConfigOption = None,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add a schedule while everything runs, or change one that was added so."""
    from rowlock.cli import times

    target = Target(app, config, database)
    opened = target.open()
    found = opened.get_task(task) if target.code else stand_in(opened, task)
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
        "args": read_values(split_pairs(pairs or []), found),
    }
    given = {key: value for key, value in options.items() if value is not None}

    async def add(running: Rowlock) -> ScheduleRow:
        if not target.code:
            await _somebody_knows(running, task)
        return await running.schedules.add(name, found, **given)

    _say(_run(opened, add), as_json)
    if not target.code:
        complain("the arguments were not checked, because the task's code is not named: --app names it")


async def _somebody_knows(app: Rowlock, task: str) -> None:
    """Without the app's code, the living workers are asked; where there are none, nobody can say."""
    import difflib

    from rowlock.store import workers

    living = [worker for worker in await (await app.store()).run(workers.workers()) if worker.alive]
    known = sorted({name for worker in living for name in worker.tasks})
    if living and task not in known:
        near = difflib.get_close_matches(task, known, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"they know {', '.join(known) or 'none'}"
        raise InvalidArguments(f"no living worker knows a task named {task!r}; {hint} (--app names your code)")


@verbs.command("remove")
def remove_schedule(
    name: Name,
    app: AppOption = None,
    config: ConfigOption = None,
    database: DatabaseOption = None,
) -> None:
    """Forget a schedule that was added by hand, or one that is retired."""
    _with(Target(app, config, database), lambda opened: opened.schedules.remove(name))
    print(printable(f"{name} is removed"))


@verbs.command("run")
def run_schedule(
    name: Name,
    app: AppOption = None,
    config: ConfigOption = None,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fire a schedule now, beside its ticks; prints the job's id."""
    job = _with(Target(app, config, database), lambda opened: opened.schedules.run(name))
    if as_json:
        show_json({"job_id": job.id, "schedule": name})
    else:
        print(job.id)


@verbs.command("pause")
def pause_schedule(
    name: Name,
    app: AppOption = None,
    config: ConfigOption = None,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fire no more ticks of a schedule until it is resumed."""
    _say(_with(Target(app, config, database), lambda opened: opened.schedules.pause(name)), as_json)


@verbs.command("resume")
def resume_schedule(
    name: Name,
    app: AppOption = None,
    config: ConfigOption = None,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fire ticks again, from now on; what was owed before the pause fires now."""
    _say(_with(Target(app, config, database), lambda opened: opened.schedules.resume(name)), as_json)


def _with(target: Target, do: Callable[[Rowlock], Awaitable[Any]]) -> Any:
    return _run(target.open(), do)


def _run(opened: Rowlock, do: Callable[[Rowlock], Awaitable[Any]]) -> Any:
    async def work() -> Any:
        async with opened:
            return await do(opened)

    return run_async(work())


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
