"""The page of `rowlock report`: HTML with drawings in SVG, and no script. Each section reads what it shows.

Names and messages come from jobs, and jobs may come from anybody: every text goes through `text`, and the page forbids
scripts and everything from elsewhere by its own policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, Literal

from rowlock.cli.inspect.report_words import nothing, span, table, text, time
from rowlock.store import audit, workers
from rowlock.store.engine.store import Store
from rowlock.store.read import counters, failures
from rowlock.store.read.counters import BOUNDS, BUCKETS, percentile
from rowlock.store.read.counts import read_stats
from rowlock.store.schedules import schedules
from rowlock.store.sources import sources

WIDTH, HEIGHT = 720, 120
MOST_STEPS, STEPS = 120, (60, 300, 900, 3600, 4 * 3600, 24 * 3600)
MOST_GROUPS, MOST_QUEUES, MOST_ROWS = 50, 12, 100
HOURS_FROM = timedelta(hours=24)  # beyond it the counters are kept by hours
FAILED = ("attempt.failed", "attempt.timed_out", "attempt.lost")
TICKS = {"fired": "●", "skipped": "◌", "missed": "○"}
STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; color: #1c2230; background: #fff; max-width: 60rem; margin: 2rem auto;
       padding: 0 1rem }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin-top: 2rem } h3 { font-size: 1rem; margin-bottom: .2rem }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; padding: .25rem .5rem;
       border-bottom: 1px solid #dde1ea; vertical-align: top; overflow-wrap: anywhere }
figure { margin: 0 }
.number { text-align: right; font-variant-numeric: tabular-nums } svg { width: 100%; height: auto; display: block }
.ok { fill: #2a7d5f } .bad { fill: #c23b3b } .base { stroke: #b8bfcc }
.cell { fill: #3457b1 } .axis { font-size: 10px; fill: #5a6275 } .quiet { color: #5a6275 }
"""


