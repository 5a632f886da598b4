"""Retry or cancel many jobs at once, selected by ids or by a filter.

With a filter, the matching jobs are counted, the user confirms, and the jobs are changed in batches.
"""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from rowlock.cli.kit.failures import NOT_FOUND, REFUSED, complain
from rowlock.cli.kit.output import counted, on_terminal
from rowlock.cli.kit.target import DataTarget, actor
from rowlock.core.errors import InvalidArguments

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.store.read.filter import JobFilter


@dataclasses.dataclass(frozen=True, slots=True)
class Caution:
    """The options of a verb that may change many jobs."""

    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; print how many jobs would be changed")] = (
        False
    )
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation")] = False


class Request(NamedTuple):
    """One command line: the action (a name in store.jobs.bulk.VERBS), the jobs, and the options."""

    target: DataTarget
    action: str
    wanted: JobFilter
    caution: Caution
    ids: Sequence[str]
    tries: int


def carry_out(
    target: DataTarget, action: str, wanted: JobFilter, caution: Caution, ids: Sequence[str] = (), tries: int = 1
) -> None:
    """Change the jobs and print a summary. Exit code 3: a named job does not exist; 4: its state does not allow it."""
    by_filter = wanted != type(wanted)()
    if bool(ids) == by_filter:
        raise InvalidArguments(f"{action}: give job ids or a filter such as --state dead --task NAME")
    request = Request(target, action, wanted, caution, ids, tries)
    change = _by_filter if by_filter else _by_ids
    raise typer.Exit(target.look(lambda app: change(app, request)))


# --- jobs named by their ids


async def _by_ids(app: Rowlock, request: Request) -> int:
    from rowlock.store.jobs import bulk
    from rowlock.store.read import job_rows

    store, verb, dry_run = await app.store(), bulk.VERBS[request.action], request.caution.dry_run
    rows = {job_id: await store.run(job_rows.get(job_id)) for job_id in request.ids}
    fitting = [row.id for row in rows.values() if row is not None and row.state in verb.possible]
    done: dict[str, str] = {}
    failed: bulk.Failed = {}
    if fitting and not dry_run:
        done, failed = await bulk.change_some(store, verb.name, fitting, app.keep, actor(), request.tries)
    _report(request, len(fitting), Counter(done.values()), failed)
    code = _report_failures(request, failed)
    for job_id, row in rows.items():
        if row is not None and row.id in (fitting if dry_run else {**done, **failed}):
            continue
        row = row and await store.run(job_rows.get(job_id))  # read again: its state may have changed meanwhile
        if row is None:
            complain(f"no job with id {job_id}; see: rowlock jobs list")
            code = NOT_FOUND
            continue
        why = f"is {row.state}; {verb.name} is for jobs that are {' or '.join(verb.possible)}"
        if row.state in verb.possible:
            why = f"stays {row.state}: {verb.otherwise}"
        complain(f"job {job_id} {why}")
        code = code or REFUSED
    return code


# --- jobs found by a filter


async def _by_filter(app: Rowlock, request: Request) -> int:
    from secrets import token_urlsafe

    from rowlock.api.access import tokens
    from rowlock.store.jobs import bulk

    store, me, key = await app.store(), actor(), tokens.hash_of(token_urlsafe())
    prepared = await store.run(bulk.prepare(request.action, request.wanted, limit=sys.maxsize, looks=sys.maxsize))
    matched, done = sum(one.count for one in prepared.states.values()), Counter[str]()
    failed: dict[str, str] = {}
    if not request.caution.dry_run and matched:
        from rich.progress import Progress

        _confirm(request, matched)
        await store.run(bulk.remember(key, request.action, prepared, me))
        with Progress(disable=request.target.as_json or not on_terminal() or matched <= bulk.AT_ONCE) as bar:
            task, over = bar.add_task(request.action, total=matched), False
            while not over and (step := await bulk.carry_on(store, key, me, app.keep, request.tries)) is not None:
                done.update(step.answers)
                failed |= step.failed
                bar.update(task, completed=step.looked)
                over = step.done
    _report(request, matched, done, failed)
    return _report_failures(request, failed)


def _confirm(request: Request, matched: int) -> None:
    if request.caution.yes:
        return
    action, jobs = request.action, counted(matched, "job")
    if not sys.stdin.isatty():
        raise InvalidArguments(f"the filter matches {jobs}: add --yes to {action} them, or --dry-run to only count")
    typer.confirm(f"{action} {jobs}?", abort=True)


# --- the summary


def _report_failures(request: Request, failed: Mapping[str, str]) -> int:
    """Report the jobs that could not be changed; returns the exit code."""
    for job_id, error in failed.items():
        complain(f"job {job_id} was not changed, because {request.action} failed for its row: {error}")
    return REFUSED if failed else 0


def _report(request: Request, matched: int, done: Counter[str], failed: Mapping[str, str]) -> None:
    named = {"failed": dict(failed)} if failed else {}
    data = {"matched": matched, "changed": sum(done.values()), **named, "dry_run": request.caution.dry_run}
    words = {"cancelling": "asked to stop"}
    parts = [f"{words.get(what, what)} {counted(count, 'job')}" for what, count in sorted(done.items())]
    text = ", ".join(parts) or "no jobs were changed"
    if request.caution.dry_run:
        text = f"would {request.action} {counted(matched, 'job')}; nothing was changed"
    request.target.report(data, text)
