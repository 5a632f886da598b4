"""The page of `rowlock report`: HTML with drawings in SVG, and no script. Pure: it gets what was read.

Names and messages come from jobs, and jobs may come from anybody: every text goes through `text`, and the page forbids
scripts and everything from elsewhere by its own policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rowlock.cli.report_words import nothing, span, table, text, time
from rowlock.store.audit import Entry
from rowlock.store.panels import Failures, StripMinute, Tick
from rowlock.store.reads import QueueStats
from rowlock.store.schedules import ScheduleRow
from rowlock.store.sources import Source
from rowlock.store.tallies import BOUNDS, BUCKETS, Sample, percentile
from rowlock.store.workers import Worker

WIDTH, HEIGHT = 720, 120
MOST_GROUPS, MOST_QUEUES = 50, 12
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


@dataclass(frozen=True, slots=True)
class Report:
    """What was read for the page."""

    begin: datetime
    end: datetime
    step: int  # seconds of one column in the drawings
    first: datetime  # where the first column begins
    title: str
    ends: dict[datetime, dict[str, int]]
    depth: Mapping[str, list[Sample]]
    runs: dict[datetime, list[int]]
    waits: dict[datetime, list[int]]
    queues: Sequence[QueueStats]
    spread: dict[str, tuple[list[int], list[int]]]
    workers: list[Worker]
    failures: Failures
    sources: Sequence[Source]
    strips: dict[str, list[StripMinute]]
    schedules: Sequence[ScheduleRow]
    ticks: dict[str, list[Tick]]
    audit: Sequence[Entry]

    @property
    def columns(self) -> int:
        """How many columns a drawing has."""
        return max(1, -(-int((self.end - self.first).total_seconds()) // self.step))

    def column(self, at: datetime) -> int:
        """The column in which a moment lies."""
        return min(max(int((at - self.first).total_seconds()) // self.step, 0), self.columns - 1)


def page(report: Report) -> str:
    """The whole page."""
    when = f"{time(report.begin)} to {time(report.end)} UTC"
    parts = (
        ("Jobs that ended, and attempts that failed", _throughput(report)),
        ("Waiting jobs by queue", _depths(report)),
        ("How long jobs waited", _heat(report, report.waits)),
        ("How long attempts ran", _heat(report, report.runs)),
        ("Queues at the end of this time", _queues(report)),
        ("Failures", _failures(report)),
        ("Sources at the end of this time, and their last hour", _sources(report)),
        ("Schedules and their last ticks", _schedules(report)),
        ("Workers at the end of this time", _workers(report)),
        ("What operators did", _audit(report)),
    )
    body = "\n".join(f"<section><h2>{title}</h2>{drawn}</section>" for title, drawn in parts)
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy"'
        f' content="{policy}"><meta name="viewport" content="width=device-width"><title>Rowlock report</title>'
        f"<style>{STYLE}</style></head><body><h1>Report, {when}</h1>"
        f'<p class="quiet">{text(report.title)}. One column is {span(report.step)}.</p>\n{body}\n</body></html>\n'
    )


# --- drawings


def _throughput(report: Report) -> str:
    ended, failed = [0] * report.columns, [0] * report.columns
    for at, counts in report.ends.items():
        ended[report.column(at)] += sum(counts.get(what, 0) for what in ("succeeded", "dead", "cancelled"))
        failed[report.column(at)] += sum(counts.get(what, 0) for what in FAILED)
    most, width = max(*ended, *failed, 1), WIDTH / report.columns
    bars = []
    for kind, numbers, part in (("ok", ended, 1.0), ("bad", failed, 0.5)):
        for column, number in enumerate(numbers):
            tall = HEIGHT * number / most
            bars += [_rect(kind, column * width, HEIGHT - tall, width * part * 0.9, tall)] if number else []
    said = f"{sum(ended):,} jobs ended and {sum(failed):,} attempts failed; at most {most:,} in one column."
    return _figure(report, bars, said)


def _depths(report: Report) -> str:
    drawn = []
    longest = sorted(report.depth.items(), key=lambda each: -max((one.ready for one in each[1]), default=0))
    for name, samples in longest[:MOST_QUEUES]:
        ready = [0] * report.columns  # the most in each column
        for one in samples:
            column = report.column(one.at)
            ready[column] = max(ready[column], one.ready)
        most, width = max(*ready, 1), WIDTH / report.columns
        bars = [
            _rect("cell", column * width, HEIGHT * (1 - number / most), width, HEIGHT * number / most)
            for column, number in enumerate(ready)
            if number
        ]
        age = max((one.oldest_seconds or 0.0 for one in samples), default=0.0)
        said = f"At most {max(ready):,} ready; the oldest had waited for {span(age)}."
        drawn.append(f"<h3>{text(name)}</h3>{_figure(report, bars, said)}")
    return "".join(drawn) or nothing("no samples: they are written once a minute while a worker runs")


def _heat(report: Report, counts: Mapping[datetime, Sequence[int]]) -> str:
    columns = [[0] * BUCKETS for _ in range(report.columns)]
    for at, buckets in counts.items():
        mine = columns[report.column(at)]
        for bucket, number in enumerate(buckets):
            mine[bucket] += number
    most, wide, tall = max(max(column) for column in columns), WIDTH / report.columns, HEIGHT / BUCKETS
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
    return _figure(report, cells, f"{said} Rows from below: up to {span(BOUNDS[0])} … over {span(BOUNDS[-1])}.")


def _figure(report: Report, shapes: Iterable[str], said: str) -> str:
    ends = (
        f'<line class="base" x1="0" y1="{HEIGHT}" x2="{WIDTH}" y2="{HEIGHT}"/>'
        f'<text class="axis" x="0" y="{HEIGHT + 14}">{time(report.begin)}</text>'
        f'<text class="axis" x="{WIDTH}" y="{HEIGHT + 14}" text-anchor="end">{time(report.end)}</text>'
    )
    box = f'<svg viewBox="0 0 {WIDTH} {HEIGHT + 18}" role="img" aria-label="{text(said)}">'
    return f'<figure>{box}{"".join(shapes)}{ends}</svg><figcaption class="quiet">{text(said)}</figcaption></figure>'


def _rect(kind: str, x: float, y: float, wide: float, tall: float, strong: float | None = None) -> str:
    faint = "" if strong is None else f' fill-opacity="{strong:.2f}"'
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{tall:.1f}"{faint}/>'


# --- tables


def _queues(report: Report) -> str:
    def rows() -> Iterator[tuple[Any, ...]]:
        for queue in report.queues:
            run, wait = report.spread.get(queue.name, ([], []))
            times = [span(percentile(counts, 0.95)) for counts in (wait, run)]
            paused = "paused" if queue.paused else ""
            oldest = span(queue.oldest_ready_seconds)
            yield queue.name, queue.queued, queue.retryable, queue.running, oldest, *times, paused

    return table(["queue", "queued", "retryable", "running", "oldest waits", "wait p95", "run p95", ""], rows())


def _failures(report: Report) -> str:
    found = report.failures
    note = "" if found.exact else f"<p>Only the newest failures are grouped, since {time(found.since)}.</p>"
    rows = (
        (group.number, group.task, group.error_code, group.example, time(group.first_seen), time(group.last_seen))
        for group in found.groups[:MOST_GROUPS]
    )
    return note + table(("times", "task", "code", "last message", "first", "last"), rows)


def _sources(report: Report) -> str:
    def rows() -> Iterator[tuple[Any, ...]]:
        for source in report.sources:
            minutes = report.strips.get(source.name, ())
            good, bad = sum(one.succeeded for one in minutes), sum(one.failed for one in minutes)
            yield source.name, source.state(report.end), source.running, good, bad

    return table(("source", "state", "running", "succeeded", "failed"), rows())


def _schedules(report: Report) -> str:
    rows = (
        (
            schedule.id,
            f"{schedule.rule} ({schedule.zone})",
            schedule.task,
            "".join(TICKS.get(tick.what, "?") for tick in report.ticks.get(schedule.id, ())),
            schedule.problem or ("paused" if schedule.paused_at else ""),
        )
        for schedule in report.schedules
    )
    legend = '<p class="quiet">● fired, ◌ skipped because the job before still ran, ○ missed</p>'
    return table(("schedule", "rule", "task", "last ticks", ""), rows) + legend


def _workers(report: Report) -> str:
    rows = (
        (one.id, "alive" if one.alive else "silent", one.running, one.pool_size, one.version, time(one.seen_at))
        for one in report.workers
    )
    return table(("worker", "state", "running", "slots", "version", "last heard of"), rows)


def _audit(report: Report) -> str:
    rows = ((time(one.at), one.who, one.via, one.action, one.target, one.count) for one in report.audit)
    return table(("at", "who", "by", "action", "target", "count"), rows)
