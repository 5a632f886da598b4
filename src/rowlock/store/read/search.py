"""Looking through jobs with any filter, for dashboards and for changes of many jobs, at a bounded cost.

A list or a count with a filter that no index knows would read a million rows to find a few. So a look goes through the
index that fits the filter best, newest first, reads a bounded number of rows, and says where it stopped: the next page
goes on from there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from rowlock.core.errors import InvalidArguments
from rowlock.core.states import FINAL, LIVE, State
from rowlock.store.engine.operation import Call, Steps, operation
from rowlock.store.jobs.claim import NO_ID
from rowlock.store.read.reads import COUNT_LIMIT, LAST_ID, JobFilter, checked_id, params

FIRST_LOOK = 1_000  # rows that are read first: enough for a page of most filters
LOOK = 20_000  # rows that one statement may read
SPARSE_LOOK = 5_000  # the same through an index whose rows lie far apart in the table
LOOKS = 3  # looks through each index that one count may take
LEAST_PREFIX = 4  # characters of an id


class Page(NamedTuple):
    """Some of the jobs that fit, newest first."""

    ids: list[str]
    next: str | None  # give it as `before` for the next page, which may have jobs; None when all were looked at


@dataclass(frozen=True, slots=True)
class Counted:
    """How many jobs match the filter. If not `exact`, there are at least `count`."""

    count: int
    exact: bool


class Ids(NamedTuple):
    """A range of ids: `low` belongs to it, `high` does not."""

    low: str = NO_ID
    high: str = LAST_ID


def ids_that_begin(prefix: str) -> Ids:
    """The ids that begin with these characters."""
    digits = prefix.strip().lower().replace("-", "")
    if not LEAST_PREFIX <= len(digits) <= 32 or not set(digits) <= set("0123456789abcdef"):
        raise InvalidArguments(f"{prefix!r} is not the beginning of an id (at least {LEAST_PREFIX} digits from 0 to f)")
    after = int(digits.ljust(32, "f"), 16) + 1
    return Ids(str(UUID(digits.ljust(32, "0"))), LAST_ID if after >= 1 << 128 else str(UUID(int=after)))


@operation(read=True)
def page(filter: JobFilter, limit: int, before: str | None = None, within: Ids | None = None) -> Steps[Page]:
    """The newest jobs that fit, before the job `before`; maybe fewer than `limit` although there are more."""
    low, high = within or Ids()
    start = min(checked_id(before, high), high)
    found, edges = list[str](), list[str]()
    for index, given in _indexes(filter):
        ids, edge = yield from _through(index, given, limit, start, low)
        found += ids
        edges += [] if edge is None else [edge]
    # Below an edge, one index may have jobs that were not looked at: they come with the next page, in their order.
    edge = max(edges, default=None)
    ids = sorted({job_id for job_id in found if edge is None or job_id >= edge}, reverse=True)
    if len(ids) >= limit:
        return Page(ids[:limit], ids[limit - 1])
    return Page(ids, edge)


def _through(
    index: str, wanted: dict[str, Any], limit: int, start: str, low: str
) -> Steps[tuple[list[str], str | None]]:
    """What fits in a bounded look through one index, and where that ended; None at the end of the index."""
    found, at = list[str](), start
    for size in (FIRST_LOOK, _size(index)):
        edge = yield Call(f"edge_{index}", **wanted | {"id": at, "low": low, "skip": size - 1})
        floor = edge[0].id if edge else low
        rows = yield Call(f"look_{index}", **wanted | {"id": at, "low": floor, "n": limit - len(found)})
        found += [row.id for row in rows]
        if len(found) >= limit:
            return found, found[-1]
        if not edge:
            return found, None
        at = floor
    return found, at


@operation(read=True)
def count(
    filter: JobFilter, within: Ids | None = None, limit: int = COUNT_LIMIT, looks: int = LOOKS
) -> Steps[dict[State, Counted]]:
    """How many jobs fit in each state that the filter lets through. Exact below `limit`, if `looks` are enough."""
    wanted, found, inexact = filter.states or tuple(State), Counter[State](), set[State]()
    for index, given in _indexes(filter, apart=True):
        low, at = within or Ids()
        for _ in range(looks):
            edge = yield Call(f"edge_{index}", **given | {"id": at, "low": low, "skip": _size(index) - 1})
            floor = edge[0].id if edge else low
            for row in (yield Call(f"by_state_{index}", **given | {"id": at, "low": floor})):
                found[State(row.state)] += int(row.number)
            if not edge:
                break
            at = floor
            if all(found[state] >= limit for state in _of(index, wanted)):
                break
        else:
            inexact |= _of(index, wanted)  # there is more than was looked at
    return {state: Counted(min(found[state], limit), state not in inexact and found[state] < limit) for state in wanted}


def _size(index: str) -> int:
    """How many rows one look through an index reads."""
    return LOOK if index in ("live", "finished") else min(LOOK, SPARSE_LOOK)


def _of(index: str, wanted: Sequence[State]) -> set[State]:
    """The wanted states that jobs in this index can have."""
    for state in (State.RUNNING, State.DEAD, State.CANCELLED):
        if index.endswith(f"_{state}"):
            return {state}
    if index in ("finished", "finished_owner"):
        return {State.SUCCEEDED}
    return {state for state in wanted if state in (LIVE if index.startswith("live") else FINAL)}


def _indexes(filter: JobFilter, apart: bool = False) -> list[tuple[str, dict[str, Any]]]:
    """The indexes to look through, each with the statement's parameters: all jobs that can fit are in one of them, and
    each job in one alone. If no state is asked for, one index has all finished jobs; `apart`, each final state has its
    own."""
    wanted, given = set(filter.states or State), params(filter)
    live, final = wanted & LIVE, wanted & FINAL
    by = next((name for name in ("batch", "parent", "owner") if getattr(filter, name) is not None), None)
    found: list[tuple[str, dict[str, Any]]] = []
    if live:
        found.append((f"live_{by}" if by else "live_running" if live == {State.RUNNING} else "live", given))
    if filter.schedule is not None and by is None:
        by = "schedule"
    if by in ("batch", "parent", "schedule"):
        return found + [(f"finished_{by}", given)] * bool(final)
    end = "finished_owner" if by else "finished"
    if final == FINAL and not apart:
        return [*found, (end, given)]
    if State.SUCCEEDED in final:
        found.append((end, given | {"dead": False, "cancelled": False}))
    return found + [(f"{end}_{state}", given) for state in (State.DEAD, State.CANCELLED) if state in final]
