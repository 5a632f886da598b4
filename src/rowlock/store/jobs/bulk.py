"""Change many jobs: those with given ids, or all that match a filter.

A preview counts the jobs first and is stored, so that an operator confirms exactly what was previewed. A small preview
stores the ids of its jobs, a large one its filter and its time; jobs that have changed since then are left alone. Each
call of `carry_on` changes a bounded number of jobs, in one transaction with its audit entry. If one job's row makes
that transaction fail, the job is found, named in the answer and left unchanged.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from rowlock.core.errors import InvalidArguments
from rowlock.core.states import FINAL, State
from rowlock.store import audit
from rowlock.store.audit import Actor
from rowlock.store.engine import clock
from rowlock.store.engine.operation import Call, Row, Steps, operation
from rowlock.store.engine.records import moment
from rowlock.store.engine.store import Runs
from rowlock.store.engine.wake import wake_idle
from rowlock.store.jobs import cancel, retry
from rowlock.store.jobs.claim import Undone
from rowlock.store.jobs.settle import Keep
from rowlock.store.read import job_rows, search
from rowlock.store.read.filter import JobFilter, from_json, to_json
from rowlock.store.read.search import Counted
from rowlock.store.upkeep.bad_rows import ERROR_LIMIT, OUTAGE, attempt, in_halves

log = logging.getLogger("rowlock.store")

AT_ONCE = 500  # jobs that one call of `carry_on` changes
REMEMBERED = 1_000  # ids that a preview stores at most; a larger one stores its filter
PREVIEW_SECONDS = 900.0
WAITING = (State.QUEUED, State.RETRYABLE)


@dataclass(frozen=True, slots=True)
class Verb:
    """An action on jobs."""

    name: str
    possible: tuple[State, ...]  # the states that it applies to
    usual: tuple[State, ...]  # the states that a filter without a state means
    otherwise: str  # why a job in one of the `possible` states may stay unchanged all the same


VERBS = {
    verb.name: verb
    for verb in (
        # Cancelled jobs were cancelled on purpose, so a filter retries them only if it names that state.
        Verb("retry", (State.DEAD, State.CANCELLED), (State.DEAD,), "its key is held by a newer job"),
        Verb("cancel", (*WAITING, State.RUNNING), (*WAITING, State.RUNNING), "a retry has just put it back; try again"),
        Verb("runNow", WAITING, WAITING, "it is due already"),
        Verb("delete", tuple(sorted(FINAL)), tuple(sorted(FINAL)), "a retry has just put it back"),
    )
}


class Prepared(NamedTuple):
    """The jobs that an action would change."""

    at: datetime  # by the database's clock
    filter: JobFilter
    states: Mapping[State, Counted]
    ids: list[str] | None  # all of them, newest first; None if there are too many to store
    sample: list[str]


Failed = Mapping[str, str]  # jobs that could not be changed, with the error of each


class Done(NamedTuple):
    """How far an action has got."""

    action: str
    looked: int
    changed: int
    done: bool
    answers: Mapping[str, int] = {}  # jobs that this call changed, by what it did to them
    failed: Failed = {}


def with_states(action: str, wanted: JobFilter) -> JobFilter:
    """The filter, with the action's usual states if it has none. InvalidArguments for a state that doesn't fit."""
    verb = VERBS[action]
    for state in wanted.states:
        if state not in verb.possible:
            raise InvalidArguments(f"state {state}: {action} is for jobs that are {' or '.join(verb.possible)}")
    return replace(wanted, states=wanted.states or verb.usual)


@operation(read=True)
def prepare(
    action: str,
    wanted: JobFilter,
    ids: Sequence[str] | None = None,
    limit: int = search.COUNT_LIMIT,
    looks: int = search.LOOKS,
) -> Steps[Prepared]:
    """Find the jobs that an action would change: those of `ids`, or all that match the filter."""
    now, fitting = (yield from clock.now().start()), with_states(action, wanted)
    if ids is not None:
        found = [job for job in (yield from job_rows.by_ids(ids).start()) if job.state in VERBS[action].possible]
        states = {state: Counted(sum(job.state is state for job in found), True) for state in VERBS[action].possible}
        chosen = [job.id for job in found]
        return Prepared(now, fitting, states, chosen, chosen[:5])
    states = yield from search.count(fitting, limit, looks).start()
    first = yield from search.page(fitting, REMEMBERED + 1).start()
    few = first.next is None and len(first.ids) <= REMEMBERED
    return Prepared(now, fitting, states, first.ids if few else None, first.ids[:5])


@operation(single=True)
def remember(token_hash: str, action: str, prepared: Prepared, actor: Actor) -> Steps[None]:
    """Store a preview, so that the holder of its token can confirm it."""
    yield Call(
        "write_preview",
        token_hash=token_hash,
        action=action,
        filter=to_json(prepared.filter),
        ids=None if prepared.ids is None else json.dumps(prepared.ids),
        made_at=prepared.at,
        seconds=PREVIEW_SECONDS,
        who=actor.who,
    )


async def carry_on(store: Runs, token_hash: str, actor: Actor, keep: Keep, tries: int = 1) -> Done | None:
    """Carry out a confirmed action on the next jobs. None if no preview has that token. Call it until it is done. A
    retried job gets `tries` more tries."""
    try:
        return await store.run(_change_next(token_hash, actor, keep, tries))
    except OUTAGE:
        raise
    except Exception as error:
        log.warning("a bulk change failed (%s); looking for the job that made it fail", error)
    action, ids = await store.run(_next_ids(token_hash))
    failed = await _failing(store, action, ids, keep, tries)
    return await store.run(_change_next(token_hash, actor, keep, tries, failed))


async def change_some(
    store: Runs, action: str, ids: Sequence[str], keep: Keep, actor: Actor, tries: int = 1
) -> tuple[dict[str, str], Failed]:
    """Change the jobs with these ids, with an audit entry. Returns what happened to each job, and the failed jobs."""
    try:
        return await store.run(_change_some(action, ids, keep, actor, tries)), {}
    except OUTAGE:
        raise
    except Exception as error:
        log.warning("%s of %d jobs failed (%s); looking for the job that made it fail", action, len(ids), error)
    failed = await _failing(store, action, ids, keep, tries)
    rest = [job_id for job_id in ids if job_id not in failed]
    return (await store.run(_change_some(action, rest, keep, actor, tries)) if rest else {}), failed


async def cancel_each(store: Runs, ids: Sequence[str], keep: Keep) -> Failed:
    """Cancel these jobs. Returns those that couldn't be cancelled, which stay as they are."""
    _, failed = await in_halves(ids, lambda part: store.run(cancel.cancel(part, keep)))
    return _named("cancel", failed)


