"""Claim jobs that have a source: look without locks, then lock, count and claim in one transaction.

Lock order: classes of sources that have a limit for the whole class (a total), then sources, then jobs. A claim waits
for the locks of classes and skips locked sources and jobs. So it never waits while it holds a source, and cannot take
part in a deadlock.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from rowlock.core.claiming.actions import ClaimResult
from rowlock.core.claiming.pick import Found, deal, in_turn
from rowlock.core.claiming.ranges import Position, QueueTask, Range, Sighting, SourceRange, position_of
from rowlock.core.job import Claimed
from rowlock.core.sources.admission import UNLIMITED, Admission, Gate, admit, class_of
from rowlock.store.engine.operation import Call, Row, Steps, dialect, operation
from rowlock.store.jobs.claim import claim_front, claim_picked, in_claim_order, release_queued_keys

Asked = Mapping[Position, int]  # the most jobs to take at each position
_priority_and_age = attrgetter("priority", "id")


@operation(read=True, hot=True)
def look(ranges: Sequence[SourceRange]) -> Steps[list[Sighting]]:
    """Find the sources with ready jobs in these ranges, each with its gate, best priority first."""
    rows = yield Call("look", span=ranges)
    return [Sighting(Position._make(row[:4]), gate_of(row[5:]), bool(row[4])) for row in rows]


def gate_of(row: Sequence[Any]) -> Gate:
    gate = Gate._make(row)
    if gate.enabled is True:  # PostgreSQL: its booleans need no conversion; SQLite's are 0 and 1
        return gate
    return gate._replace(enabled=bool(gate.enabled), opened=bool(gate.opened), probing=bool(gate.probing))


@operation(hot=True)
def claim_sourced(
    worker: str,
    token: str,
    sightings: Sequence[Sighting],
    order: Sequence[str],
    plain: Sequence[Range],
    n: int,
    lease: float,
) -> Steps[ClaimResult]:
    """Claim up to `n` jobs under one new token: jobs of these sources in this order, and jobs from the ranges of plain
    jobs, which take turns as if they were one more source."""
    admitted = yield from _admitted({one.source: one.gate for one in sightings})
    admissions, at = admitted.admissions, admitted.at
    share = max(1, math.ceil(n / (len(admissions) + 1)))  # jobs to read at each position; + 1 for plain jobs
    asked = {
        position: min(share, admissions[position.source].room, n)
        for position, _, _ in sightings
        if position.source in admissions
    }
    # Short path: every job that is found may start, so there is nothing to choose.
    if not plain and (epoch := _epoch_of_all(asked, admitted, n)) is not None:
        values = {"epoch": epoch, "worker": worker, "token": token, "lease": lease, "at": at}
        if jobs := (yield from _claim_all(asked, share, **values)):
            yield from release_queued_keys(jobs)
            yield from _spend(jobs, admitted, token)
            return _result(in_turn(jobs, order), False, sightings, asked, _counted(jobs), admitted)
    # Long path: find jobs, choose among them by turns, claim the chosen ones.
    rows = (yield Call("find_turns", turn=_rows(asked), n=share)) if asked else []
    found = [Found(*row) for row in rows]
    sourced, ends = _oldest(found, asked)
    rows = (yield Call("find_plain", lane=plain, n=share)) if plain else []
    unsourced, end = _plain_in_order([Found(*row) for row in rows], share)
    picks = deal(
        sourced + unsourced,
        n,
        order=order,
        room={source: admission.room for source, admission in admissions.items()},
        class_room={class_of(source): admission.class_room for source, admission in admissions.items()},
        asked=asked | ends | end,
    )
    jobs = []
    if picks:
        rows = yield from _claim(picks, admitted.gates, worker, token, lease, at)
        yield from _spend(picks, admitted, token)
        jobs = in_claim_order(rows, token, worker)
        yield from release_queued_keys(jobs)
    return _result(in_turn(jobs, order), bool(unsourced), sightings, asked, _counted(found), admitted)


class _Admitted(NamedTuple):
    """The sources of a claim, with counts that were read under their locks."""

    admissions: dict[str, Admission]  # of the sources that admit at least one job
    gates: dict[str, Gate]  # of all sources
    locked: set[str]  # sources that another worker has locked, or that have got a limit since the look
    at: Any  # the database's time when it counted


def _rows(asked: Asked) -> list[tuple[str, str, int, str, int]]:
    return [(*position, most) for position, most in asked.items()]


def _epoch_of_all(asked: Asked, admitted: _Admitted, n: int) -> int | None:
    """If every job that is found may be claimed, and the breakers of all these sources are in the same epoch: that
    epoch. Else None."""
    sources = {position.source for position in asked}
    epochs = {admitted.gates[source].epoch for source in sources}
    free = len(sources) == len(asked) and sum(asked.values()) <= n
    alike = len({position.priority for position in asked}) == 1 and len(epochs) == 1
    unlimited = all(admission.class_room == UNLIMITED for admission in admitted.admissions.values())
    return epochs.pop() if free and alike and unlimited else None


def _claim_all(asked: Asked, share: int, **values: Any) -> Steps[list[Claimed]]:
    """Claim every job that is found, without choosing. Claims none if this engine can't read a different number of jobs
    at each position. `values` holds the parameters that all statements of a claim share."""
    if (yield from dialect()).moves_in_one_statement:
        rows = yield Call("claim_turns", turn=_rows(asked), **values)
        return in_claim_order(rows, values["token"], values["worker"])
    if any(most < share for most in asked.values()):  # on SQLite, LIMIT is the same for all positions
        return []
    front = yield Call("front_turns", turn=_rows(asked), n=share, epoch=values["epoch"])
    return (yield from claim_front(front, **values))


def _result(
    jobs: list[Claimed],
    plain: bool,
    sightings: Sequence[Sighting],
    asked: Asked,
    found: Counter[Position],
    admitted: _Admitted,
) -> ClaimResult:
    """The claimed jobs, the positions that may have more jobs, and the gates of the sources after the claim. `asked`
    and `found` count the jobs requested and found at each position; `plain` is True if any plain jobs were found."""
    claimed, started = _counted(jobs), Counter(job.source for job in jobs)
    left = {
        position
        for position, _, _ in sightings
        if position not in asked or found[position] >= asked[position] or found[position] > claimed[position]
    }
    running = Counter(class_of(job.source) for job in jobs if job.source is not None)
    gates = {
        source: gate.after(started[source], running[class_of(source)]) if gate.governed else gate
        for source, gate in admitted.gates.items()
    }
    return ClaimResult(jobs, plain, left, gates, admitted.locked)


def _counted(jobs: Sequence[Found | Claimed]) -> Counter[Position]:
    return Counter(map(position_of, jobs))


def _admitted(seen: dict[str, Gate]) -> Steps[_Admitted]:
    """Lock the sources that have limits, count again under the locks, and work out how many jobs each one admits."""
    missing = [source for source, gate in seen.items() if not gate.has_row]
    if missing:
        yield Call("make_sources", made=[(name,) for name in sorted({*missing, *map(class_of, missing)})])
    classes = sorted({class_of(source) for source, gate in seen.items() if gate.total is not None})
    if classes:
        yield Call("lock_classes", asked=[(name,) for name in classes])
    governed = sorted(source for source, gate in seen.items() if gate.governed)
    ours = {row.name for row in (yield Call("lock_sources", asked=[(s,) for s in governed]))} if governed else set()
    rows = yield Call("gates", named=[(source,) for source in sorted(seen)])
    gates = {row[0]: gate_of(row[2:]) for row in rows}
    free = {
        source: admit(gate)
        for source, gate in gates.items()
        # A source that got a limit after the look isn't locked here, so it is left to the next claim.
        if (source in ours or not gate.governed) and (gate.total is None or class_of(source) in classes)
    }
    admissions = {source: admission for source, admission in free.items() if admission.room > 0}
    return _Admitted(admissions, gates, gates.keys() - free.keys(), rows[0][1] if rows else None)


Ends = dict[Position, int]  # positions that may have more jobs, for the argument `asked` of `deal`


def _oldest(found: list[Found], asked: Asked) -> tuple[list[Found], Ends]:
    """The jobs of sources that may be claimed without overtaking an older job. A source may have jobs at several
    positions of one priority. If one of these was not read to its end, jobs younger than the last one read there are
    left out, because an unread job may be older. That position is marked as possibly having more jobs."""
    groups: dict[tuple[int, str | None], dict[Position, list[Found]]] = {}
    for job in found:
        groups.setdefault((job.priority, job.source), {}).setdefault(position_of(job), []).append(job)
    kept: list[Found] = []
    ends: Ends = {}
    for positions in groups.values():
        full = [(max(job.id for job in jobs), one) for one, jobs in positions.items() if len(jobs) >= asked[one]]
        horizon, last = min(full) if full and len(positions) > 1 else ("", None)
        kept += [job for jobs in positions.values() for job in jobs if last is None or job.id <= horizon]
        if last is not None:
            ends[last] = 1
    return kept, ends


def _plain_in_order(found: list[Found], share: int) -> tuple[list[Found], Ends]:
    """The plain jobs that may be claimed without breaking claim order across the ranges. If a range was not read to its
    end, all jobs after the last one read there are left out, and its position is marked as possibly having more."""
    ranges: dict[QueueTask, list[Found]] = {}
    for job in found:
        ranges.setdefault(QueueTask(job.queue, job.task), []).append(job)
    ends = [max(jobs, key=_priority_and_age) for jobs in ranges.values() if len(jobs) >= share]
    if not ends:
        return found, {}
    horizon = min(ends, key=_priority_and_age)
    kept = [job for job in found if _priority_and_age(job) <= _priority_and_age(horizon)]
    return kept, {position_of(horizon): 1}


def _claim(
    picks: Sequence[Found], gates: dict[str, Gate], worker: str, token: str, lease: float, at: Any
) -> Steps[list[Row]]:
    """Claim the jobs, with one statement for each breaker epoch. Nearly always all sources are in the same epoch."""
    epochs: dict[int, list[tuple[str]]] = {}
    for job in picks:
        epoch = gates[job.source].epoch if job.source else 0
        epochs.setdefault(epoch, []).append((job.id,))
    jobs: list[Row] = []
    for epoch, picked in epochs.items():
        jobs += yield from claim_picked(picked, epoch=epoch, worker=worker, token=token, lease=lease, at=at)
    return jobs


def _spend(picks: Sequence[Found | Claimed], admitted: _Admitted, token: str) -> Steps[None]:
    """Take tokens from the token buckets, and store which job is the probe of an open breaker."""
    counts: dict[str, int] = {}
    for job in picks:
        if job.source:
            counts[job.source] = counts.get(job.source, 0) + 1
            if admitted.admissions[job.source].probe:
                yield Call("set_probe", name=job.source, job_id=job.id, token=token)
    levels = [(source, admitted.gates[source].level, count) for source, count in sorted(counts.items())]
    spent = [(source, level - count) for source, level, count in levels if level is not None]
    if spent:
        yield Call("spend", spent=spent, at=admitted.at)
