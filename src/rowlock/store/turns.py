"""Claiming jobs that have a source: look for candidates without a lock, then lock, count and take in one transaction.

Lock order: classes with a total (waited for), sources (passed over if busy), then jobs (passed over if busy). A claim
waits for nothing while it holds a source, so it cannot be part of a deadlock.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rowlock.core.job import Claimed
from rowlock.core.source import UNLIMITED, Admission, Gate, admit, class_of
from rowlock.core.turns import Dealt, Found, deal
from rowlock.store.jobs import Lane, in_claim_order
from rowlock.store.keys import let_go
from rowlock.store.operation import Call, Row, Steps, operation

PLAIN = ""  # the turn of jobs without a source
Place = tuple[int, str]  # where a look goes on: after this priority, and from this source on
Turn = tuple[str, str, int, str, int]  # queue, task, priority, source, and how many at most


class Head(NamedTuple):
    """A source with ready jobs in one lane and priority, and how it stood when it was looked at."""

    queue: str
    task: str
    priority: int
    source: str
    last: bool  # the look ended here, because it was long enough
    wrapped: bool  # it comes after the turn of the jobs without a source
    gate: Gate


class Taken(NamedTuple):
    """What a claim took, and whether there may be more for it."""

    jobs: list[Claimed]
    more: bool
    last_source: str | None  # the last one that had a turn
    plain: bool = False  # there were jobs without a source


@operation(read=True, hot=True)
def look(
    lanes: Sequence[tuple[str, str]], cursor: str, take: int, floor: int, places: Mapping[tuple[str, str], Place] = {}
) -> Steps[list[Head]]:
    """The sources with ready jobs in these (queue, task), from `cursor` on, of a priority after `floor`: the next
    `take` in each lane, best priority first. Lanes that are named in `places` go on from there."""
    asked = [(*lane, take, *places.get(lane, (floor, cursor))) for lane in lanes]
    rows = yield Call("look", lane=asked, cursor=cursor)
    return [Head(row[0], row[1], row[2], row[3], bool(row[4]), bool(row[5]), gate_of(row[6:])) for row in rows]


def gate_of(row: Sequence[Any]) -> Gate:
    """The columns `{gate}` as a record."""
    gate = Gate._make(row)
    if gate.enabled is True:  # this engine has booleans
        return gate
    return gate._replace(enabled=bool(gate.enabled), opened=bool(gate.opened), probing=bool(gate.probing))


@operation(hot=True)
def take(worker: str, token: str, heads: Sequence[Head], plain: Sequence[Lane], n: int, lease: float) -> Steps[Taken]:
    """Claim up to `n` jobs of these sources, and of the lanes without a source, under one fresh token."""
    order = sorted({head.source for head in heads})
    admissions, gates, at = yield from _admitted(order, {head.source: head.gate for head in heads})
    share = max(1, math.ceil(n / (len(admissions) + 1)))
    turns = [
        (head.queue, head.task, head.priority, head.source, min(share, admissions[head.source].room, n))
        for head in heads
        if head.source in admissions
    ]
    if not plain and (epoch := _all_of(turns, admissions, gates, n)) is not None:
        under = {"epoch": epoch, "worker": worker, "token": token, "lease": lease, "at": at}
        if rows := (yield Call("take_turns", turn=turns, **under)):
            return (yield from _took_all(rows, turns, admissions, gates, worker, token, at))
    takes = {turn[:4]: turn[4] for turn in turns}
    rows = (yield Call("find_turns", turn=turns, n=share)) if turns else []
    sourced, ends = _oldest([Found(*row) for row in rows], takes)
    rows = (yield Call("find_plain", lane=plain, n=share)) if plain else []
    unsourced, end = _plain([Found(*row) for row in rows], share)
    dealt = deal(
        sourced + unsourced,
        n,
        order=_with_plain(heads, order),
        room={source: admission.room for source, admission in admissions.items()},
        class_room={class_of(source): admission.class_room for source, admission in admissions.items()},
        take=takes | ends | end,
    )
    if not dealt.picks:
        return Taken([], dealt.more, None, bool(unsourced))
    jobs = yield from _claim(dealt, gates, worker, token, lease, at)
    yield from _spend(dealt.picks, admissions, gates, token, at)
    served = [job.source or PLAIN for job in dealt.picks]
    return Taken(in_claim_order(jobs, token, worker), dealt.more, served[-1], bool(unsourced))


def _all_of(turns: Sequence[Turn], admissions: dict[str, Admission], gates: dict[str, Gate], n: int) -> int | None:
    """The epoch of these sources, if whatever is found can be taken: there is nothing to deal."""
    epochs = {gates[turn[3]].epoch for turn in turns}
    free = len({turn[3] for turn in turns}) == len(turns) and sum(turn[4] for turn in turns) <= n
    alike = len({turn[2] for turn in turns}) == 1 and len(epochs) == 1
    return epochs.pop() if free and alike and all(a.class_room == UNLIMITED for a in admissions.values()) else None


def _took_all(
    rows: Sequence[Row],
    turns: Sequence[Turn],
    admissions: dict[str, Admission],
    gates: dict[str, Gate],
    worker: str,
    token: str,
    at: Any,
) -> Steps[Taken]:
    jobs = in_claim_order(rows, token, worker)
    yield from let_go([job.id for job in jobs if job.unique_mode == "while_queued"])
    yield from _spend(jobs, admissions, gates, token, at)
    served = Counter(job.source for job in jobs)
    more = any(served[source] >= take and admissions[source].room > take for _, _, _, source, take in turns)
    return Taken(jobs, more, next(turn[3] for turn in reversed(turns) if served[turn[3]]))


def _admitted(order: Sequence[str], seen: dict[str, Gate]) -> Steps[tuple[dict[str, Admission], dict[str, Gate], Any]]:
    """Lock what is limited, count anew, and ask each source how many it lets in."""
    missing = [source for source, gate in seen.items() if not gate.has_row]
    if missing:
        yield Call("make_sources", made=[(name,) for name in sorted({*missing, *map(class_of, missing)})])
    classes = sorted({class_of(source) for source, gate in seen.items() if gate.total is not None})
    if classes:
        yield Call("lock_classes", asked=[(name,) for name in classes])
    governed = sorted(source for source, gate in seen.items() if gate.governed)
    locked = {row[0] for row in (yield Call("lock_sources", asked=[(s,) for s in governed]))} if governed else set()
    rows = yield Call("gates", named=[(source,) for source in order])
    gates = {row[0]: gate_of(row[2:]) for row in rows}
    free = {
        source: gate
        for source, gate in gates.items()
        # What has become limited since the look is left for the next one, which will lock it.
        if (source in locked or not gate.governed) and (gate.total is None or class_of(source) in classes)
    }
    admissions = {source: admit(gate) for source, gate in free.items()}
    return {source: a for source, a in admissions.items() if a.room > 0}, gates, rows[0][1] if rows else None


Ends = dict[tuple[str, str, int, str], int]  # (queue, task, priority, source) that may have more, for `deal`


def _oldest(found: list[Found], takes: Mapping[tuple[str, str, int, str], int]) -> tuple[list[Found], Ends]:
    """Jobs of sources. Where one source has jobs in several lanes, nothing is next behind the end of a lane that may
    have more; that end is marked."""
    groups: dict[tuple[int, str], dict[tuple[str, str], list[Found]]] = {}
    for job in found:
        lanes = groups.setdefault((job.priority, job.source or ""), {})
        lanes.setdefault((job.queue, job.task), []).append(job)
    kept: list[Found] = []
    ends: Ends = {}
    for (priority, source), lanes in groups.items():
        full = [
            (max(map(_age, jobs)), lane) for lane, jobs in lanes.items() if len(jobs) >= takes[*lane, priority, source]
        ]
        horizon, lane = min(full) if full and len(lanes) > 1 else ("", None)
        kept += [job for jobs in lanes.values() for job in jobs if lane is None or job.id <= horizon]
        if lane is not None:
            ends[*lane, priority, source] = 1
    return kept, ends


def _age(job: Found) -> str:
    return job.id


def _plain(found: list[Found], share: int) -> tuple[list[Found], Ends]:
    """Jobs without a source, oldest first over all lanes. Behind the end of a lane that may have more, those of other
    lanes are not yet next; that end is marked as cut."""
    lanes: dict[tuple[str, str], list[Found]] = {}
    for job in found:
        lanes.setdefault((job.queue, job.task), []).append(job)
    ends = [max(jobs, key=_place) for jobs in lanes.values() if len(jobs) >= share]
    if not ends:
        return found, {}
    horizon = min(ends, key=_place)
    kept = [job for job in found if _place(job) <= _place(horizon)]
    return kept, {(horizon.queue, horizon.task, horizon.priority, PLAIN): 1}


def _place(job: Found) -> tuple[int, str]:
    return job.priority, job.id


def _with_plain(heads: Sequence[Head], order: list[str]) -> list[str]:
    """The round: sources after the cursor, the jobs without one, then the sources up to the cursor."""
    wrapped = {head.source for head in heads if head.wrapped}
    return [*[s for s in order if s not in wrapped], PLAIN, *[s for s in order if s in wrapped]]


def _claim(
    dealt: Dealt, gates: dict[str, Gate], worker: str, token: str, lease: float, at: Any
) -> Steps[list[Sequence[Any]]]:
    """Take the jobs, each under the epoch of its source's breaker; nearly always there is only one."""
    epochs: dict[int, list[tuple[str]]] = {}
    for job in dealt.picks:
        epoch = gates[job.source].epoch if job.source else 0
        epochs.setdefault(epoch, []).append((job.id,))
    jobs: list[Sequence[Any]] = []
    for epoch, picked in epochs.items():
        rows = yield Call("take", picked=picked, epoch=epoch, worker=worker, token=token, lease=lease, at=at)
        jobs += rows or (yield Call("taken", picked=picked))  # on PostgreSQL a part of the first
    yield from let_go([job.id for job in map(_claimed, jobs) if job.unique_mode == "while_queued"])
    return jobs


def _claimed(row: Sequence[Any]) -> Claimed:
    return Claimed._make((*row, "", ""))


def _spend(
    picks: Sequence[Found | Claimed], admissions: dict[str, Admission], gates: dict[str, Gate], token: str, at: Any
) -> Steps[None]:
    """Take tokens out of the buckets, and remember which job is a probe."""
    counts: dict[str, int] = {}
    for job in picks:
        if job.source:
            counts[job.source] = counts.get(job.source, 0) + 1
            if admissions[job.source].probe:
                yield Call("set_probe", name=job.source, job_id=job.id, token=token)
    levels = [(source, gates[source].level, count) for source, count in sorted(counts.items())]
    spent = [(source, level - count) for source, level, count in levels if level is not None]
    if spent:
        yield Call("spend", spent=spent, at=at)