async def _failing(store: Runs, action: str, ids: Sequence[str], keep: Keep, tries: int) -> Failed:
    """Find the jobs that can't be changed."""
    _, failed = await in_halves(ids, lambda part: attempt(store, _try(action, part, keep, tries)))
    return _named(action, failed)


def _named(action: str, failed: Sequence[tuple[str, Exception]]) -> Failed:
    """Log and return the jobs that can't be changed, each with its error."""
    for job_id, error in failed:
        log.error("%s of job %s failed; the job stays as it is: %s", action, job_id, error)
    return {job_id: f"{type(error).__name__}: {error}"[:ERROR_LIMIT] for job_id, error in failed}


@operation()
def _try(action: str, ids: Sequence[str], keep: Keep, tries: int) -> Steps[None]:
    """Raise Undone, which rolls back, if these jobs can be changed, else the error."""
    yield from change(action, ids, keep, tries)
    raise Undone


@operation()
def _next_ids(token_hash: str) -> Steps[tuple[str, list[str]]]:
    """The action of a stored preview, and the jobs that it changes next."""
    for row in (yield Call("lock_preview", token_hash=token_hash)):
        part = yield from _part(row)
        return row.action, part.ids
    return "", []


class _Part(NamedTuple):
    """The jobs that one step of a bulk change covers."""

    wanted: JobFilter
    chosen: list[str] | None  # all ids, if the preview stores them
    ids: list[str]
    looked: int
    next_id: str | None  # where the part after this one begins