class Times:
    """The time that the page is about, cut into the columns of its drawings."""

    def __init__(self, begin: datetime, end: datetime) -> None:
        self.begin, self.end = begin, end
        self.kept = 3600 if end - begin > HOURS_FROM else 60  # seconds that one counter of the database is about
        seconds = (end - begin).total_seconds()
        self.step = max(self.kept, next((one for one in STEPS if seconds / one <= MOST_STEPS), STEPS[-1]))
        self.first = begin - timedelta(seconds=begin.timestamp() % self.step)  # where the first column begins
        self.columns = max(1, -(-int((end - self.first).total_seconds()) // self.step))

    def column(self, at: datetime) -> int:
        """The column in which a moment lies."""
        return min(max(int((at - self.first).total_seconds()) // self.step, 0), self.columns - 1)


async def page(store: Store, title: str, begin: datetime, end: datetime) -> str:
    """The whole page."""
    times = Times(begin, end)
    parts = (
        ("Jobs that ended, and attempts that failed", await _throughput(store, times)),
        ("Waiting jobs by queue", await _depths(store, times)),
        ("How long jobs waited", await _heat(store, times, "wait")),
        ("How long attempts ran", await _heat(store, times, "run")),
        ("Queues at the end of this time", await _queues(store, times)),
        ("Failures", await _failures(store, times)),
        ("Sources at the end of this time, and their last hour", await _sources(store, times)),
        ("Schedules and their last ticks", await _schedules(store)),
        ("Workers at the end of this time", await _workers(store)),
        ("What operators did", await _audit(store, times)),
    )
    body = "\n".join(f"<section><h2>{title}</h2>{drawn}</section>" for title, drawn in parts)
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy"'
        f' content="{policy}"><meta name="viewport" content="width=device-width"><title>Rowlock report</title>'
        f"<style>{STYLE}</style></head><body><h1>Report, {time(begin)} to {time(end)} UTC</h1>"
        f'<p class="quiet">{text(title)}. One column is {span(times.step)}.</p>\n{body}\n</body></html>\n'
    )


# --- drawings


async def _throughput(store: Store, times: Times) -> str:
    ended, failed = [0] * times.columns, [0] * times.columns
    for at, counts in (await store.run(counters.by_time(times.first, None, None, times.kept))).items():
        ended[times.column(at)] += sum(counts.get(what, 0) for what in ("succeeded", "dead", "cancelled"))
        failed[times.column(at)] += sum(counts.get(what, 0) for what in FAILED)
    most, width = max(*ended, *failed, 1), WIDTH / times.columns
    bars = []
    for kind, numbers, part in (("ok", ended, 1.0), ("bad", failed, 0.5)):
        for column, number in enumerate(numbers):
            tall = HEIGHT * number / most
            bars += [_rect(kind, column * width, HEIGHT - tall, width * part * 0.9, tall)] if number else []
    said = f"{sum(ended):,} jobs ended and {sum(failed):,} attempts failed; at most {most:,} in one column."
    return _figure(times, bars, said)


async def _depths(store: Store, times: Times) -> str:
    drawn = []
    depths = await store.run(counters.samples(times.begin))
    longest = sorted(depths.items(), key=lambda each: -max((one.ready for one in each[1]), default=0))
    for name, samples in longest[:MOST_QUEUES]:
        ready = [0] * times.columns  # the most in each column
        for one in samples:
            column = times.column(one.at)
            ready[column] = max(ready[column], one.ready)
        most, width = max(*ready, 1), WIDTH / times.columns
        bars = [
            _rect("cell", column * width, HEIGHT * (1 - number / most), width, HEIGHT * number / most)
            for column, number in enumerate(ready)
            if number
        ]
        age = max((one.oldest_seconds or 0.0 for one in samples), default=0.0)
        said = f"At most {max(ready):,} ready; the oldest had waited for {span(age)}."
        drawn.append(f"<h3>{text(name)}</h3>{_figure(times, bars, said)}")
    return "".join(drawn) or nothing("no samples: they are written once a minute while a worker runs")


async def _heat(store: Store, times: Times, what: Literal["run", "wait"]) -> str:
    columns = [[0] * BUCKETS for _ in range(times.columns)]
    for at, buckets in (await store.run(counters.heat(what, times.first, None, None, times.kept))).items():
        mine = columns[times.column(at)]
        for bucket, number in enumerate(buckets):
            mine[bucket] += number
    most, wide, tall = max(max(column) for column in columns), WIDTH / times.columns, HEIGHT / BUCKETS
    cells = [
        _rect("cell", x * wide, HEIGHT - (bucket + 1) * tall, wide, tall, 0.15 + 0.85 * number / most)
        for x, column in enumerate(columns)
        for bucket, number in enumerate(column)
        if number
    ]
    total = [sum(column[bucket] for column in columns) for bucket in range(BUCKETS)]
    if not most:
        return nothing("nothing was counted in this time")
    said = f"Half took less than {span(percentile(total, 0.5))}, 95 of 100 less than {span(percentile(total, 0.95))}."
    return _figure(times, cells, f"{said} Rows from below: up to {span(BOUNDS[0])} … over {span(BOUNDS[-1])}.")


def _figure(times: Times, shapes: Iterable[str], said: str) -> str:
    ends = (
        f'<line class="base" x1="0" y1="{HEIGHT}" x2="{WIDTH}" y2="{HEIGHT}"/>'
        f'<text class="axis" x="0" y="{HEIGHT + 14}">{time(times.begin)}</text>'
        f'<text class="axis" x="{WIDTH}" y="{HEIGHT + 14}" text-anchor="end">{time(times.end)}</text>'
    )
    box = f'<svg viewBox="0 0 {WIDTH} {HEIGHT + 18}" role="img" aria-label="{text(said)}">'
    return f'<figure>{box}{"".join(shapes)}{ends}</svg><figcaption class="quiet">{text(said)}</figcaption></figure>'


def _rect(kind: str, x: float, y: float, wide: float, tall: float, strong: float | None = None) -> str:
    faint = "" if strong is None else f' fill-opacity="{strong:.2f}"'
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{tall:.1f}"{faint}/>'


# --- tables


async def _queues(store: Store, times: Times) -> str:
    spread = await store.run(counters.spread(max(times.begin, times.end - HOURS_FROM)))
    queues = (await store.run(read_stats())).queues

    def rows() -> Iterator[tuple[Any, ...]]:
        for queue in queues:
            run, wait = spread.get(queue.name, ([], []))
            p95 = [span(percentile(counts, 0.95)) for counts in (wait, run)]
            paused = "paused" if queue.paused else ""
            oldest = span(queue.oldest_ready_seconds)
            yield queue.name, queue.queued, queue.retryable, queue.running, oldest, *p95, paused

    return table(["queue", "queued", "retryable", "running", "oldest waits", "wait p95", "run p95", ""], rows())


async def _failures(store: Store, times: Times) -> str:
    found = await store.run(failures.failures(times.begin, times.end))
    note = "" if found.exact else f"<p>Only the newest failures are grouped, since {time(found.since)}.</p>"
    rows = (
        (group.number, group.task, group.error_code, group.example, time(group.first_seen), time(group.last_seen))
        for group in found.groups[:MOST_GROUPS]
    )
    return note + table(("times", "task", "code", "last message", "first", "last"), rows)


async def _sources(store: Store, times: Times) -> str:
    known = await store.run(sources.sources(MOST_ROWS))
    strips = await store.run(failures.source_strips([source.name for source in known]))

    def rows() -> Iterator[tuple[Any, ...]]:
        for source in known:
            minutes = strips.get(source.name, ())
            good, bad = sum(one.succeeded for one in minutes), sum(one.failed for one in minutes)
            yield source.name, source.state(times.end), source.running, good, bad

    return table(("source", "state", "running", "succeeded", "failed"), rows())


async def _schedules(store: Store) -> str:
    known = await store.run(schedules.schedules(MOST_ROWS))
    ticks = await store.run(failures.ticks(known))
    rows = (
        (
            schedule.id,
            f"{schedule.rule} ({schedule.zone})",
            schedule.task,
            "".join(TICKS.get(tick.what, "?") for tick in ticks.get(schedule.id, ())),
            schedule.problem or ("paused" if schedule.paused_at else ""),
        )
        for schedule in known
    )
    legend = '<p class="quiet">● fired, ◌ skipped because the job before still ran, ○ missed</p>'
    return table(("schedule", "rule", "task", "last ticks", ""), rows) + legend


async def _workers(store: Store) -> str:
    rows = (
        (one.id, "alive" if one.alive else "silent", one.running, one.pool_size, one.version, time(one.seen_at))
        for one in await store.run(workers.workers())
    )
    return table(("worker", "state", "running", "slots", "version", "last heard of"), rows)


async def _audit(store: Store, times: Times) -> str:
    entries = [one for one in await store.run(audit.entries(MOST_ROWS)) if one.at >= times.begin]
    rows = ((time(one.at), one.who, one.via, one.action, one.target, one.count) for one in entries)
    return table(("at", "who", "by", "action", "target", "count"), rows)
