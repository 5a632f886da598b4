"""The picture of `rowlock top`: one overview as rich renderables, or as plain lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rowlock.cli.kit.output import printable
from rowlock.core.durations import spell

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rowlock.store.read.overview import Overview, QueueOverview
    from rowlock.store.sources.sources import BusySource

BARS = "▁▂▃▄▅▆▇█"
QUEUES = ("QUEUE", "READY", "LATER", "RUNNING", "OLDEST", "DONE/5m", "P95 RUN", "LAST 15 MIN")
SOURCES = ("SOURCE", "STATE", "RUNNING", "TOKENS", "OPENS IN")
WORKERS = ("WORKER", "SLOTS", "QUEUES", "SINCE")
COLOURS = {"open": "green", "paused": "yellow", "half-open": "yellow", "broken": "red", "disabled": "red"}
LEFT = {"QUEUE", "SOURCE", "STATE", "WORKER", "QUEUES", "LAST 15 MIN"}
OTHER_LINES = 7  # the header, three lines of column names, and the lines between the tables
LATELY_SECONDS = 300.0  # of which an overview counts the jobs that ended


def rates(found: Overview, before: Overview | None) -> tuple[float, float]:
    """Jobs that end in a second, since the last picture or in the last minutes; and the part of attempts that fail."""
    seconds = LATELY_SECONDS if before is None else (found.at - before.at).total_seconds()
    done = sum(queue.done for queue in found.queues) if before is None else found.ended - before.ended
    lately = sum(queue.done + queue.failed for queue in found.queues)
    failing = sum(queue.failed for queue in found.queues) / lately if lately else 0.0
    return max(0.0, done / seconds if seconds > 0 else 0.0), failing


def header(found: Overview, per_second: float, failing: float) -> str:
    """Workers, slots, speed and failures on one line."""
    busy = sum(worker.running for worker in found.workers)
    about = "" if found.exact else " · numbers are lower bounds"
    return (
        f"workers {len(found.workers)} · slots {busy}/{found.slots} · {speed(per_second)} jobs/s"
        f" · failed {failing * 100:.1f} %{about}"
    )


def tables(found: Overview) -> list[tuple[Sequence[str], list[tuple[str, ...]]]]:
    """The columns and rows of three tables: queues, sources that are closed or in use, and live workers."""
    workers: list[tuple[str, ...]] = [
        (
            printable(worker.id),
            f"{worker.running}/{worker.pool_size}",
            printable(", ".join(worker.queues)),
            span((found.at - worker.started_at).total_seconds()),
        )
        for worker in found.workers
    ]
    return [(QUEUES, [*map(_queue, found.queues)]), (SOURCES, [*map(_source, found.sources)]), (WORKERS, workers)]


def _queue(queue: QueueOverview) -> tuple[str, ...]:
    """What waits for its time is apart from what could start."""
    live = queue.live
    name = f"{printable(live.name)} (paused)" if live.paused else printable(live.name)
    return (
        name,
        number(live.ready),
        number(live.waiting),
        number(live.running),
        span(live.oldest_ready_seconds),
        number(queue.done),
        span(queue.p95_run_seconds),
        sparkline(queue.minutes),
    )


def _source(source: BusySource) -> tuple[str, ...]:
    running = str(source.running) if source.concurrency is None else f"{source.running}/{source.concurrency}"
    tokens = "-" if source.tokens is None else f"{int(max(source.tokens, 0))}/{source.burst}"
    return printable(source.name), source.state, running, tokens, span(source.paused_for)


def picture(found: Overview, per_second: float, failing: float, problems: Sequence[str], height: int) -> RenderableType:
    """Everything, for a terminal of this height: of each table as many rows as there is room for."""
    from rich.console import Group
    from rich.text import Text

    shown = tables(found)
    room = shares([len(rows) for _, rows in shown], max(3, height - OTHER_LINES - len(shown) - len(problems)))
    parts: list[RenderableType] = [Text(header(found, per_second, failing), style="bold", no_wrap=True)]
    parts += [Text(line, style="red", no_wrap=True, overflow="ellipsis") for line in problems]
    for (columns, rows), most in zip(shown, room, strict=True):
        parts.append(_table(columns, rows[:most]))
        if len(rows) > most:
            parts.append(Text(f"  and {len(rows) - most} more", style="dim"))
    parts.append(Text("q or Ctrl-C leaves", style="dim"))
    return Group(*parts)


def shares(wanted: Sequence[int], room: int) -> list[int]:
    """How many rows each table gets: all that it wants if there is room, else an equal part of what is left."""
    given = [0] * len(wanted)
    left = room
    for n, want in sorted(enumerate(wanted), key=lambda pair: pair[1]):
        tables = sum(1 for other in range(len(wanted)) if not given[other] and wanted[other])
        given[n] = min(want, max(1, left // max(tables, 1))) if want else 0
        left -= given[n]
    return given


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        table.add_column(column, justify="left" if column in LEFT else "right", no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(*(Text(text, style=COLOURS.get(text, "")) for text in row))
    if not rows:
        table.add_row(Text("none", style="dim"), *("" for _ in columns[1:]))
    return table


# --- words and numbers


def number(count: int) -> str:
    """12 345 with thin groups."""
    return f"{count:,}".replace(",", " ")


def speed(per_second: float) -> str:
    """A rate with as many digits as mean something."""
    return f"{per_second:.1f}" if per_second < 10 else number(round(per_second))


def span(seconds: float | None) -> str:
    """A duration in words; a dash if it is not known."""
    return "-" if seconds is None else spell(seconds)


def sparkline(counts: Sequence[int]) -> str:
    """One bar for each number, by the largest; the lowest bar is nothing."""
    most = max(counts, default=0)
    if not most:
        return BARS[0] * len(counts)
    return "".join(BARS[-(-count * (len(BARS) - 1) // most)] for count in counts)
