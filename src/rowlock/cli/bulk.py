"""Retry or cancel many jobs at once, given by their ids or by a filter.

The jobs that a filter finds are counted first, confirmed by the user, and then changed in batches.
"""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from rowlock.cli.failures import NOT_FOUND, REFUSED, complain
from rowlock.cli.output import on_terminal, printable, show_json
from rowlock.cli.target import DataTarget
from rowlock.core.errors import InvalidArguments
from rowlock.core.states import State

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.store.reads import JobFilter

BATCH = 500

# Changes some jobs; returns what was done (`retried`, `cancelled`, …) by the id of each changed job.
Change = Callable[["Rowlock", Sequence[str]], Awaitable[dict[str, str]]]


@dataclasses.dataclass(frozen=True, slots=True)
class Verb:
    """What the command does to jobs: `retry` or `cancel`."""

    name: str
    possible: tuple[State, ...]  # the states in which a job can be retried or cancelled
    usual: tuple[State, ...]  # the states that a filter selects when --state is not given
    otherwise: str  # why a job in one of the `possible` states may still stay unchanged


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """One command line: which change, to which jobs, and how."""

    verb: Verb
    change: Change
    ids: Sequence[str]
    wanted: JobFilter
    dry_run: bool
    yes: bool
    as_json: bool


def carry_out(target: DataTarget, request: Request) -> None:
    """Change the jobs and print a summary. Exit code 3: a named job does not exist; 4: its state does not allow it."""
    by_filter = dataclasses.astuple(request.wanted) != dataclasses.astuple(type(request.wanted)())
    if bool(request.ids) == by_filter:
        raise InvalidArguments(f"{request.verb.name}: give job ids or a filter such as --state dead --task NAME")
    change = _by_filter if by_filter else _by_ids
    raise typer.Exit(target.run(lambda app: change(app, request)))


# --- jobs named by their ids


async def _by_ids(app: Rowlock, request: Request) -> int:
    from rowlock.store import reads

    store = await app.store()
    rows = {job_id: await store.run(reads.get(job_id)) for job_id in request.ids}
    fitting = [row.id for row in rows.values() if row is not None and row.state in request.verb.possible]
    done = {} if request.dry_run else await request.change(app, fitting)
    _say(request, matched=len(fitting), done=Counter(done.values()))
    for job_id, row in rows.items():
        if row is not None and row.id in fitting and row.id not in done and not request.dry_run:
            rows[job_id] = await store.run(reads.get(job_id))
            fitting.remove(row.id)
    code = 0
    for job_id, row in rows.items():
        if row is None:
            complain(f"no job with id {job_id}")
            code = NOT_FOUND
        elif row.id not in fitting and row.state in request.verb.possible:
            complain(f"job {job_id} stays {row.state}: {request.verb.otherwise}")
            code = code or REFUSED
        elif row.id not in fitting:
            states = " and ".join(request.verb.possible)
            complain(f"job {job_id} is {row.state}; {request.verb.name} is for jobs that are {states}")
            code = code or REFUSED
    return code


# --- jobs found by a filter


async def _by_filter(app: Rowlock, request: Request) -> int:
    from rowlock.store import reads

    wanted = _with_states(request)
    matched = await (await app.store()).run(reads.count(wanted, limit=sys.maxsize))
    done: Counter[str] = Counter()
    if not request.dry_run and matched:
        _make_sure(request, matched)
        with _progress(request, matched) as advance:
            done = await _change_all(app, request, wanted, advance)
    _say(request, matched, done)
    return 0


def _with_states(request: Request) -> JobFilter:
    verb, states = request.verb, request.wanted.states
    for state in states:
        if state not in verb.possible:
            raise InvalidArguments(f"--state {state}: {verb.name} is for jobs that are {' or '.join(verb.possible)}")
    return dataclasses.replace(request.wanted, states=states or verb.usual)


def _make_sure(request: Request, matched: int) -> None:
    if request.yes:
        return
    if not sys.stdin.isatty():
        raise InvalidArguments(
            f"the filter matches {_jobs(matched)}: add --yes to {request.verb.name} them, or --dry-run to only count"
        )
    typer.confirm(f"{request.verb.name} {_jobs(matched)}?", abort=True)


async def _change_all(
    app: Rowlock, request: Request, wanted: JobFilter, advance: Callable[[int], None]
) -> Counter[str]:
    """Change the jobs in the order of their ids, so that a changed job which still matches is not changed twice."""
    from rowlock.store import reads

    store, done, last = await app.store(), Counter[str](), None
    while batch := await store.run(reads.ids_of(wanted, BATCH, last)):
        done.update((await request.change(app, batch)).values())
        last = batch[-1]
        advance(len(batch))
    return done


@contextmanager
def _progress(request: Request, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar if stdout is a terminal and there is more than one batch."""
    if not on_terminal() or request.as_json or total <= BATCH:
        yield lambda _: None
        return
    from rich.progress import Progress

    with Progress() as bar:
        task = bar.add_task(request.verb.name, total=total)
        yield lambda count: bar.advance(task, count)


# --- the summary


def _say(request: Request, matched: int, done: Counter[str]) -> None:
    changed = sum(done.values())
    if request.as_json:
        show_json({"matched": matched, "changed": changed, "dry_run": request.dry_run})
    elif request.dry_run:
        print(f"would {request.verb.name} {_jobs(matched)}; nothing was changed")
    else:
        words = {"cancelling": "asked to stop"}
        parts = [f"{words.get(what, what)} {_jobs(count)}" for what, count in sorted(done.items())]
        print(printable(", ".join(parts)) or "no jobs were changed")


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count:,} jobs"