def _part(row: Row) -> Steps[_Part]:
    wanted = from_json(row.filter)
    chosen = None if row.ids is None else json.loads(row.ids)
    made_at = moment(row.made_at) + timedelta(milliseconds=1)  # SQLite returns whole milliseconds
    if chosen is None:
        fitting = replace(wanted, unchanged_since=made_at)
        page = yield from search.page(fitting, AT_ONCE, row.next_id).start()
        return _Part(wanted, chosen, page.ids, len(page.ids), page.next)
    part = chosen[int(row.looked) : int(row.looked) + AT_ONCE]
    asked = [(job_id,) for job_id in part]
    same = (yield Call("still_unchanged", asked=asked, unchanged_since=made_at)) if part else []
    more = int(row.looked) + len(part) < len(chosen)
    return _Part(wanted, chosen, [job.id for job in same], len(part), part[-1] if more else None)


@operation()
def _change_next(
    token_hash: str, actor: Actor, keep: Keep, tries: int, failed: Failed | None = None
) -> Steps[Done | None]:
    """Change the next jobs, except those in `failed`."""
    failed = failed or {}
    rows = yield Call("lock_preview", token_hash=token_hash)
    if not rows:
        return None
    (row,) = rows
    wanted, chosen, ids, looked, next_id = yield from _part(row)
    ids = [job_id for job_id in ids if job_id not in failed]
    answers = Counter(((yield from change(row.action, ids, keep, tries)) if ids else {}).values())
    changed = answers.total()
    audit_id = row.audit_id
    if audit_id is None:
        details = None if chosen is None else {"ids": chosen[:100]}
        target = "selection" if wanted == JobFilter(states=wanted.states) and chosen is not None else row.filter
        audit_id = yield from audit.write(actor, f"jobs.{row.action}", target, changed, details)
    else:
        yield Call("add_to_audit", id=audit_id, number=changed)
    if next_id is None:
        yield Call("remove_preview", token_hash=token_hash)
    else:
        yield Call(
            "advance_preview",
            token_hash=token_hash,
            next_id=next_id,
            looked=looked,
            changed=changed,
            audit_id=audit_id,
        )
    return Done(row.action, int(row.looked) + looked, int(row.changed) + changed, next_id is None, answers, failed)


@operation()
def _change_some(action: str, ids: Sequence[str], keep: Keep, actor: Actor, tries: int) -> Steps[dict[str, str]]:
    changed = yield from change(action, ids, keep, tries)
    if changed:
        target = ids[0] if len(ids) == 1 else None
        yield from audit.write(actor, f"jobs.{action}", target, len(changed), {"ids": sorted(changed)[:100]})
    return changed


def change(action: str, ids: Sequence[str], keep: Keep, tries: int = 1) -> Steps[dict[str, str]]:
    """Apply the action; returns what happened to each changed job, by id."""
    if action == "retry":
        return dict.fromkeys((yield from retry.retry(ids, tries).start()), "retried")
    asked = [(job_id,) for job_id in sorted(set(ids))]
    if action == "cancel":
        # `cancel` also answers `cancelled` for jobs that somebody else has cancelled: ask about live jobs only.
        live = [row.id for row in (yield Call("lock_jobs", asked=asked))]
        answers = (yield from cancel.cancel(live, keep).start()) if live else {}
        return {job_id: answer for job_id, answer in answers.items() if answer in ("cancelled", "cancelling")}
    if action == "runNow":
        changed = [row.id for row in (yield Call("run_now", asked=asked))]
        if changed:
            yield from wake_idle()
        return dict.fromkeys(changed, "ready")
    gone = [row.id for row in (yield Call("delete_finished", asked=asked))]
    if gone:
        asked = [(job_id,) for job_id in gone]
        yield Call("delete_attempts", asked=asked)
        yield Call("delete_logs", asked=asked)
    return dict.fromkeys(gone, "deleted")
