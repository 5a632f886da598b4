"""List and count jobs with any filter, at a bounded cost.

Some filters have no index and would read a million rows to find a few. So a search walks the index that suits the
filter best, newest first, reads a bounded number of rows, and returns where it stopped, so that the next page can go on
from there. `newest_ids` reads such pages until it has the requested number of jobs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from rowlock.core.job import Job
from rowlock.core.states import FINAL, LIVE, State
from rowlock.store.engine.operation import Call, Row, Steps, operation
from rowlock.store.read.filter import ALL_IDS, JobFilter, checked_id, params
from rowlock.store.read.job_rows import by_ids

FIRST_LOOK = 1_000  # rows that are read first: enough for a page with most filters
LOOK = 20_000  # rows that one statement may read
SPARSE_LOOK = 5_000  # rows that one statement may read if an index scatters them over the table
LOOKS = 3  # looks at each index that one count may take
COUNT_LIMIT = 10_000


class Page(NamedTuple):
    """Some of the matching jobs, newest first."""

    ids: list[str]
    next: str | None  # pass it as `before` to get the next page; None after the last page


@dataclass(frozen=True, slots=True)
class Counted:
    """How many jobs match the filter. If not `exact`, there are at least `count`."""

    count: int
    exact: bool


class Index(NamedTuple):
    name: str  # the suffix of its statements' names
    params: dict[str, Any]
    states: set[State]  # the wanted states that its jobs can have
    all_fit: bool  # all of its jobs match the filter, so LIMIT alone bounds the rows that are read

    @property
    def size(self) -> int:
        """The number of rows that one look reads."""
        return LOOK if self.name in ("live", "finished") else min(LOOK, SPARSE_LOOK)


# --- lists


@operation(read=True)
def list_jobs(filter: JobFilter, limit: int, before: str | None = None) -> Steps[list[Job]]:
    """The matching jobs, newest first. For the next page, pass the last id of this page as `before`."""
    ids = yield from newest_ids(filter, limit, before).start()
    # Another statement reads the rows by id, so they may show changes that were made after the search.
    return (yield from by_ids(ids).start()) if ids else []


@operation(read=True)
def newest_ids(filter: JobFilter, limit: int, before: str | None = None) -> Steps[list[str]]:
    """The ids of up to `limit` matching jobs, newest first. For the next page, pass the last id as `before`."""
    found, next_ = list[str](), before
    while len(found) < limit:
        ids, next_ = yield from page(filter, limit - len(found), next_).start()
        found += ids
        if next_ is None:
            break
    return found


@operation(read=True)
def page(filter: JobFilter, limit: int, before: str | None = None) -> Steps[Page]:
    """The newest matching jobs before the job `before`. May return fewer than `limit` even if there are more."""
    low, high = filter.ids
    start = high if before is None else min(checked_id(before), high)
    found, edges = list[str](), list[str]()
    for index in _indexes(filter):
        ids, edge = yield from _look(index, limit, start, low)
        found += ids
        edges += [] if edge is None else [edge]
    # Below an edge, one index may have jobs that were not read yet. The next page returns all jobs below it, in order.
    edge = max(edges, default=None)
    ids = sorted({job_id for job_id in found if edge is None or job_id >= edge}, reverse=True)
    if len(ids) >= limit:
        return Page(ids[:limit], ids[limit - 1])
    return Page(ids, edge)


def _look(index: Index, limit: int, start: str, low: str) -> Steps[tuple[list[str], str | None]]:
    """The matches of a bounded look at one index, and the id where it stopped; None at the end of the index."""
    found, at = list[str](), start
    for size in (FIRST_LOOK, index.size):
        edge = [] if index.all_fit else (yield from _edge(index, at, low, size))
        floor = edge[0].id if edge else low
        given = index.params | {"id": at, "low": floor, "n": limit - len(found)}
        found += [row.id for row in (yield Call(f"look_{index.name}", **given))]
        if len(found) >= limit:
            return found, found[-1]
        if not edge:
            return found, None
        at = floor
    return found, at


def _edge(index: Index, start: str, low: str, size: int) -> Steps[list[Row]]:
    """The row at which `size` rows have been read; no row at the end of the index."""
    if index.name == "live_running":
        return []  # there are never more running jobs than slots
    return (yield Call(f"edge_{index.name}", **index.params | {"id": start, "low": low, "skip": size - 1}))


# --- counts


@operation(read=True)
def count(filter: JobFilter, limit: int = COUNT_LIMIT, looks: int = LOOKS) -> Steps[dict[State, Counted]]:
    """The number of matching jobs in each state of the filter. Exact below `limit`, if `looks` are enough."""
    wanted, found, inexact = filter.states or tuple(State), Counter[State](), set[State]()
    for index in _indexes(filter, apart=True):
        low, at = filter.ids
        for _ in range(looks):
            edge = yield from _edge(index, at, low, index.size)
            floor = edge[0].id if edge else low
            for row in (yield Call(f"by_state_{index.name}", **index.params | {"id": at, "low": floor})):
                found[State(row.state)] += int(row.number)
            if not edge:
                break
            at = floor
            if all(found[state] >= limit for state in index.states):
                break
        else:
            inexact |= index.states  # there are rows that were not read
    return {state: Counted(min(found[state], limit), state not in inexact and found[state] < limit) for state in wanted}


# --- indexes


def _indexes(filter: JobFilter, apart: bool = False) -> list[Index]:
    """The indexes to search. Each job that can match is in exactly one of them. If all final states are wanted, one
    index serves all finished jobs; with `apart`, each final state has its own index."""
    wanted, given = set(filter.states or State), params(filter)
    live, final = wanted & LIVE, wanted & FINAL
    by = next((name for name in ("batch", "parent", "owner") if getattr(filter, name) is not None), None)
    finished_by = by or ("schedule" if filter.schedule is not None else None)
    if by == "owner" and wanted == set(State) and _only(filter, by) and not apart:
        return [Index("owner", given, wanted, True)]
    found: list[Index] = []
    if live == {State.RUNNING}:  # never more than slots, so the other fields of the filter need no index
        found.append(Index("live_running", given, live, False))
    elif live:
        found.append(Index(f"live_{by}" if by else "live", given, live, live == LIVE and _only(filter, by)))
    all_fit, whole = _only(filter, finished_by), final == FINAL
    name = f"finished_{finished_by}" if finished_by else "finished"
    if finished_by in ("batch", "parent", "schedule") or (whole and not apart):
        return [*found, Index(name, given, final, all_fit and whole)] if final else found
    if State.SUCCEEDED in final:
        found.append(Index(name, given | {"dead": False, "cancelled": False}, {State.SUCCEEDED}, False))
    troubled = [state for state in (State.DEAD, State.CANCELLED) if state in final]
    return found + [Index(f"{name}_trouble", given | {"trouble": str(state)}, {state}, all_fit) for state in troubled]


def _only(filter: JobFilter, by: str | None) -> bool:
    """Whether the filter has no conditions other than states, ids and the field `by`."""
    rest = replace(filter, states=(), ids=ALL_IDS, **({} if by is None else {by: None}))
    return rest == JobFilter()
